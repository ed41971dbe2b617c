"""Heads summed up: over a corpus, over random tokens that come twice, or as aligners of words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tformer_cli.heads.roles import role_grid, signed_role
from tformer_cli.inspect.view import WITHOUT_SOURCE, NoOptions, View, with_half
from tformer_cli.show.delimited import delimited_lines
from tformer_cli.show.document import BLANK, Block, Room, Row, Table, Text, text
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tformer_cli.heads.names import Kind
    from tformer_cli.inspect.alignment import Convention
    from tformer_cli.inspect.heads.metrics import HeadSummary
    from tformer_cli.inspect.heads.repeats import Repeats
    from tformer_cli.metrics.alignment_error import AlignmentCounts

COLUMNS: dict[Kind, tuple[str, ...]] = {
    "enc": ("entropy", "confidence", "prev", "self", "next", "sink_eos"),
    "dec": ("entropy", "confidence", "prev", "self", "next", "sink_bos"),
    "cross": ("entropy", "confidence", "distance", "diagonality", "sink_eos"),
}
"""The metrics that fit a terminal; JSONL has all."""


@dataclass(frozen=True, kw_only=True)
class CorpusRecord:
    """The heads over a corpus."""

    summaries: Sequence[HeadSummary]  # The chosen heads; none where none meets the conditions
    rare_reason: str = ""  # Why no rare-word head was looked for; empty if they were


class CorpusView(View[CorpusRecord]):
    """Shows each head over all sentences."""

    name = "corpus"
    title = "Heads over a corpus"
    formats = ("text", "jsonl")

    def lines(self, record: CorpusRecord, options: NoOptions) -> Iterator[dict[str, Any]]:
        return (summary.describe() for summary in record.summaries)

    def blocks(self, record: CorpusRecord, options: NoOptions, room: Room) -> Iterator[Block]:
        from tformer_cli.heads.names import KIND_NAMES, KINDS
        from tformer_cli.metrics.resampling import RESAMPLES

        summaries = record.summaries
        if not summaries:
            return
        roles = {summary.head: summary.role for summary in summaries}
        yield from role_grid(roles, room, record.rare_reason)
        for kind in KINDS:
            of_kind = [summary for summary in summaries if summary.head.kind == kind]
            if of_kind:
                yield BLANK
                yield _table(KIND_NAMES[kind], of_kind, COLUMNS[kind], room)
        sentences = count_of(summaries[0].n_sentences, "sentence")
        yield text(
            f"{sentences}; entropy in nats; means over rows, with half the width of their 95 % "
            f"confidence intervals ({RESAMPLES:,} resamples of the sentences)",
            style="dim",
        )


def _table(title: str, summaries: Sequence[HeadSummary], names: Sequence[str], room: Room) -> Table:
    rows: list[Row] = [
        [
            str(summary.head),
            signed_role(summary.role, room),
            *(_cell(summary, name) for name in names),
        ]
        for summary in summaries
    ]
    return Table(title=title, head=("head", "role", *names), rows=rows, labels=(), texts=(0, 1))


def _cell(summary: HeadSummary, name: str) -> Text:
    if name not in summary.metrics:
        return Text()
    low, high = summary.intervals[name]
    return with_half(summary.metrics[name], low, high)


VIEW = CorpusView()


LEGEND = (
    "previous: weight on the token before; duplicate: on the same token in the first copy; "
    "induction: on the token after it there; first: on the first position. Means over the second "
    "copy, with half the width of their 95 % intervals; role: a score above 0.5"
)


class RepeatsView(View["Repeats"]):
    """Shows what heads look at by content."""

    name = "repeats"
    title = "Heads on repeated random tokens"
    formats = ("text", "jsonl")
    tasks = WITHOUT_SOURCE

    def lines(self, record: Repeats, options: NoOptions) -> Iterator[dict[str, Any]]:
        return (record.describe(head) for head in record.heads)

    def blocks(self, record: Repeats, options: NoOptions, room: Room) -> Iterator[Block]:
        from tformer_cli.inspect.heads.repeats import SCORES

        yield text(
            (record.model, "bold"),
            f"  {count_of(record.n_blocks, 'block')} of {record.length} random tokens, twice   "
            f"loss {record.losses[0]:.3f} and {record.losses[1]:.3f} nats per token",
        )
        rows: list[Row] = [
            [
                *(str(repeats.head), repeats.role),
                *(with_half(repeats.scores[name], *repeats.intervals[name]) for name in SCORES),
            ]
            for repeats in record.heads
        ]
        yield Table(head=("head", "role", *SCORES), rows=rows, labels=(), texts=(0, 1))
        yield text(LEGEND, style="dim")


REPEATS_VIEW = RepeatsView()


FLOOR, CEILING = "diagonal", "one-link"
SCHEMA = "tformer.aligned/1"
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
        "links": counts.n_links,
    }


class AlignmentView(View[AlignmentScores]):
    """Shows how well heads align."""

    name = "alignment"
    title = "Alignment scores"
    formats = ("text", "jsonl", "tsv", "csv")

    def lines(self, record: AlignmentScores, options: NoOptions) -> Iterator[str]:
        return (json.dumps({"schema": SCHEMA, **score}) for score in score_data(record))

    def blocks(self, record: AlignmentScores, options: NoOptions, room: Room) -> Iterator[Block]:
        records = score_data(record)
        conventions = list(dict.fromkeys(score["convention"] for score in records[:-2]))
        best, bounds = record.best, (FLOOR, CEILING)
        names = list(dict.fromkeys(score["id"] for score in records))
        by_place = {(score["id"], score["convention"]): score for score in records}
        head, rows = ["heads"], [[name] for name in names]
        for place, convention in enumerate(conventions):
            prefix = f"{convention} " if convention else ""
            head += [f"{prefix}{letter}" for letter in ("AER", "P", "R")]
            for row in rows:
                # a bound has no convention: it stands with the first
                is_bound = row[0] in bounds and place == 0
                score = by_place.get((row[0], None if is_bound else convention), {})
                row += [f"{score[measure]:.1f}" if score else "" for measure in MEASURES]
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
            f"percent; {FLOOR}: links by position only; {CEILING}: the best with one link for "
            "each target word",
            style="dim",
        )

    def file(self, record: AlignmentScores, output_format: str, options: Any = None) -> str:
        rows = (KEYS, *(tuple(row.values()) for row in score_data(record)))
        return "".join(f"{line}\n" for line in delimited_lines(rows, output_format))


ALIGNMENT_VIEW = AlignmentView()
