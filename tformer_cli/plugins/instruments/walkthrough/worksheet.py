"""Worksheets: some numbers of a walk-through become blanks that follow from what is left.

No blank is a number that a sentence or an example contains, so that nothing gives the answer away.
Each is large enough to be worth computing, and whoever computes it from the printed digits gets the
printed digits of the answer: rounding makes some cells unfit. A softmax weight is always among
them, so a worksheet needs a row of a map with more than one weight; `worksheet_places` finds some.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from tformer_cli.heads.names import KINDS
from tformer_cli.plugins.instruments.walkthrough.step import (
    EXAMPLE_LETTERS,
    Blank,
    Quiz,
    StepRecord,
    Table,
    find_token,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from tformer_cli.heads.names import HeadId
    from tformer_cli.inspect.record import HeadsRecord

BLANKS_A_TABLE = 2  # Blanks in each table that has some
FIRST_COMPONENTS = range(1, 5)  # May be blanks: shown everywhere; 0 is the example
SMALLEST = 0.05  # Size of a blank at least: smaller ones teach nothing
SMALLEST_WEIGHT = 0.005  # Of a row in which only one weight is larger
DIGITS = 3  # Decimal places of printed numbers
BEST_WEIGHT, MOST_KEYS = 0.5, 8  # Of a good row: its largest weight, and keys that fit on paper
Place = tuple["HeadId", int]


def make_quiz(record: StepRecord, seed: int) -> Quiz:
    chance = random.Random(seed)
    blanks: list[Blank] = []
    for step in record.steps:
        for table in step.tables:
            cells = list(_fit_cells(record, table))
            for row, column, answer in sorted(
                chance.sample(cells, min(BLANKS_A_TABLE, len(cells)))
            ):
                value = table.values[row, column].item()
                if Quiz(tuple(blanks)).blank_of(value) is None:
                    what = f"{table.caption}: {table.rows[row]}, {_column_name(table, column)}"
                    number = len(blanks) + 1
                    blanks.append(
                        Blank(
                            number=number, step=step.number, what=what, value=value, answer=answer
                        )
                    )
    return Quiz(tuple(blanks))


def has_weight(record: StepRecord) -> bool:
    """True if a softmax weight is among the blanks; a row with only one weight has none."""
    softmax = next(step.number for step in record.steps if step.name == "softmax")
    return any(blank.step == softmax for blank in record.hidden.blanks)


def answer_key(record: StepRecord, sheet: int | None = None) -> str:
    """Writes the answers of a worksheet, of several with its number."""
    number = "" if sheet is None else f"worksheet {sheet}: "
    heading = f"# {number}{record.head}, {record.where}\n"
    lines = (f"{b.number}\t{b.answer:.3f}\tstep {b.step}\t{b.what}\n" for b in record.hidden.blanks)
    return heading + "".join(lines)


def worksheet_places(record: HeadsRecord, head: HeadId | None, token: str) -> list[Place]:
    """Ranks the heads and rows that make a worksheet: those with several weights first.

    Among these, tokens that people know as words, few keys, and a largest weight near one half.
    """
    heads = [head] if head else [h for kind in reversed(KINDS) for h in record.order_heads(kind)]
    ranked: list[tuple[tuple[float, ...], Place]] = []
    for number, each in enumerate(heads):
        labels, weights = record.row_labels(each.kind), record.captured.weights(each)
        first = 1 if each.kind == "dec" else 0
        rows = range(first, max(first + 1, len(labels) - 1))
        if token:
            named = find_token(token, labels) if head else row_of(token, labels)
            rows = range(0) if named is None else range(named, named + 1)
        for row in rows:
            visible = [weight for weight in weights[row].tolist() if weight > 0]
            largest = max(visible)
            n_others = sum(weight >= SMALLEST for weight in visible) - 1
            is_short = sum(map(str.isalpha, labels[row])) < EXAMPLE_LETTERS
            order = (-min(n_others, 3), is_short, len(visible) > MOST_KEYS)
            ranked.append(((*order, abs(largest - BEST_WEIGHT), number), (each, row)))
    if not ranked:
        find_token(token, record.row_labels(record.first_head().kind))
    return _other_tokens_first([place for _, place in sorted(ranked)])


def _other_tokens_first(places: Sequence[Place]) -> list[Place]:
    """Moves further heads of a token behind the first head of every token."""
    first: dict[tuple[str, int], Place] = {}
    for head, row in places:
        first.setdefault((head.kind, row), (head, row))
    return [*first.values(), *(place for place in places if place not in first.values())]


def _fit_cells(record: StepRecord, table: Table) -> Iterator[tuple[int, int, float]]:
    """Yields the cells of a table that can be blanks, each with its answer."""
    answers = [
        (row, column, _round_off(_compute(record, table, row, column)))
        for row, column in _cells(table)
    ]
    exact = [
        (row, column, answer)
        for row, column, answer in answers
        if abs(table.values[row, column]) >= SMALLEST
        and answer == _round_off(table.values[row, column].item())
        and (table.name != "weighted" or _is_fit_weight(record, row))
    ]
    if table.name == "weights" and not exact and answers:
        # a weight is always among them: the largest
        exact = [max(answers, key=lambda cell: cell[2])]
    yield from exact


def _is_fit_weight(record: StepRecord, row: int) -> bool:
    """True if the weight of a key, perhaps a blank, is the same from printed digits."""
    weights = record.table("weights")
    computed = _compute(record, weights, row, 2)
    return _round_off(computed) == _round_off(weights.values[row, 2].item())


def _cells(table: Table) -> Iterator[tuple[int, int]]:
    """Yields the cells that can be computed from other numbers; most tables have none.

    Of the tables by key the marked row, and everywhere component 0, are worked out as examples; the
    largest scaled score and the chosen word's probability, whose row is marked, are told.
    """
    n_rows, n_columns = table.values.shape
    others = [row for row in range(n_rows) if row != table.marked_row]
    last = table.values[:, -1]
    components = [c for c in FIRST_COMPONENTS if c < n_columns]
    if table.name == "scaled":
        yield from (
            (r, n_columns - 1) for r in others if last[r].isfinite() and last[r] < last.max()
        )
    elif table.name in ("weights", "words"):
        yield from ((r, 2) for r in others if last[r] >= SMALLEST_WEIGHT)
    elif table.name == "weighted":
        yield from ((r, c) for r in others for c in components if table.values[r, c] != 0)
    elif table.name in ("z", "residual"):
        rows = (0,) if table.name == "z" else sorted({2, n_rows - 1})
        yield from ((r, c) for r in rows for c in components)
    elif table.name == "feed_forward":
        yield from ((table.rows.index("r"), c) for c in components)


def _compute(record: StepRecord, table: Table, row: int, column: int) -> float:
    """Computes a cell from the printed digits of the numbers that it follows from."""
    values = table.values
    if table.name == "scaled":
        return _scale(record, table, row)
    if table.name in ("weights", "words"):
        total = values[:, 1].sum().item() if table.name == "weights" else _total(values, row)
        digits = DIGITS if table.name == "weights" else DIGITS + 1  # as its sentence tells it
        return _round_off(values[row, 1].item()) / round(total, digits)
    if table.name == "weighted":
        weight = record.table("weights").values[row, -1].item()
        return _round_off(weight) * _round_off(record.table("v").values[row, column].item())
    if table.name == "z":
        return sum(map(_round_off, record.table("weighted").values[:, column].tolist()))
    numbers = [_round_off(value) for value in values[:, column].tolist()]
    if table.name == "residual" and row > 2:  # the norm: what is standardized, γ and maybe β
        standardized, scale, *shift = numbers[3:row]
        return standardized * scale + sum(shift)
    first = 0 if table.name == "feed_forward" else row - 2
    return numbers[first] + numbers[row - 1]


def _total(values: Tensor, row: int) -> float:
    """Σ e of all words, of which a table has only some: e / p."""
    return (values[row, 1] / values[row, 2]).item()


def _scale(record: StepRecord, table: Table, row: int) -> float:
    """Scales a printed score as the step tells it, and adds the printed terms."""
    score, *terms, scaled = table.values[row].tolist()
    factor = (scaled - sum(terms)) / score if score else 0.0
    root = math.sqrt(record.table("q").values.shape[1])
    is_root = math.isclose(factor * root, 1.0, rel_tol=1e-6)
    factor = 1.0 / round(root, 4) if is_root else float(f"{factor:.4g}")
    return _round_off(score) * factor + sum(map(_round_off, terms))


def _round_off(value: float) -> float:
    return float(f"{value:z.{DIGITS}f}")


def _column_name(table: Table, column: int) -> str:
    return table.columns[column] if table.columns else f"component {column}"
