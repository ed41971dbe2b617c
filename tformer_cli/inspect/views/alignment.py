"""The scores of every head as an aligner, against gold alignments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tformer_cli.inspect.view import NoOptions, View
from tformer_cli.show.document import BLANK, Block, Room, Table, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.inspect.alignment import Convention
    from tformer_cli.metrics.alignment_error import AlignmentCounts

FLOOR, CEILING = "diagonal", "one-link"
MEASURES = ("aer", "precision", "recall")
KEYS = ("id", "convention", *MEASURES, "links")


@dataclass(frozen=True, kw_only=True)
class AlignmentScore:
    """Score of one way of aligning."""

    name: str  # The heads, of several the mean; or how two directions were joined
    convention: Convention | None  # The row of a target token; None: not compared
    counts: AlignmentCounts  # Counts that its measures are computed from


@dataclass(frozen=True, kw_only=True)
class AlignmentScores:
    """Compared scores, and their bounds."""

    scores: list[AlignmentScore]  # Every way of aligning, at least one
    floor: AlignmentCounts  # Links along the diagonal, which know nothing but the lengths
    ceiling: AlignmentCounts  # The best that one link a target word can reach

    @property
    def best(self) -> AlignmentScore:
        """The lowest alignment error rate; of equal ones the first."""
        return min(self.scores, key=lambda score: score.counts.error_rate)


def score_data(scores: AlignmentScores) -> list[dict[str, Any]]:
    return [
        *(_record(score.name, score.convention, score.counts) for score in scores.scores),
        _record(FLOOR, None, scores.floor),
        _record(CEILING, None, scores.ceiling),
    ]


def _record(name: str, convention: str | None, counts: AlignmentCounts) -> dict[str, Any]:
    rates = (counts.error_rate, counts.precision, counts.recall)
    return {
        "id": name,
        "convention": convention,
        **{measure: round(100 * rate, 2) for measure, rate in zip(MEASURES, rates, strict=True)},
        "links": counts.found,
    }


class AlignmentView(View[AlignmentScores]):
    """Shows how well heads align."""

    name = "alignment"
    title = "Alignment scores"
    formats = ("text", "jsonl", "tsv")

    def lines(self, record: AlignmentScores, options: NoOptions) -> Iterator[str]:
        return map(json.dumps, score_data(record))

    def blocks(self, record: AlignmentScores, options: NoOptions, room: Room) -> Iterator[Block]:
        records = score_data(record)
        conventions = list(dict.fromkeys(one["convention"] for one in records[:-2]))
        best, bounds = record.best, (FLOOR, CEILING)
        names = list(dict.fromkeys(one["id"] for one in records))
        found = {(one["id"], one["convention"]): one for one in records}
        head, rows = ["heads"], [[name] for name in names]
        for place, convention in enumerate(conventions):
            prefix = f"{convention} " if convention else ""
            head += [f"{prefix}{letter}" for letter in ("AER", "P", "R")]
            for row in rows:
                # a bound has no convention: it stands with the first
                is_bound = row[0] in bounds and place == 0
                one = found.get((row[0], None if is_bound else convention), {})
                row += [f"{one[measure]:.1f}" if one else "" for measure in MEASURES]
        yield Table(
            head=tuple(head),
            rows=rows,
            labels=(),
            texts=(0,),
            row_styles=["bold" * (n == best.name) or "dim" * (n in bounds) for n in names],
        )
        yield BLANK
        read = f" ({best.convention})" if best.convention else ""
        yield text(
            f"best: {best.name}{read}. Alignment error rate (AER), precision (P) and recall (R) in "
            f"percent; {FLOOR}: links by position alone; {CEILING}: the best with one link for "
            "each target word",
            style="dim",
        )

    def file(self, record: AlignmentScores, output_format: str) -> str:
        cells = (["" if v is None else str(v) for v in row.values()] for row in score_data(record))
        return "".join("\t".join(row) + "\n" for row in (KEYS, *cells))


VIEW = AlignmentView()
