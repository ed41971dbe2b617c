"""Documents, tables and texts on a terminal: cut, filled and aligned by display width.

Wide characters take two cells and combining ones none. A text with letters that run from right to
left stands in directional isolates (Unicode Standard Annex 9), so that a terminal that turns it
round leaves its neighbors, and the columns, where they are. Where the terminal has no Unicode,
every character that ASCII lacks is shown as one that it has, before anything is measured.

Tables fit the terminal: labels give way, measures do not. A label is cut, the longest first and
never below four cells. Where the measures have no room even then, the table is continued below, its
leading columns repeated. So no line is wider than the terminal and no number is lost.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from tformer_cli.show.document import Document, Table
from tformer_cli.wording import SPACE_LABEL, visible

ISOLATE, END_OF_ISOLATE = "\u2068", "\u2069"
RIGHT_TO_LEFT = ("R", "AL", "AN", "RLE", "RLO", "RLI")
"""Bidirectional classes of text that runs from right to left, and of marks that make it do so."""
ROOM_FOR_ELLIPSIS = 4
"""Cells from which on a text that is cut ends with an ellipsis."""
ASCII_SIGNS = str.maketrans(
    {
        "√": "sqrt ",
        "·": "*",
        "Σ": "sum",
        "−": "-",
        "∞": "inf",
        "÷": "/",
        "…": "..",
        "ᵀ": "^T",
        "μ": "mu",
        "σ": "sigma",
        "²": "^2",
        "ε": "eps",
        "γ": "gamma",
        "β": "beta",
        "✓": "ok",
        "█": "#",
        "→": ">",
        "▁": "_",
    }
)
"""ASCII forms of signs in formulas, for terminals that are not UTF-8."""
ASCII_FOR = str.maketrans({SPACE_LABEL: "_", "→": ">", "…": "~", "’": "'", "±": "+-", "–": "-"})
GAP = 2
"""Cells between two columns."""
NARROWEST_LABEL = 4
"""Cells that a label keeps at least."""


def is_ascii_only(console: Console) -> bool:
    """True if a console cannot show Unicode."""
    return not console.encoding.lower().startswith("utf")


def shown(text: str, *, is_ascii: bool) -> str:
    """A text as the terminal can show it, with control characters written out."""
    text = visible(text)
    if is_ascii:
        return text.translate(ASCII_FOR).encode("ascii", "replace").decode("ascii")
    return text


def isolated(text: str) -> str:
    """A text with isolates around it if it runs from right to left; they take no cells."""
    if any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text):
        return f"{ISOLATE}{text}{END_OF_ISOLATE}"
    return text


def cut(text: str, width: int, *, is_ascii: bool = False) -> str:
    """Cuts a text to a number of cells, with an ellipsis where there is room for one.

    A character that would be halved is skipped.
    """
    text = text.replace("\t", " ")
    if cell_len(text) <= width:
        return text
    if width < ROOM_FOR_ELLIPSIS:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1).rstrip() + ("~" if is_ascii else "…")


def left_aligned(text: str, width: int) -> str:
    kept = cut(text, width)
    return isolated(kept) + " " * (width - cell_len(kept))


def right_aligned(text: str, width: int) -> str:
    kept = cut(text, width)
    return " " * (width - cell_len(kept)) + isolated(kept)


def sentence_lines(console: Console, sentences: Sequence[tuple[str, str]]) -> Grid:
    """Sentences with their names before them, wrapped to the terminal, long words too."""
    is_ascii = is_ascii_only(console)
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, sentence in sentences:
        grid.add_row(Text(name), Text(isolated(shown(sentence, is_ascii=is_ascii))))
    return grid


@dataclass(frozen=True)
class Column:
    """A column: its heading and a cell for each row."""

    head: str
    """The heading, which is never cut."""
    cells: Sequence[str | Text]
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
            cell.cell_len if isinstance(cell, Text) else cell_len(cell) for cell in self.cells
        ]
        return max([cell_len(self.head), *lengths])

    @property
    def least(self) -> int:
        """Cells that the column takes at least."""
        if not self.is_label:
            return self.natural
        return min(self.natural, max(NARROWEST_LABEL, cell_len(self.head)))


def column_widths(columns: Sequence[Column], room: int, gap: int = GAP) -> list[int]:
    """Narrows the labels of columns until all fit, the widest first.

    The widths exceed `room`, which includes the gaps, if nothing can give way.
    """
    widths = [column.natural for column in columns]
    least = [column.least for column in columns]
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
) -> list[Text]:
    """Draws a table, a line for the headings and one for each row."""
    lines: list[Text] = []
    for part in _parts(columns, room, n_repeated, gap):
        if lines:
            lines.append(Text())
        widths = column_widths(part, room, gap)
        lines += _part_lines(part, widths, gap, styles, is_ascii)
    return lines


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        console.print(line)


def _parts(
    columns: Sequence[Column], room: int, n_repeated: int, gap: int
) -> Iterator[list[Column]]:
    """Splits columns where they do not fit next to each other."""
    repeated = list(columns[:n_repeated])
    part = list(repeated)
    for column in columns[n_repeated:]:
        taken = sum(one.least for one in [*part, column]) + gap * len(part)
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
) -> list[Text]:
    n_rows = len(columns[0].cells)
    lines = [
        Text(style="dim"),
        *(Text(style=styles[row] if styles else "") for row in range(n_rows)),
    ]
    for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
        is_last = place == len(columns) - 1
        at_left = column.is_label or column.at_left
        cells: list[str | Text] = [column.head, *column.cells]
        for line, cell in zip(lines, cells, strict=True):
            if isinstance(cell, Text):
                spaces = " " * (width - cell.cell_len)
                line.append_text(cell + Text(spaces) if at_left else Text(spaces) + cell)
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
    """Prints tables that fit the terminal, and sentences."""
    is_ascii = is_ascii_only(console)

    def show(text: str, style: str = "", *, above: str = "\n") -> None:
        console.print(Text(above + shown(text, is_ascii=is_ascii), style=style))

    for number, section in enumerate(document.sections):
        if number:
            console.print()
        show(section.title, "bold", above="")
        for table in section.tables:
            show(table.title, "bold")
            columns = list(_columns(table, is_ascii))
            print_lines(console, table_lines(columns, console.width, is_ascii=is_ascii))
            if table.note:  # not wrapped, to be copied
                console.print(Text(table.note, style="dim"), soft_wrap=True)
            if table.remark:
                show(table.remark, above="")
        for group in section.sentences:
            show(group.heading, "bold")
            for sentence in group.sentences:
                show(sentence.heading)
                console.print(sentence_lines(console, sentence.texts))


def _columns(table: Table, is_ascii: bool) -> Iterator[Column]:
    for place, (head, *cells) in enumerate(zip(table.head, *table.rows, strict=True)):
        texts = [shown(one.text, is_ascii=is_ascii) for one in cells]
        styled = [Text(t, "bold" * one.is_best) for t, one in zip(texts, cells, strict=True)]
        yield Column(shown(head, is_ascii=is_ascii), styled if place else texts, is_label=not place)
