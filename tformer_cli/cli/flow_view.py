"""What written tokens are made of, on a terminal: bars, the largest shares, two heat maps."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tformer_cli.cli.heat_map import map_lines
from tformer_cli.cli.step_view import ASCII

if TYPE_CHECKING:
    from tformer_cli.inspection.flow import FlowRecord, Method

BAR = 20
"""Columns of a bar."""
FULL, EMPTY, ASCII_FULL, ASCII_EMPTY = "█", "░", "#", "."
N_LARGEST = 3
"""Tokens named for each position."""
SOURCE_STYLE, PREFIX_STYLE = "cyan", "yellow"


def show_flow(console: Console, record: "FlowRecord", method: "Method") -> None:
    """Prints the share of the source at each position and where it comes from."""
    from tformer_cli.inspection.flow import METHOD_NAMES

    is_ascii = not console.encoding.lower().startswith("utf")
    sentence = record.sentence
    console.print(_plain(f"source       {sentence.source}", is_ascii))
    name = "given target" if sentence.is_forced else "translation "
    console.print(_plain(f"{name} {sentence.target}", is_ascii))
    if not record.flows:
        return
    flow = record.flows[method]
    facts = f"{METHOD_NAMES[method]}   mean share of the source {flow.source_share:.2f}"
    console.print(_plain(f"{facts}   residual {flow.residual:.1e}", is_ascii))
    console.print()
    console.print(_shares(record, method, is_ascii))
    for title, kind, columns, shares in (
        ("from the source", "cross", sentence.source_pieces, flow.source),
        ("from the prefix", "dec", sentence.input_pieces, flow.prefix),
    ):
        console.print()
        console.print(Text(f"{title}; row: token written, column: token read", style="bold"))
        for line in map_lines(console, kind, (sentence.target_pieces, columns), shares):
            console.print(line, no_wrap=True, crop=True)


def _shares(record: "FlowRecord", method: "Method", is_ascii: bool) -> Table:
    """A line for each position: a bar, the source's share by every method, the largest shares."""
    from tformer_cli.inspection.flow import METHOD_NAMES

    others = [other for other in record.flows if other != method]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("writes", justify="right", no_wrap=True)
    table.add_column("source / prefix", no_wrap=True)
    table.add_column("source", justify="right", no_wrap=True)
    for other in others:
        table.add_column(f"by {METHOD_NAMES[other].split()[-1]}", justify="right", no_wrap=True)
    table.add_column("most from", no_wrap=True)
    for position, piece in enumerate(record.sentence.target_pieces):
        share = record.flows[method].source_shares[position]
        table.add_row(
            _plain(piece, is_ascii),
            _bar(share, is_ascii),
            f"{share:.2f}",
            *(f"{record.flows[other].source_shares[position]:.2f}" for other in others),
            _largest(record, method, position, is_ascii),
        )
    return table


def _bar(share: float, is_ascii: bool) -> Text:
    n_full = round(BAR * share)
    full, empty = (ASCII_FULL, ASCII_EMPTY) if is_ascii else (FULL, EMPTY)
    return Text.assemble((full * n_full, SOURCE_STYLE), (empty * (BAR - n_full), PREFIX_STYLE))


def _largest(record: "FlowRecord", method: "Method", position: int, is_ascii: bool) -> Text:
    found = record.largest(method, position, N_LARGEST)
    styles = {"source": SOURCE_STYLE, "prefix": PREFIX_STYLE}
    named = [
        Text.assemble((_plain(label, is_ascii).plain, styles[side]), f" {share:.2f}")
        for side, label, share in found
    ]
    return Text("  ").join(named)


def _plain(text: str, is_ascii: bool) -> Text:
    return Text(text.translate(ASCII) if is_ascii else text)
