"""The report of a distillation as tables, for the terminal and the page."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from tformer_cli.evaluation.comparison.report import Cell, Section, Table, sections_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.workflows.distillation.report import (
        DistillationReport,
        Selected,
        SystemReport,
    )

TITLE = "Teacher and student"
_MB = 1e6


def sections_of_report(report: DistillationReport) -> list[Section]:
    """Makes the sections: the systems and what the student has read, then the comparisons."""
    tables = [_sizes(report.systems), _speeds(report)]
    if any(one.ranks for one in report.selected):
        tables.append(_choices([one for one in report.selected if one.ranks]))
    return [Section(title="Systems", tables=tuple(tables)), *sections_of(report.test_sets)]


def _sizes(systems: Sequence[SystemReport]) -> Table:
    rows = tuple(
        (
            Cell(one.name),
            Cell(", ".join(one.models)),
            Cell(f"{one.n_parameters:,}"),
            Cell(one.weight_type),
            Cell(f"{one.weight_bytes / _MB:.2f}"),
            Cell(f"{one.total_bytes / _MB:.2f}"),
        )
        for one in systems
    )
    return Table(
        title="Size",
        head=("System", "Directory", "Parameters", "Type", "Weights MB", "All files MB"),
        rows=rows,
    )


def _speeds(report: DistillationReport) -> Table:
    first = report.systems[0].name
    rows = tuple(
        (
            Cell(one.name),
            Cell(f"{one.beam_size}{', shortlist' if one.has_shortlist else ''}"),
            Cell(f"{one.lines_per_second:,.1f}"),
            Cell(f"{one.speed_ratio:.2f}×"),
            Cell(f"{one.processor_ratio:.2f}×"),
            Cell(f"{1000 * one.latency_p50:.1f}"),
            Cell(f"{one.peak_memory / _MB:,.0f}"),
        )
        for one in report.systems
    )
    return Table(
        title="Speed",
        head=("System", "Beam", "Lines/s", "Speed", "Processor", "A line ms", "Memory MB"),
        rows=rows,
        note=(
            f"{report.n_lines:,} lines in {report.rounds} rounds, the systems in turns. Speed: as "
            f"a multiple of the {first}'s; Processor: the {first}'s processor time as a multiple; "
            "medians of the rounds' ratios. A line: translated alone."
        ),
    )


def _choices(selected: Sequence[Selected]) -> Table:
    """Counts which of the teacher's translations were chosen."""
    n_ranks = max(len(one.ranks) for one in selected)
    rows = tuple(
        (
            Cell(one.corpus),
            Cell(f"{one.pairs:,}"),
            *(
                Cell(f"{count / max(one.pairs, 1):.1%}")
                for count, _ in zip_longest(one.ranks, range(n_ranks), fillvalue=0)
            ),
        )
        for one in selected
    )
    return Table(
        title="Chosen of the teacher's translations",
        head=("Corpus", "Pairs", *(f"Rank {rank}" for rank in range(1, n_ranks + 1))),
        rows=rows,
    )
