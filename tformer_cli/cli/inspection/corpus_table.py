"""The heads of a model over a corpus: a table for people, JSONL for programs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tformer_cli.inspection.figures.role_grid import role_grid, sign_of
from tformer_cli.inspection.json_lines import json_line
from tformer_cli.terminal.fitted_table import Column, table_lines
from tformer_cli.terminal.labels import is_ascii_only
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.inspection.capture.heads import Kind
    from tformer_cli.inspection.heads.statistics import HeadSummary

COLUMNS: dict["Kind", tuple[str, ...]] = {
    "enc": ("entropy", "confidence", "prev", "self", "next", "sink_eos"),
    "dec": ("entropy", "confidence", "prev", "self", "next", "sink_bos"),
    "cross": ("entropy", "confidence", "distance", "diagonality", "sink_eos"),
}
"""The metrics that fit a terminal; JSONL has all."""


def summary_lines(summaries: "Sequence[HeadSummary]") -> list[str]:
    """Renders a line of JSON for each head."""
    return [json_line(summary.describe()) for summary in summaries]


def show_summaries(
    console: Console, summaries: "Sequence[HeadSummary]", rare_reason: str = ""
) -> None:
    """Prints the roles of all heads, then their metrics with half the width of each interval.

    Args:
        console: where to.
        summaries: the heads, at least one.
        rare_reason: why no rare-word head could be found; empty if they were looked for.
    """
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
            for line in _table_lines(console, found, COLUMNS[kind], is_ascii):
                console.print(line)
    sentences = count_of(summaries[0].n_sentences, "sentence")
    console.print(
        f"{sentences}; entropy in nats; means over rows, with half the width of their 95 % "
        f"confidence intervals ({RESAMPLES:,} resamples of the sentences)",
        style="dim",
    )


def _table_lines(
    console: Console, summaries: "Sequence[HeadSummary]", names: Sequence[str], is_ascii: bool
) -> list[Text]:
    roles = [
        Text.assemble(sign_of(summary.role, is_ascii=is_ascii), f" {summary.role}")
        for summary in summaries
    ]
    columns = [
        Column(head="head", cells=[str(summary.head) for summary in summaries], at_left=True),
        Column(head="role", cells=roles, at_left=True),
        *(Column(head=n, cells=[_cell(s, n, is_ascii) for s in summaries]) for n in names),
    ]
    return table_lines(columns, console.width)


def _cell(summary: "HeadSummary", name: str, is_ascii: bool) -> Text:
    if name not in summary.metrics:
        return Text("")
    low, high = summary.intervals[name]
    sign = "+-" if is_ascii else "±"
    half = f"{(high - low) / 2:.2f}".removeprefix("0")
    return Text.assemble(f"{summary.metrics[name]:.2f}", (f"{sign}{half}", "dim"))
