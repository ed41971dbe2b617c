"""Heads summed up with intervals: over a corpus, or over random tokens that come twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tformer_cli.heads.roles import role_grid, signed
from tformer_cli.inspect.view import NoOptions, View, with_half
from tformer_cli.show.document import BLANK, Block, Room, Row, Table, Text, text
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tformer_cli.heads.names import Kind
    from tformer_cli.inspect.heads.metrics import HeadSummary
    from tformer_cli.inspect.heads.repeats import Repeats

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
        from tformer_cli.inspect.heads.metrics import RESAMPLES

        summaries = record.summaries
        if not summaries:
            return
        roles = {summary.head: summary.role for summary in summaries}
        yield from role_grid(roles, room, record.rare_reason)
        for kind in KINDS:
            found = [summary for summary in summaries if summary.head.kind == kind]
            if found:
                yield BLANK
                yield _table(KIND_NAMES[kind], found, COLUMNS[kind], room)
        sentences = count_of(summaries[0].n_sentences, "sentence")
        yield text(
            f"{sentences}; entropy in nats; means over rows, with half the width of their 95 % "
            f"confidence intervals ({RESAMPLES:,} resamples of the sentences)",
            style="dim",
        )


def _table(title: str, summaries: Sequence[HeadSummary], names: Sequence[str], room: Room) -> Table:
    rows: list[Row] = [
        [str(one.head), signed(one.role, room), *(_cell(one, name) for name in names)]
        for one in summaries
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
    tasks = ("language-model",)

    def lines(self, record: Repeats, options: NoOptions) -> Iterator[dict[str, Any]]:
        return (record.describe(one) for one in record.heads)

    def blocks(self, record: Repeats, options: NoOptions, room: Room) -> Iterator[Block]:
        from tformer_cli.inspect.heads.repeats import SCORES

        yield text(
            (record.model, "bold"),
            f"  {count_of(record.n_blocks, 'block')} of {record.length} random tokens, twice   "
            f"loss {record.losses[0]:.3f} and {record.losses[1]:.3f} nats per token",
        )
        rows: list[Row] = [
            [
                *(str(one.head), one.role),
                *(with_half(one.scores[name], *one.intervals[name]) for name in SCORES),
            ]
            for one in record.heads
        ]
        yield Table(head=("head", "role", *SCORES), rows=rows, labels=(), texts=(0, 1))
        yield text(LEGEND, style="dim")


REPEATS_VIEW = RepeatsView()
