"""Position vectors on a terminal: what was measured, a heat map, the similarity by offset."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from tformer_cli.cli.heat_map import ASCII_BLOCKS, BLOCKS
from tformer_cli.cli.labels import is_ascii_only, shown
from tformer_cli.cli.step_view import ASCII

if TYPE_CHECKING:
    from tformer_cli.inspection.views.positions import PositionsRecord, PositionTable

ROWS_SHOWN = 24
NUMBERS, BAR_WIDTH = 37, 40
"""Columns of the numbers of an offset, and of its bar at most."""


def show_positions(console: Console, record: "PositionsRecord") -> None:
    """Prints the position vectors of a model."""
    from tformer_cli.inspection.views.positions import facts_of

    is_ascii = is_ascii_only(console)

    def show(text: str, style: str = "") -> None:
        console.print(Text(text.translate(ASCII) if is_ascii else text, style=style))

    for table in record.tables:
        whose = "encoder and decoder" if table.stack == "both" else table.stack
        n_positions, width = table.table.shape
        name = shown(record.model.name, is_ascii=is_ascii)
        show(f"{name}  {record.kind} positions, {whose}", "bold")
        show(f"{n_positions} positions × {width} dimensions".replace("×", "x" if is_ascii else "×"))
        facts = Table.grid(padding=(0, 2))
        for overflow in ("crop", "crop", "fold"):
            facts.add_column(overflow=overflow, no_wrap=overflow == "crop")
        for what, fact in facts_of(table):
            facts.add_row("", what, Text(fact.translate(ASCII) if is_ascii else fact))
        console.print(facts)
        show("")
        _show_map(console, table, is_ascii)
        show("")
        show("similarity PE(p)·PE(p+k) by offset k: mean, smallest, largest", "bold")
        largest = max(abs(one.mean) for one in table.by_offset)
        longest = max(0, min(BAR_WIDTH, console.width - NUMBERS))
        for one in table.by_offset:
            if one.offset > 8 and one.offset & (one.offset - 1):
                continue
            bar = "█" * round(longest * max(one.mean, 0.0) / largest)
            numbers = f"{one.mean:9.3f} {one.smallest:9.3f} {one.largest:9.3f}"
            show(f"{one.offset:5} {numbers}  {bar}".rstrip())


def _show_map(console: Console, table: "PositionTable", is_ascii: bool) -> None:
    """A character a cell: rows are positions, columns dimensions.

    Where not all fit, every n-th is shown; with an even n these are sines alone, a smooth picture.
    """
    from tformer_cli.inspection.figures.palette import color
    from tformer_cli.inspection.views.render_positions import shares

    values = shares(table.table)
    stride = -(-values.shape[1] // max(console.width - 6, 1))
    chosen = "every dimension" if stride == 1 else f"one dimension in {stride}"
    console.print(Text(f"position, by {chosen}; light -, dark +", style="dim"))
    blocks = ASCII_BLOCKS if is_ascii else BLOCKS
    for place, row in enumerate(values[:ROWS_SHOWN, ::stride].tolist()):
        line = Text(f"{place:4}  ")
        for share in row:
            if console.color_system is None or console.no_color:
                line.append(blocks[min(int(share * len(blocks)), len(blocks) - 1)])
            else:
                red, green, blue = color("cross", share, on_dark=True)
                line.append(" ", Style(bgcolor=f"#{red:02x}{green:02x}{blue:02x}"))
        console.print(line, no_wrap=True)
