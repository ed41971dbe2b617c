"""The heads of a model over a corpus: a table for people, JSONL for programs."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tformer_cli.cli.console import utf8_line
from tformer_cli.cli.role_grid import role_grid, sign_of
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.inspection.head_statistics import HeadSummary
    from tformer_cli.inspection.heads import Kind

COLUMNS: dict["Kind", tuple[str, ...]] = {
    "enc": ("entropy", "confidence", "prev", "self", "next", "sink_eos"),
    "dec": ("entropy", "confidence", "prev", "self", "next", "sink_bos"),
    "cross": ("entropy", "confidence", "distance", "diagonality", "sink_eos"),
}
"""The metrics that fit a terminal; JSONL has all."""


def rendered_summaries(summaries: "Sequence[HeadSummary]") -> bytes:
    """Renders a line of JSON for each head."""
    return b"".join(
        utf8_line(json.dumps(summary.describe(), ensure_ascii=False, separators=(",", ":")))
        for summary in summaries
    )


def show_summaries(
    console: Console, summaries: "Sequence[HeadSummary]", rare_reason: str = ""
) -> None:
    """Prints the roles of all heads, then their metrics with half the width of each interval.

    Args:
        console: where to.
        summaries: the heads, at least one.
        rare_reason: why no rare-word head could be found; empty if they were looked for.
    """
    from tformer_cli.inspection.head_statistics import RESAMPLES
    from tformer_cli.inspection.heads import KIND_NAMES, KINDS

    is_ascii = not console.encoding.lower().startswith("utf")
    roles = {summary.head: summary.role for summary in summaries}
    console.print(role_grid(roles, is_ascii=is_ascii, rare_reason=rare_reason))
    for kind in KINDS:
        found = [summary for summary in summaries if summary.head.kind == kind]
        if found:
            console.print()
            console.print(Text(KIND_NAMES[kind], style="bold"))
            console.print(_table(found, COLUMNS[kind], is_ascii))
    sentences = count_of(summaries[0].n_sentences, "sentence")
    console.print(
        f"{sentences}; means over rows, with half of their 95 % "
        f"intervals ({RESAMPLES:,} resamples of sentences)",
        style="dim",
    )


def _table(summaries: "Sequence[HeadSummary]", columns: Sequence[str], is_ascii: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("head", no_wrap=True)
    table.add_column("role", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for summary in summaries:
        role = Text.assemble(sign_of(summary.role, is_ascii=is_ascii), f" {summary.role}")
        cells = [_cell(summary, name, is_ascii) for name in columns]
        table.add_row(str(summary.head), role, *cells)
    return table


def _cell(summary: "HeadSummary", name: str, is_ascii: bool) -> Text:
    if name not in summary.metrics:
        return Text("")
    low, high = summary.intervals[name]
    sign = "+-" if is_ascii else "±"
    half = f"{(high - low) / 2:.2f}".removeprefix("0")
    return Text.assemble(f"{summary.metrics[name]:.2f}", (f"{sign}{half}", "dim"))
