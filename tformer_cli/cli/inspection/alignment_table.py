"""The scores of every head as an aligner: a table, JSONL or TSV."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.evaluation.alignment_error import AlignmentCounts
    from tformer_cli.workflows.inspection.score_alignment import AlignmentScores

FLOOR, CEILING = "diagonal", "one-link"
MEASURES = ("aer", "precision", "recall")
KEYS = ("id", "convention", *MEASURES, "links")


def score_lines(scores: "AlignmentScores", form: str) -> list[str]:
    """Renders scores as lines of "jsonl" or "tsv"; rates are in percent."""
    records = _records(scores)
    if form == "jsonl":
        return [json.dumps(record) for record in records]
    rows = [KEYS, *([_cell(record[key]) for key in KEYS] for record in records)]
    return ["\t".join(row) for row in rows]


def show_scores(console: "Console", scores: "AlignmentScores") -> None:
    """Prints a table with a row for each head and layer, and the bounds below it."""
    from rich.text import Text

    from tformer_cli.terminal.fitted_table import Column, table_lines

    records = _records(scores)
    conventions = list(dict.fromkeys(record["convention"] for record in records[:-2]))
    best = scores.best
    names = list(dict.fromkeys(record["id"] for record in records))
    found = {(record["id"], record["convention"]): record for record in records}
    columns = [Column(head="heads", cells=names, at_left=True)]
    for place, convention in enumerate(conventions):
        for measure, letter in zip(MEASURES, ("AER", "P", "R"), strict=True):
            head = f"{convention} {letter}" if convention else letter
            cells = []
            for name in names:
                # a bound has no convention: it stands with the first
                is_bound = name in (FLOOR, CEILING) and place == 0
                record = found.get((name, None if is_bound else convention))
                cells.append("" if record is None else f"{record[measure]:.1f}")
            columns.append(Column(head=head, cells=cells))
    styles = [
        "bold" if name == best.name else "dim" if name in (FLOOR, CEILING) else "" for name in names
    ]
    for line in table_lines(columns, console.width, styles=styles):
        console.print(line)
    console.print()
    read = f" ({best.convention})" if best.convention else ""
    console.print(
        Text(
            f"best: {best.name}{read}. Alignment error rate (AER), precision (P) and recall (R) in "
            f"percent; {FLOOR}: links by position alone; {CEILING}: the best with one link for "
            "each target word",
            style="dim",
        )
    )


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
