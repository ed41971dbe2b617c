"""The distributions of a sentence on a terminal."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tformer_cli.cli.step_view import ASCII
from tformer_cli.data.labels import visible

if TYPE_CHECKING:
    from tformer_cli.inspection.logits import LogitsRecord, PositionLogits


def show_logits(console: Console, record: "LogitsRecord") -> None:
    """Prints every position's candidates and, where it was asked for, the lens."""
    is_ascii = not console.encoding.lower().startswith("utf")

    def plain(text: str) -> str:
        text = visible(text)
        return text.translate(ASCII) if is_ascii else text

    sentence = record.sentence
    console.print(Text(plain(f"source       {sentence.source}")))
    name = "given target" if sentence.is_forced else "translation "
    console.print(Text(plain(f"{name} {sentence.target}")))
    if not record.positions:
        return
    console.print()
    table = _grid("read", "writes", "p", "rank", "entropy", "most probable")
    for position in record.positions:
        table.add_row(*(Text(plain(text)) for text in _cells(position)))
    console.print(table)
    if record.positions[0].lens:
        layers = [f"layer {reading.layer}" for reading in record.positions[0].lens]
        lens = _grid("writes", *layers, "first from")
        for position in record.positions:
            lens.add_row(*(Text(plain(text), style) for text, style in _lens_cells(position)))
        console.print()
        console.print(Text("logit lens: what each layer would have written", style="bold"))
        console.print(lens)


def _grid(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        is_number = column in ("p", "rank", "entropy", "first from")
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    return table


def _cells(position: "PositionLogits") -> tuple[str, ...]:
    chosen = position.chosen
    return (
        position.read,
        chosen.piece,
        f"{chosen.probability:.3f}",
        str(position.rank),
        f"{position.entropy:.2f}",
        "  ".join(f"{named.piece} {named.probability:.3f}" for named in position.top),
    )


def _lens_cells(position: "PositionLogits") -> list[tuple[str, str]]:
    readings = [
        (f"{r.top.piece} {r.top.probability:.2f}", "bold green" if r.rank == 1 else "")
        for r in position.lens
    ]
    first = "-" if position.first_layer is None else str(position.first_layer)
    return [(position.chosen.piece, ""), *readings, (first, "")]
