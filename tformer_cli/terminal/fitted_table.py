"""Tables that fit a terminal: labels give way, measures do not.

A label is cut, the longest first and never below four cells. Where the measures have no room even
then, the table is continued below, its leading columns repeated. So no line is wider than the
terminal and no number is lost.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tformer_cli.terminal.labels import cut, left_aligned, right_aligned

GAP = 2
"""Cells between two columns."""
NARROWEST_LABEL = 4
"""Cells that a label keeps at least."""


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
    """Of cells that are plain text."""

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

    Args:
        columns: the columns beside each other.
        room: cells there are, the gaps included.
        gap: cells between two columns.

    Returns:
        The width of each column; together they are wider than `room` if nothing can give way.
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
    """Draws a table, a line for the headings and one for each row.

    Args:
        columns: the columns, the first ones naming the rows.
        room: the width of the terminal.
        n_repeated: leading columns repeated in each part of a table that is continued below.
        gap: cells between two columns.
        styles: of each row; none: all alike.
        is_ascii: true if the terminal shows ASCII only.
    """
    lines: list[Text] = []
    for part in _parts(columns, room, n_repeated, gap):
        if lines:
            lines.append(Text())
        widths = column_widths(part, room, gap)
        lines += _part_lines(part, widths, gap, styles, is_ascii)
    return lines


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """Prints lines below each other."""
    for line in lines:
        console.print(line)


def _parts(
    columns: Sequence[Column], room: int, n_repeated: int, gap: int
) -> Iterator[list[Column]]:
    """Splits columns where they do not fit beside each other."""
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
