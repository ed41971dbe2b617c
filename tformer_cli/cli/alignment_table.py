"""The scores of every head as an aligner: a table, JSONL or TSV."""

import json
from typing import TYPE_CHECKING, Any

from tformer_cli.cli.console import utf8_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tformer_cli.evaluation.alignment_error import AlignmentCounts
    from tformer_cli.workflows.score_alignment import AlignmentScores

FLOOR, CEILING = "diagonal", "one-link"
MEASURES = ("aer", "precision", "recall")
KEYS = ("id", "convention", *MEASURES, "links")


def rendered_scores(scores: "AlignmentScores", form: str) -> bytes:
    """Renders scores as "jsonl" or "tsv"; rates are in percent."""
    records = _records(scores)
    if form == "jsonl":
        return b"".join(utf8_line(json.dumps(record)) for record in records)
    rows = [KEYS, *([_cell(record[key]) for key in KEYS] for record in records)]
    return b"".join(utf8_line("\t".join(row)) for row in rows)


def show_scores(console: "Console", scores: "AlignmentScores") -> None:
    """Prints a table with a row for each head and layer, and the bounds below it."""
    records = _records(scores)
    conventions = list(dict.fromkeys(record["convention"] for record in records[:-2]))
    best = scores.best
    table = _table(conventions)
    for name in dict.fromkeys(record["id"] for record in records):
        found = {r["convention"]: r for r in records if r["id"] == name}
        is_bound = name in (FLOOR, CEILING)
        cells = [
            f"{found[key][measure]:.1f}" if key in found else ""
            for key in ([None] if is_bound else conventions)
            for measure in MEASURES
        ]
        table.add_row(
            name,
            *cells,
            style="bold" if name == best.name else "dim" if is_bound else "",
            end_section=name == records[-3]["id"],
        )
    console.print(table)
    read = f" ({best.convention})" if best.convention else ""
    console.print(
        f"best: {best.name}{read}. AER, precision, recall in percent; {FLOOR}: links by position "
        f"alone; {CEILING}: the best with one link a target word",
        style="dim",
    )


def _table(conventions: list[str | None]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("heads", no_wrap=True)
    for convention in conventions:
        table.add_column(f"{convention} AER" if convention else "AER", justify="right")
        table.add_column("P", justify="right")
        table.add_column("R", justify="right")
    return table


def _records(scores: "AlignmentScores") -> list[dict[str, Any]]:
    return [
        *(_record(score.name, score.convention, score.counts) for score in scores.scores),
        _record(FLOOR, None, scores.floor),
        _record(CEILING, None, scores.ceiling),
    ]


def _record(name: str, convention: str | None, counts: "AlignmentCounts") -> dict[str, Any]:
    rates = (counts.error_rate, counts.precision, counts.recall)
    return {
        "id": name,
        "convention": convention,
        **{measure: round(100 * rate, 2) for measure, rate in zip(MEASURES, rates, strict=True)},
        "links": counts.found,
    }


def _cell(value: object) -> str:
    return "" if value is None else str(value)
