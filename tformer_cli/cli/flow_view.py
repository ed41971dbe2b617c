"""What written tokens are made of, on a terminal: bars, the largest shares, two heat maps."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tformer_cli.cli.heat_map import map_lines
from tformer_cli.cli.step_view import ASCII
from tformer_cli.data.labels import visible

if TYPE_CHECKING:
    from tformer_cli.inspection.flow import FlowRecord, Method
    from tformer_cli.inspection.heads import Kind

BAR = 16
"""Columns of a bar."""
FULL, EMPTY, ASCII_FULL, ASCII_EMPTY = "█", "░", "#", "."
LABEL = 10
"""Columns that are left to labels at least."""
N_LARGEST = 3
"""Tokens named for each position."""
SIDES = {"source": "cyan", "prefix": "yellow"}
"""What a token may come from, and the colour of each."""


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
    rows, maps = sentence.target_pieces, (flow.source, flow.prefix)
    largest = max(shares.max().item() for shares in maps)
    console.print()
    says = f"row: token written; column: token read; shaded from 0 to {largest:.2f}"
    console.print(_plain(says, is_ascii), style="dim")
    kinds: tuple[Kind, ...] = ("cross", "dec")
    labels = sentence.source_pieces, sentence.input_pieces
    for shares, side, kind, columns in zip(maps, SIDES, kinds, labels, strict=True):
        console.print(Text(f"from the {side}", style="bold"))
        for line in map_lines(console, kind, (rows, columns), shares, largest):
            console.print(line)


def _shares(record: "FlowRecord", method: "Method", is_ascii: bool) -> Table:
    """A line for each position: the source's share, with a bar, and the largest shares."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    # all but the last have their room; what does not fit is cut off there
    table.add_column("writes", justify="right", no_wrap=True, min_width=LABEL)
    table.add_column("source/prefix", no_wrap=True, min_width=BAR)
    table.add_column("source", justify="right", no_wrap=True, min_width=6)
    table.add_column("most from (in brackets: prefix)", no_wrap=True)
    shares = record.flows[method].source_shares
    for position, piece in enumerate(record.sentence.target_pieces):
        share = shares[position]
        table.add_row(
            _plain(piece, is_ascii),
            _bar(share, is_ascii),
            f"{share:.2f}",
            _largest(record, method, position, is_ascii),
        )
    return table


def _bar(share: float, is_ascii: bool) -> Text:
    n_full = round(BAR * share)
    full, empty = (ASCII_FULL, ASCII_EMPTY) if is_ascii else (FULL, EMPTY)
    return Text.assemble(
        (full * n_full, SIDES["source"]), (empty * (BAR - n_full), SIDES["prefix"])
    )


def _largest(record: "FlowRecord", method: "Method", position: int, is_ascii: bool) -> Text:
    named = []
    for side, label, share in record.largest(method, position, N_LARGEST):
        shown = _plain(label if side == "source" else f"({label})", is_ascii)
        named.append(Text.assemble((shown.plain, SIDES[side]), f" {share:.2f}"))
    return Text("  ").join(named)


def _plain(text: str, is_ascii: bool) -> Text:
    text = visible(text)
    return Text(text.translate(ASCII) if is_ascii else text)
