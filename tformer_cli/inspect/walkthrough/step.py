"""The computation of one head for one token, told in steps: tables of numbers, formulas, checks.

Eleven steps, from the input of the layer to the word that is chosen. What each one shows is
recomputed (`trace`); how far it is from what the model itself computed (`observed`) is kept as
checks. The renderings only lay this out.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.heads.names import HeadId
    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.inspect.walkthrough.quiz import Quiz

SCHEMA = "tformer.step/1"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Subject of a walk-through: a head and a token of a sentence."""

    sentence: HeadsRecord
    """A sentence that was inspected and is not blank."""
    head: HeadId
    row: int
    output_labels: tuple[str, ...]
    """(V) the label of every token of the vocabulary."""
    key: int | None = None
    """The key that is worked out as an example; None: the heaviest that the query may see."""

    @property
    def query(self) -> str:
        """The token that the query is made of: in the decoder the one that was read."""
        sentence = self.sentence
        read = sentence.source_pieces if self.head.kind == "enc" else sentence.input_pieces
        return read[self.row]

    @property
    def keys(self) -> tuple[str, ...]:
        """The tokens that keys and values are made of."""
        return self.sentence.column_labels(self.head.kind)

    @property
    def n_visible(self) -> int:
        """Number of keys the query may see: in the decoder's self-attention none behind it."""
        return self.row + 1 if self.head.kind == "dec" else len(self.keys)

    @property
    def worked_key(self) -> int:
        """The key that is worked out; of the heaviest ones the first."""
        if self.key is None:
            row = self.sentence.captured.weights(self.head)[self.row, : self.n_visible].tolist()
            return row.index(max(row))
        if not 0 <= self.key < self.n_visible:
            raise ValueError(f"the query sees the keys 0 to {self.n_visible - 1}, not {self.key}")
        return self.key


@dataclass(frozen=True)
class Table:
    """Numbers with a label for each row."""

    name: str
    """Name of the table where steps are data."""
    caption: str
    rows: tuple[str, ...]
    values: Tensor
    """(rows, columns) float64; −∞ is a masked cell."""
    _: KW_ONLY
    columns: tuple[str, ...] = ()
    """A label for each column; none: components, counted from 0."""
    share_column: int | None = None
    """The column that holds shares of 1, which can be drawn as bars."""
    marked_row: int | None = None
    """The row that it is all about."""
    is_detail: bool = False
    """True if it is there for completeness: omitted where there is little room."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A comparison of recomputed numbers with the model's own."""

    what: str
    difference: float
    """max |recomputed − model's|, divided by max |model's| where that is above 1."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the computation."""

    number: int
    """Its number; 0 is the input."""
    name: str
    title: str
    formulas: tuple[str, ...]
    """How, as formulas: ``_`` begins a subscript that ends with the word."""
    says: str
    worked: str = ""
    tables: tuple[Table, ...]
    checks: tuple[Check, ...] = ()

    @property
    def difference(self) -> float | None:
        """The largest difference of all checks; None if there is nothing to compare with."""
        return max((check.difference for check in self.checks), default=None)


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """The steps of one head for one token of a sentence."""

    sentence: HeadsRecord
    """The sentence, its translation and its maps."""
    head: HeadId
    row: int
    key: int
    """The key that is worked out as an example."""
    norm: str
    """Place of the model's norms: "pre" or "post"."""
    steps: tuple[Step, ...]
    quiz: Quiz | None = None
    """The blanks of a worksheet; None shows everything."""
    with_answers: bool = True
    """False if a worksheet's answers are kept elsewhere."""

    @property
    def token(self) -> str:
        """The label of the row: the token itself, in the decoder the one that it predicts."""
        return self.sentence.row_labels(self.head.kind)[self.row]

    @property
    def where(self) -> str:
        """Describes which position is looked at."""
        if self.head.kind == "enc":
            unit = "patch" if self.sentence.is_image else "source token"
            return f"{unit} {self.row}, {self.token}"
        read = self.sentence.input_pieces[self.row]
        return f"decoder position {self.row}, which has read {read} and predicts {self.token}"

    @property
    def key_piece(self) -> str:
        """The label of the key that is worked out."""
        return self.sentence.column_labels(self.head.kind)[self.key]

    @property
    def example(self) -> str:
        """Describes which key is worked out, and its weight."""
        weight = self.sentence.captured.weights(self.head)[self.row, self.key].item()
        return f"key {self.key}, {self.key_piece}, with weight {weight:.3f}"

    @property
    def difference(self) -> float:
        """The largest difference of all steps' checks."""
        return max(step.difference or 0.0 for step in self.steps)

    def table(self, name: str) -> Table:
        """Finds a table by its name."""
        for step in self.steps:
            for table in step.tables:
                if table.name == name:
                    return table
        raise KeyError(name)


def check(what: str, recomputed: Tensor, models: Tensor) -> Check:
    """Compares recomputed numbers with the model's own.

    Float32 numbers have seven digits, so that large ones are compared by their size.
    """
    largest = max(1.0, models.abs().max().item())
    return Check(what=what, difference=(recomputed - models).abs().max().item() / largest)
