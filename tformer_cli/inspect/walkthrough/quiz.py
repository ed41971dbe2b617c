"""A worksheet: some numbers of a walk-through become blanks that follow from what is left.

Every number that equals a blank's is hidden with it, wherever it stands in a table, and no blank is
a number that a sentence or an example tells, so that nothing gives the answer away.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tformer_cli.inspect.walkthrough.step import StepRecord, Table

BLANKS_A_TABLE = 2
"""Blanks in each table that has some."""
FIRST_COMPONENTS = range(1, 5)
"""Components that may be blanks: they are shown everywhere, and 0 is the worked example."""
SMALLEST_SHARE = 0.005
"""Smaller shares round to 0 and would teach nothing."""
_CLOSE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Blank:
    """One number to find."""

    number: int
    """Its number on the worksheet, from 1."""
    step: int
    what: str
    value: float


@dataclass(frozen=True)
class Quiz:
    """The blanks of a worksheet."""

    blanks: tuple[Blank, ...]

    def blank_of(self, value: float) -> Blank | None:
        """Finds the blank that hides a number, if one does; a masked −∞ is never hidden."""
        if math.isinf(value):
            return None
        for blank in self.blanks:
            if abs(blank.value - value) <= _CLOSE * max(1.0, abs(value)):
                return blank
        return None


def make_quiz(record: StepRecord, seed: int) -> Quiz:
    """Chooses blanks; the same seed chooses the same ones."""
    chance = random.Random(seed)
    blanks: list[Blank] = []
    for step in record.steps:
        for table in step.tables:
            cells = list(_cells(table))
            for row, column in sorted(chance.sample(cells, min(BLANKS_A_TABLE, len(cells)))):
                value = table.values[row, column].item()
                if Quiz(tuple(blanks)).blank_of(value) is None:
                    what = f"{table.caption}: {table.rows[row]}, {_column_name(table, column)}"
                    number = len(blanks) + 1
                    blanks.append(Blank(number=number, step=step.number, what=what, value=value))
    return Quiz(tuple(blanks))


def answer_key(record: StepRecord) -> str:
    """Writes a worksheet's answers, a line each: number, answer, step and which number it is."""
    blanks = () if record.quiz is None else record.quiz.blanks
    heading = f"# {record.head}, {record.where}\n"
    lines = (f"{b.number}\t{b.value:.3f}\tstep {b.step}\t{b.what}\n" for b in blanks)
    return heading + "".join(lines)


def _cells(table: Table) -> Iterator[tuple[int, int]]:
    """The cells of a table that can be blanks; none of most tables.

    Of the tables by key the marked row, and everywhere component 0, are worked out as examples; the
    largest scaled score and the chosen word's probability, whose row is marked, are told.
    """
    n_rows, n_columns = table.values.shape
    others = [row for row in range(n_rows) if row != table.marked_row]
    last = table.values[:, -1]
    components = [c for c in FIRST_COMPONENTS if c < n_columns]
    if table.name == "scaled":
        yield from ((r, 1) for r in others if last[r].isfinite() and last[r] < last.max())
    elif table.name in ("weights", "words"):
        yield from ((r, 2) for r in others if last[r] >= SMALLEST_SHARE)
    elif table.name == "weighted":
        yield from ((r, c) for r in others for c in components if table.values[r, c] != 0)
    elif table.name in ("z", "residual"):
        rows = (0,) if table.name == "z" else sorted({2, n_rows - 1})
        yield from ((r, c) for r in rows for c in components)


def _column_name(table: Table, column: int) -> str:
    return table.columns[column] if table.columns else f"component {column}"
