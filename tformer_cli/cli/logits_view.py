"""The distributions of a sentence on a terminal."""

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tformer_cli.cli.fitted_table import GAP, NARROWEST_LABEL, Column, column_widths, table_lines
from tformer_cli.cli.labels import cut, is_ascii_only, isolated, sentence_lines, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.inspection.views.logits import Candidate, LensReading, LogitsRecord

FEWEST_CANDIDATES = 2
"""Candidates that tokens leave room for."""
LEAST_OF_CANDIDATE = 10
"""Cells of a candidate: a label of four, a gap, its probability."""


def show_logits(console: Console, record: "LogitsRecord") -> None:
    """Prints every position's candidates and, where it was asked for, the lens."""
    sentence = record.sentence
    name = "given target" if sentence.is_forced else "translation"
    rows = [("source", sentence.source), (name, sentence.target)]
    console.print(sentence_lines(console, rows))
    if not record.positions:
        return
    console.print()
    for line in _position_lines(console, record):
        console.print(line)
    if record.positions[0].lens:
        console.print()
        console.print(Text("logit lens: what each decoder layer would have written", style="bold"))
        for line in _lens_lines(console, record):
            console.print(line)
        legend = (
            "number: the probability of that token; bold: the token that was written; settled: the "
            "layer from which on it stays the most probable one"
        )
        console.print(Text(legend, style="dim"))


def _position_lines(console: Console, record: "LogitsRecord") -> list[Text]:
    """The tokens read and written with their measures, and as many candidates as there is room for.

    Labels make room for two candidates, candidates never take any from a measure.
    """
    is_ascii = is_ascii_only(console)
    positions = record.positions
    columns = [
        Column(
            head="read", cells=[shown(p.read, is_ascii=is_ascii) for p in positions], is_label=True
        ),
        _written(record, is_ascii),
        Column(head="p", cells=[f"{p.chosen.probability:.3f}" for p in positions]),
        Column(head="rank", cells=[f"{p.rank:,}" for p in positions]),
        Column(head="entropy", cells=[f"{p.entropy:.2f}" for p in positions]),
    ]
    n_asked = max(len(p.top) for p in positions)
    reserved = min(n_asked, FEWEST_CANDIDATES) * (LEAST_OF_CANDIDATE + GAP)
    widths = column_widths(columns, console.width - reserved)
    room = console.width - sum(widths) - GAP * len(columns)
    candidates = [_candidates(p.top, room, is_ascii) for p in positions]
    for place in (0, 1):
        cells = [cut(str(cell), widths[place], is_ascii=is_ascii) for cell in columns[place].cells]
        columns[place] = Column(head=columns[place].head, cells=cells, is_label=True)
    columns.append(
        Column(head="most probable", cells=[text for text, _ in candidates], at_left=True)
    )
    lines = table_lines(columns, console.width, n_repeated=2, is_ascii=is_ascii)
    legend = "p: probability of the token written; rank: 1 is the most probable; entropy in nats"
    n_fewest = min(n for _, n in candidates)
    if n_fewest < n_asked:
        legend += f"; at least {n_fewest} of {n_asked} candidates shown, --format jsonl has all"
    return [*lines, Text(legend, style="dim")]


def _written(record: "LogitsRecord", is_ascii: bool) -> Column:
    cells = [shown(p.chosen.piece, is_ascii=is_ascii) for p in record.positions]
    return Column(head="writes", cells=cells, is_label=True)


def _candidates(top: "Sequence[Candidate]", room: int, is_ascii: bool) -> tuple[Text, int]:
    """As many of the most probable tokens as have room whole, the first one in any case.

    Returns:
        The candidates, and how many they are.
    """
    line = Text()
    for number, named in enumerate(top):
        label, probability = shown(named.piece, is_ascii=is_ascii), f" {named.probability:.3f}"
        if number == 0:
            label = cut(label, max(1, room - len(probability)), is_ascii=is_ascii)
        gap = GAP if number else 0
        if number and line.cell_len + gap + cell_len(label) + len(probability) > room:
            return line, number
        line.append(" " * gap + isolated(label)).append(probability, "dim")
    return line, len(top)


def _lens_lines(console: Console, record: "LogitsRecord") -> list[Text]:
    """A column for each layer; layers that do not fit beside each other stand below."""
    is_ascii = is_ascii_only(console)
    positions = record.positions
    n_layers = len(positions[0].lens)
    settled = ["-" if p.first_layer is None else str(p.first_layer) for p in positions]
    columns = [_written(record, is_ascii), Column(head="settled", cells=settled)]
    room = console.width - sum(column.natural + GAP for column in columns)
    most = max(NARROWEST_LABEL, room // n_layers - GAP - len(" 0.00"))
    for place in range(n_layers):
        readings = [position.lens[place] for position in positions]
        cells = [_reading(one, most, is_ascii) for one in readings]
        columns.append(Column(head=f"layer {readings[0].layer}", cells=cells, at_left=True))
    return table_lines(columns, console.width, n_repeated=2, is_ascii=is_ascii)


def _reading(reading: "LensReading", most: int, is_ascii: bool) -> Text:
    label = cut(shown(reading.top.piece, is_ascii=is_ascii), most, is_ascii=is_ascii)
    style = "bold green" if reading.rank == 1 else ""
    return Text(f"{isolated(label)} {reading.top.probability:.2f}", style)
