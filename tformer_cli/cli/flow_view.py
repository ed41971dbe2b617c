"""Sources of the tokens written, on a terminal: bars, the largest shares, two heat maps."""

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tformer_cli.cli.fitted_table import GAP, NARROWEST_LABEL, Column, table_lines
from tformer_cli.cli.heat_map import map_lines
from tformer_cli.cli.labels import cut, is_ascii_only, isolated, sentence_lines, shown

if TYPE_CHECKING:
    from tformer_cli.inspection.capture.heads import Kind
    from tformer_cli.inspection.views.flow import FlowRecord, Method

BAR, SHORT_BAR = 16, 8
"""Columns of a bar, and of one where there is little room."""
FULL, EMPTY, ASCII_FULL, ASCII_EMPTY = "█", "░", "#", "."
LABEL = 14
"""Most columns of the token written."""
N_LARGEST = 3
"""Tokens named for each position at most."""
ROOM_FOR_LARGEST = 36
"""Columns that a short bar leaves to them."""
SIDES = {"source": "cyan", "prefix": "yellow"}
"""Sides that a token may come from, and the color of each."""


def show_flow(console: Console, record: "FlowRecord", method: "Method") -> None:
    """Prints the share of the source at each position and where it comes from."""
    from tformer_cli.inspection.views.flow import METHOD_NAMES

    sentence = record.sentence
    name = "given target" if sentence.is_forced else "translation"
    rows = [("source", sentence.source), (name, sentence.target)]
    console.print(sentence_lines(console, rows))
    if not record.flows:
        return
    flow = record.flows[method]
    facts = f"{METHOD_NAMES[method]}   mean share of the source {flow.source_share:.2f}"
    console.print(Text(f"{facts}   residual {flow.residual:.1e}"))
    console.print()
    for line in _shares(console, record, method):
        console.print(line)
    labels, maps = sentence.target_pieces, (flow.source, flow.prefix)
    largest = max(shares.max().item() for shares in maps)
    console.print()
    says = f"row: token written; column: token read; shaded from 0 to {largest:.2f}"
    console.print(Text(says, style="dim"))
    kinds: tuple[Kind, ...] = ("cross", "dec")
    keys = sentence.source_pieces, sentence.input_pieces
    for shares, side, kind, columns in zip(maps, SIDES, kinds, keys, strict=True):
        console.print(Text(f"from the {side}", style="bold"))
        for line in map_lines(console, kind, (labels, columns), shares, largest):
            console.print(line)


def _shares(console: Console, record: "FlowRecord", method: "Method") -> list[Text]:
    """A line for each position: the source's share, with a bar, and the largest shares."""
    is_ascii = is_ascii_only(console)
    shares = record.flows[method].source_shares
    pieces = [shown(piece, is_ascii=is_ascii) for piece in record.sentence.target_pieces]
    width = min(LABEL, max(map(cell_len, pieces)), console.width // 5)
    head = "writes"
    labels = [cut(piece, max(width, len(head)), is_ascii=is_ascii) for piece in pieces]
    before = max(len(head), *map(cell_len, labels)) + len("source") + 3 * GAP
    bar = BAR if console.width - before - BAR >= ROOM_FOR_LARGEST else SHORT_BAR
    room = console.width - before - max(bar, len("source/prefix"))
    largest = [_largest(record, method, p, room, is_ascii) for p in range(len(pieces))]
    heads = ("source/prefix", "most from (in brackets: prefix)")
    columns = [
        Column(head=head, cells=labels, is_label=True),
        Column(head=heads[0], cells=[_bar(s, bar, is_ascii) for s in shares], at_left=True),
        Column(head="source", cells=[f"{share:.2f}" for share in shares]),
        Column(
            head=heads[1] if room >= len(heads[1]) else "most from", cells=largest, at_left=True
        ),
    ]
    return table_lines(columns, console.width, is_ascii=is_ascii)


def _bar(share: float, width: int, is_ascii: bool) -> Text:
    n_full = round(width * share)
    full, empty = (ASCII_FULL, ASCII_EMPTY) if is_ascii else (FULL, EMPTY)
    return Text.assemble(
        (full * n_full, SIDES["source"]), (empty * (width - n_full), SIDES["prefix"])
    )


def _largest(
    record: "FlowRecord", method: "Method", position: int, room: int, is_ascii: bool
) -> Text:
    """The largest shares that have room, the first one in any case."""
    line = Text()
    for side, label, share in record.largest(method, position, N_LARGEST):
        number, brackets = f" {share:.2f}", 2 if side == "prefix" else 0
        name = shown(label, is_ascii=is_ascii)
        if not line:
            most = max(NARROWEST_LABEL, room - len(number) - brackets)
            name = cut(name, most, is_ascii=is_ascii)
        name = f"({isolated(name)})" if brackets else isolated(name)
        gap = " " * GAP if line else ""
        if line and line.cell_len + cell_len(gap + name + number) > room:
            break
        line.append(gap).append(name, SIDES[side]).append(number)
    return line
