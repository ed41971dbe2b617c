"""The heads of a model summed up over a corpus, with the roles of all and confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tformer_cli.inspection.figures.role_grid import role_grid, sign_of
from tformer_cli.inspection.view import NoOptions, View
from tformer_cli.show.terminal import Column, is_ascii_only, print_lines, table_lines
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from tformer_cli.inspection.capture.heads import Kind
    from tformer_cli.inspection.heads.statistics import HeadSummary

COLUMNS: dict[Kind, tuple[str, ...]] = {
    "enc": ("entropy", "confidence", "prev", "self", "next", "sink_eos"),
    "dec": ("entropy", "confidence", "prev", "self", "next", "sink_bos"),
    "cross": ("entropy", "confidence", "distance", "diagonality", "sink_eos"),
}
"""The metrics that fit a terminal; JSONL has all."""


@dataclass(frozen=True, kw_only=True)
class CorpusRecord:
    """The heads over a corpus."""

    summaries: Sequence[HeadSummary]
    """The chosen heads; none where none meets the conditions."""
    rare_reason: str = ""
    """Reason why no rare-word head could be found; empty if they were looked for."""


def show_summaries(
    console: Console, summaries: Sequence[HeadSummary], rare_reason: str = ""
) -> None:
    """Prints the roles of all heads, then their metrics with half the width of each interval."""
    from tformer_cli.inspection.capture.heads import KIND_NAMES, KINDS
    from tformer_cli.inspection.heads.statistics import RESAMPLES

    is_ascii = is_ascii_only(console)
    roles = {summary.head: summary.role for summary in summaries}
    console.print(role_grid(console, roles, rare_reason))
    for kind in KINDS:
        found = [summary for summary in summaries if summary.head.kind == kind]
        if found:
            console.print()
            console.print(Text(KIND_NAMES[kind], style="bold"))
            print_lines(console, _table_lines(console, found, COLUMNS[kind], is_ascii))
    sentences = count_of(summaries[0].n_sentences, "sentence")
    console.print(
        f"{sentences}; entropy in nats; means over rows, with half the width of their 95 % "
        f"confidence intervals ({RESAMPLES:,} resamples of the sentences)",
        style="dim",
    )


def _table_lines(
    console: Console, summaries: Sequence[HeadSummary], names: Sequence[str], is_ascii: bool
) -> list[Text]:
    roles = [
        Text.assemble(sign_of(summary.role, is_ascii=is_ascii), f" {summary.role}")
        for summary in summaries
    ]
    columns = [
        Column("head", [str(summary.head) for summary in summaries], at_left=True),
        Column("role", roles, at_left=True),
        *(Column(n, [_cell(s, n, is_ascii) for s in summaries]) for n in names),
    ]
    return table_lines(columns, console.width)


def _cell(summary: HeadSummary, name: str, is_ascii: bool) -> Text:
    if name not in summary.metrics:
        return Text("")
    low, high = summary.intervals[name]
    sign = "+-" if is_ascii else "±"
    half = f"{(high - low) / 2:.2f}".removeprefix("0")
    return Text.assemble(f"{summary.metrics[name]:.2f}", (f"{sign}{half}", "dim"))


class CorpusView(View[CorpusRecord]):
    """Shows each head over all sentences."""

    name = "corpus"
    title = "Heads over a corpus"
    formats = ("text", "jsonl")

    def lines(self, record: CorpusRecord, options: NoOptions) -> Iterator[dict[str, Any]]:
        return (summary.describe() for summary in record.summaries)

    def text(self, console: Console, record: CorpusRecord, options: NoOptions) -> None:
        if record.summaries:
            show_summaries(console, record.summaries, record.rare_reason)


VIEW = CorpusView()
