"""Documents, tables and texts on a terminal: cut, filled and aligned by display width."""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from io import StringIO
from itertools import groupby
from operator import itemgetter

from rich.cells import cell_len, set_cell_size
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as Line

from tformer_cli.show.document import (
    BLANK,
    Block,
    Cell,
    Document,
    Facts,
    Field,
    Label,
    Map,
    Room,
    SideBySide,
    Span,
    Table,
    Text,
    Texts,
    plain_text,
    text,
)
from tformer_cli.show.palette import color, ink_on, signed_color
from tformer_cli.wording import SPACE_LABEL, count_of, visible

# A terminal that turns a text round leaves the neighbors of an isolate, and so the columns, where
# they are (Unicode Standard Annex 9).
ISOLATE, END_OF_ISOLATE = "\u2068", "\u2069"
RIGHT_TO_LEFT = ("R", "AL", "AN", "RLE", "RLO", "RLI")
"""Bidirectional classes of text that runs from right to left, and of marks that make it do so."""
ROOM_FOR_ELLIPSIS = 4
"""Cells from which on a text that is cut ends with an ellipsis."""
ASCII_FOR = str.maketrans(
    {
        SPACE_LABEL: "_",
        "→": ">",
        "…": "~",
        "’": "'",
        "±": "+-",
        "–": "-",
        "×": "x",
        "█": "#",
        "░": ".",
    }
)
"""ASCII forms of characters, for terminals that are not UTF-8."""
ASCII_SIGNS = str.maketrans(
    {
        "√": "sqrt ",
        "·": "*",
        "Σ": "sum",
        "−": "-",
        "∞": "inf",
        "÷": "/",
        "…": "..",
        "✓": "ok",
        "ᵀ": "^T",
        "μ": "mu",
        "σ": "sigma",
        "²": "^2",
        "³": "^3",
        "₁": "_1",
        "₂": "_2",
        "⊙": "*",
        "Φ": "Phi",
        "π": "pi",
        "ε": "eps",
        "γ": "gamma",
        "β": "beta",
    }
)
"""ASCII forms of signs in formulas and sentences of ours."""
GAP = 2
"""Cells between two columns."""
NARROWEST_LABEL = 4
"""Cells that a label keeps at least."""
BLOCKS, ASCII_BLOCKS = " ░▒▓█", " .:*#"
"""Shades where there is no color, for shares below 0.1, 0.3, 0.5, 0.75 and up to 1."""
STEPS = (0.1, 0.3, 0.5, 0.75)
NARROWEST, WIDEST = 4, 9
"""Cells a column of a map takes at least and at most, the gap to the next included."""
SIGNED = 5
"""Cells of a signed number: a sign, up to three digits and a gap."""
FEWEST_ROWS = 8
"""Rows of a map that are shown on any screen."""


def is_ascii_only(console: Console) -> bool:
    """True if a console cannot show Unicode."""
    return not console.encoding.lower().startswith("utf")


def show_text(text: str, *, is_ascii: bool) -> str:
    """A text as the terminal can show it, with control characters written out."""
    text = visible(text)
    if is_ascii:
        # before anything is measured: "±" becomes two characters
        return text.translate(ASCII_FOR).encode("ascii", "replace").decode("ascii")
    return text


def readable(text: str, room: Room, width: int | None = None) -> str:
    """A text as a terminal can show it, cut to a number of cells."""
    kept = show_text(text, is_ascii=room.is_ascii)
    return kept if width is None else cut(kept, width, is_ascii=room.is_ascii)


def isolate_text(text: str) -> str:
    """A text with isolates around it if it runs from right to left; they take no cells."""
    if any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text):
        return f"{ISOLATE}{text}{END_OF_ISOLATE}"
    return text


def cut(text: str, width: int, *, is_ascii: bool = False) -> str:
    """Cuts a text to a number of cells, with an ellipsis where there is room for one."""
    # a tab takes any number of cells
    text = text.replace("\t", " ")
    if cell_len(text) <= width:
        return text
    if width < ROOM_FOR_ELLIPSIS:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1).rstrip() + ("~" if is_ascii else "…")


def width_of(text: str) -> int:
    """The cells that a text takes."""
    return cell_len(text)


def left_aligned(text: str, width: int) -> str:
    kept = cut(text, width)
    return isolate_text(kept) + " " * (width - cell_len(kept))


def right_aligned(text: str, width: int) -> str:
    kept = cut(text, width)
    return " " * (width - cell_len(kept)) + isolate_text(kept)


def sentence_lines(console: Console, sentences: Sequence[tuple[str, str]]) -> Grid:
    """Sentences with their names before them, wrapped to the terminal, long words too."""
    is_ascii = is_ascii_only(console)
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, sentence in sentences:
        grid.add_row(Line(name), Line(isolate_text(show_text(sentence, is_ascii=is_ascii))))
    return grid


@dataclass(frozen=True)
class Column:
    """A column: its heading and a cell for each row."""

    head: str
    """The heading, which is never cut."""
    cells: Sequence[str | Line]
    """The cells; those of a label are text that a console can show."""
    _: KW_ONLY
    is_label: bool = False
    """True if cells may be cut."""
    at_left: bool = False
    """True if cells are left-aligned, as labels are by default."""
    style: str = ""
    """Style of cells that are plain text."""

    @property
    def natural(self) -> int:
        """Cells that the widest cell takes, or the heading."""
        lengths = [
            cell.cell_len if isinstance(cell, Line) else cell_len(cell) for cell in self.cells
        ]
        return max([cell_len(self.head), *lengths])

    @property
    def least(self) -> int:
        """Cells that the column takes at least."""
        if not self.is_label:
            return self.natural
        return min(self.natural, max(NARROWEST_LABEL, cell_len(self.head)))


def column_widths(columns: Sequence[Column], room: int, gap: int = GAP) -> list[int]:
    """Narrows labels, the widest first, until columns and gaps fit or none can give way."""
    widths = [column.natural for column in columns]
    least = [column.least for column in columns]
    # the widest label gives way first: short ones are often all that tells rows apart
    surplus = sum(widths) + gap * (len(columns) - 1) - room
    for _ in range(surplus):
        places = [place for place, width in enumerate(widths) if width > least[place]]
        if not places:
            break
        widths[max(places, key=widths.__getitem__)] -= 1
    return widths


def table_lines(
    columns: Sequence[Column],
    room: int,
    *,
    n_repeated: int = 1,
    gap: int = GAP,
    styles: Sequence[str] = (),
    is_ascii: bool = False,
) -> list[Line]:
    """Draws a table, a line for the headings and one for each row."""
    lines: list[Line] = []
    for part in _parts(columns, room, n_repeated, gap):
        if lines:
            lines.append(Line())
        widths = column_widths(part, room, gap)
        lines += _part_lines(part, widths, gap, styles, is_ascii)
    return lines


def _parts(
    columns: Sequence[Column], room: int, n_repeated: int, gap: int
) -> Iterator[list[Column]]:
    """Splits columns where they do not fit next to each other."""
    # measures are never cut, which would lose numbers: the table goes on below
    repeated = list(columns[:n_repeated])
    part = list(repeated)
    for column in columns[n_repeated:]:
        taken = sum(shown_column.least for shown_column in [*part, column]) + gap * len(part)
        # a part shows at least one new column, however narrow the terminal is
        if taken > room and len(part) > n_repeated:
            yield part
            part = list(repeated)
        part.append(column)
    yield part


def _part_lines(
    columns: Sequence[Column],
    widths: Sequence[int],
    gap: int,
    styles: Sequence[str],
    is_ascii: bool,
) -> list[Line]:
    n_rows = len(columns[0].cells)
    lines = [
        Line(style="dim"),
        *(Line(style=styles[row] if styles else "") for row in range(n_rows)),
    ]
    for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
        is_last = place == len(columns) - 1
        at_left = column.is_label or column.at_left
        cells: list[str | Line] = [column.head, *column.cells]
        for line, cell in zip(lines, cells, strict=True):
            if isinstance(cell, Line):
                spaces = " " * (width - cell.cell_len)
                line.append_text(cell + Line(spaces) if at_left else Line(spaces) + cell)
            else:
                label = cut(cell, width, is_ascii=is_ascii)
                aligned = left_aligned if at_left else right_aligned
                line.append(aligned(label, width), column.style if line is not lines[0] else "")
            line.append("" if is_last else " " * gap)
    for line in lines:
        line.rstrip()
        line.no_wrap, line.overflow = True, "crop"
    return lines


def show_document(console: Console, document: Document) -> None:
    """Prints tables that fit the terminal, sentences, and last the notes, such as commands."""
    for number, section in enumerate(document.sections):
        if number:
            console.print()
        show_blocks(console, section.blocks())
        for note in section.notes:
            show_blocks(console, [BLANK, text((note.title, "bold"))])
            for words in note.lines:
                line = Line(prose(words, room_of(console)))
                console.print(line, soft_wrap=note.is_code)  # code is not wrapped, to be copied


def plain_text_of(print_parts: Iterable[Callable[[Console], None]], width: int = 100) -> str:
    """Returns what functions print on a terminal without color, a blank line between two."""
    file = StringIO()
    # A console in a notebook would print there
    console = Console(file=file, width=width, color_system=None, force_jupyter=False)
    for number, print_part in enumerate(print_parts):
        if number:
            console.print()
        print_part(console)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def room_of(console: Console) -> Room:
    return Room(
        width=console.width,
        is_ascii=is_ascii_only(console),
        has_color=console.color_system is not None and not console.no_color,
        is_screen=console.is_terminal,
    )


def show_blocks(console: Console, blocks: Iterable[Block]) -> None:
    """Prints blocks; a map that fits a screen leaves room for the others and the prompt."""
    # read twice: once to measure what a map must leave room for
    shown_blocks = list(blocks)
    room = room_of(console)
    others = [other for other in shown_blocks if not isinstance(other, Map)]
    for block in shown_blocks:
        most_rows = None
        if isinstance(block, Map) and block.taller:
            parts = [part for other in others for part in _render_block(console, other, room)]
            taken = sum(len(console.render_lines(part, pad=False)) for part in parts)
            # around: the header, the line on what is omitted, and the prompt
            most_rows = max(FEWEST_ROWS, console.height - taken - 3)
        for part in _render_block(console, block, room, most_rows):
            is_whole = isinstance(part, Line) and part.overflow == "ignore"
            console.print(part, soft_wrap=is_whole)


def _render_block(
    console: Console, block: Block, room: Room, most_rows: int | None = None
) -> Iterator[RenderableType]:
    if isinstance(block, Text):
        yield _style_text(block, room)
    elif isinstance(block, Texts):
        yield sentence_lines(console, block.sentences)
    elif isinstance(block, Facts):
        yield _facts(block, room)
    elif isinstance(block, SideBySide):
        parts = [Group(*_render_block(console, part, room)) for part in block.blocks]
        yield Columns(parts, padding=(1, 4, 0, 0))
    elif isinstance(block, Table):
        yield from _table(block, room)
    elif isinstance(block, Field):
        yield from _field_lines(block, room)
    elif block.wraps:
        yield from _map_lines(block, room, most_rows)
    else:
        yield Group(*_map_lines(block, room, most_rows))


def _style_text(block: Text, room: Room) -> RenderableType:
    line = Line(style=block.style)
    pairs = ((span, "") if isinstance(span, str) else span for span in block.spans)
    for style, spans in groupby(pairs, key=itemgetter(1)):
        runs = ((prose(words, room), isinstance(words, Label)) for words, _ in spans)
        line.append(
            "".join(isolate_text(run) if is_label else run for run, is_label in runs), style
        )
    if not block.wraps:
        line.no_wrap, line.overflow = True, "crop"
        return Group(line)  # a text that is printed by itself forgets that it does not wrap
    return Padding(line, (0, 0, 0, block.indent), expand=False) if block.indent else line


def prose(words: str, room: Room) -> str:
    """A text of ours, with formulas and maybe several lines, as the terminal can show it."""
    signs = words.translate(ASCII_SIGNS) if room.is_ascii else words
    return "\n".join(show_text(line, is_ascii=room.is_ascii) for line in signs.split("\n"))


def _facts(block: Facts, room: Room) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    for _ in block.rows[0][1:]:
        grid.add_column(no_wrap=True, overflow="crop")
    grid.add_column(overflow="fold")
    for row in block.rows:
        grid.add_row(*(_style_text(c if isinstance(c, Text) else text(c), room) for c in row))
    return grid


def natural_width(table: Table, room: Room) -> int:
    """Cells that a table takes where nothing is cut."""
    columns = list(_columns(table, room))
    return sum(column.natural for column in columns) + table.gap * (len(columns) - 1)


def field(label: str, width: int, room: Room, *, at_right: bool = False) -> tuple[Span, Span]:
    """A label in a field of this many cells."""
    kept = readable(label, room, width)
    space = " " * (width - cell_len(kept))
    return (space, Label(kept)) if at_right else (Label(kept), space)


def fitted_widths(table: Table, room: Room, width: int) -> list[int]:
    """The width of each column where labels give way until a table is so wide."""
    return column_widths(list(_columns(table, room)), width, table.gap)


@dataclass(frozen=True)
class Item:
    """A label followed by a number."""

    label: str
    number: str
    style: str = ""
    style_of_number: str = ""
    in_brackets: bool = False


def whole_items(items: Sequence[Item], width: int, room: Room, least: int = 1) -> tuple[Text, int]:
    """The items that have room whole, and their number; the first is cut to `least` cells."""
    spans: list[Span] = []
    taken = 0
    for place, item in enumerate(items):
        around = 2 * item.in_brackets + len(item.number)
        label = readable(item.label, room, None if place else max(least, width - around))
        gap = " " * GAP if place else ""
        taken += len(gap) + cell_len(label) + around
        if place and taken > width:
            return Text(tuple(spans)), place
        before, after = "()" if item.in_brackets else ("", "")
        spans += [gap, (before, item.style), (Label(label), item.style), (after, item.style)]
        spans.append((item.number, item.style_of_number))
    return Text(tuple(spans)), len(items)


def _columns(table: Table, room: Room) -> Iterator[Column]:
    for place, (head, *cells) in enumerate(zip(table.head, *table.rows, strict=True)):
        is_label = place in table.labels
        yield Column(
            show_text(head, is_ascii=room.is_ascii),
            [_cell(cell, room, is_label=is_label) for cell in cells],
            is_label=is_label,
            at_left=place in table.texts,
        )


def _table(table: Table, room: Room) -> Iterator[Line]:
    """The lines of a table, with its title, note and remark."""
    if table.title:
        yield Line(show_text(table.title, is_ascii=room.is_ascii), "bold")
    yield from table_lines(
        list(_columns(table, room)),
        room.width,
        n_repeated=table.n_repeated,
        gap=table.gap,
        styles=table.row_styles,
        is_ascii=room.is_ascii,
    )
    if table.note:  # not wrapped, to be copied
        yield Line(table.note, "dim", no_wrap=True, overflow="ignore")
    if table.remark:
        yield Line(show_text(table.remark, is_ascii=room.is_ascii))


def _cell(cell: Cell | Text | str, room: Room, *, is_label: bool) -> Line | str:
    if isinstance(cell, Text):
        line = _style_text(cell, room)
        assert isinstance(line, Line)  # noqa: S101 - no cell is indented
        return line
    words = show_text(plain_text(cell), is_ascii=room.is_ascii)
    is_best = isinstance(cell, Cell) and cell.is_best
    return Line(words, "bold") if is_best and not is_label else words


def _map_lines(block: Map, room: Room, most_rows: int | None) -> Iterator[Line]:
    """Draws a map, a line a row; columns that do not fit are counted."""
    rows, keys = (
        [show_text(words, is_ascii=room.is_ascii) for words in side] for side in block.labels
    )
    n_hidden = 0 if most_rows is None else max(0, len(rows) - most_rows)
    rows = rows[: len(rows) - n_hidden]
    label_width = min(max(map(cell_len, rows)), max(8, room.width // 4))
    left = room.width - label_width - 2
    if block.is_signed:
        width, n_shown = SIGNED, min(len(keys), max(1, left // SIGNED))
    else:
        left = max(NARROWEST, left)
        n_shown = min(len(keys), left // NARROWEST)
        width = max(NARROWEST, min(WIDEST, left // n_shown, max(map(cell_len, keys)) + 1))
    if width == NARROWEST:  # of three cells none is spent on the sign of a space
        keys = [key.lstrip(show_text(SPACE_LABEL, is_ascii=room.is_ascii)) or key for key in keys]
    header = Line(" " * (label_width + 2))
    for key in keys[:n_shown]:
        label = cut(key, width - 1, is_ascii=room.is_ascii)
        header.append(left_aligned(label, width - 1) + " ", "dim")
    lines = [*([Line(block.title, "bold")] if block.title else []), header]
    for label, row in zip(rows, block.values, strict=False):
        label = cut(label, label_width, is_ascii=room.is_ascii)
        line = Line(right_aligned(label, label_width) + "  ")
        for value in row[:n_shown]:
            line.append_text(
                (_difference if block.is_signed else _shade)(block, value, width, room)
            )
        lines.append(line)
    dots = "..." if room.is_ascii else "…"
    if n_shown < len(keys):
        more = f"{count_of(len(keys) - n_shown, 'more column')}; {block.wider}"
        lines.append(Line(more if block.is_signed else f"{dots} {more}", "dim"))
    for line in lines:
        line.no_wrap = True
    if n_hidden:
        lines.append(Line(f"{dots} {count_of(n_hidden, 'more row')}: {block.taller}", "dim"))
    yield from lines


def _shade(block: Map, value: float, width: int, room: Room) -> Line:
    # relative, or weights of long sentences would all look like 0
    shade = value / block.largest
    if not room.has_color:
        character = (ASCII_BLOCKS if room.is_ascii else BLOCKS)[sum(shade >= s for s in STEPS)]
        return Line(character * (width - 1) + " ")
    # a map of zeros hides the few numbers that matter
    hundredths = f"{round(100 * value)}" if value >= 0.005 else ""
    return Line(
        hundredths.rjust(2).center(width), on_ground(*color(block.kind, shade, on_dark=True))
    )


def _difference(block: Map, value: float, width: int, room: Room) -> Line:
    """A difference with its sign; the color says the same, relative to the largest."""
    number = f"{100 * value:+.0f}" if abs(value) >= 0.005 else ""
    if not room.has_color:
        return Line(number.rjust(width - 1) + " ")
    red_green_blue = signed_color(value / max(block.largest, 1e-30), on_dark=True)
    return Line(number.rjust(3).center(width), on_ground(*red_green_blue))


def _field_lines(block: Field, room: Room) -> Iterator[Line]:
    blocks = ASCII_BLOCKS if room.is_ascii else BLOCKS
    for place, row in enumerate(block.values):
        line = Line(f"{place:4}  ", no_wrap=True)
        for share in row:
            if room.has_color:
                red, green, blue = color(block.kind, share, on_dark=True)
                line.append(" ", f"on #{red:02x}{green:02x}{blue:02x}")
            else:
                # a share of 1 has the darkest block, too
                line.append(blocks[min(int(share * len(blocks)), len(blocks) - 1)])
        yield line


def on_ground(red: int, green: int, blue: int) -> str:
    """Style of a background color (0 to 255) under black or white text, whichever is legible."""
    return f"{ink_on(red, green, blue)} on #{red:02x}{green:02x}{blue:02x}"
