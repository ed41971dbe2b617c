"""The computation of one head for one token, in steps: tables of numbers, formulas, checks.

Twelve steps, from the input of the layer to the chosen word. The numbers of each are recomputed
(`trace`); checks keep their distance from the numbers that the model itself computed
(`observed`). The renderings only lay this out.

Also here: how a token is named, which heads and tokens are worth working through, and the blanks
of a worksheet (`worksheet` chooses them). Every number that equals a blank's is hidden with it,
anywhere in a table.
"""

from __future__ import annotations

import math
import re
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tformer_cli.errors import Setting, UsageError
from tformer_cli.heads.names import KINDS, HeadId
from tformer_cli.inspect.sentence_record import SentenceRecord
from tformer_cli.wording import SPACE_LABEL, is_blank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.inspect.record import HeadsRecord

SCHEMA = "tformer.step/1"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Subject of a walk-through: a head and a token of a sentence."""

    sentence: HeadsRecord  # A sentence that was inspected and is not blank
    head: HeadId
    row: int
    output_labels: tuple[str, ...]  # (V) the label of every token of the vocabulary
    key: int | None = None  # The worked example; None: the heaviest visible one

    @property
    def query(self) -> str:
        """The token that the query is made of: in the decoder the one that was read."""
        sentence = self.sentence
        read = sentence.source_pieces if self.head.kind == "enc" else sentence.input_pieces
        return read[self.row]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.sentence.column_labels(self.head.kind)

    @property
    def n_visible(self) -> int:
        """Number of keys the query may see: in the decoder's self-attention, none after it."""
        return self.row + 1 if self.head.kind == "dec" else len(self.keys)

    @property
    def worked_key(self) -> int:
        """The key that is worked out; of the heaviest ones the first."""
        if self.key is None:
            row = self.sentence.captured.weights(self.head)[self.row]
            return int(row[: self.n_visible].argmax())
        if not 0 <= self.key < self.n_visible:
            raise ValueError(f"the query sees the keys 0 to {self.n_visible - 1}, not {self.key}")
        return self.key


@dataclass(frozen=True)
class Table:
    """Numbers with a label for each row."""

    name: str  # Name of the table where steps are data
    caption: str
    rows: tuple[str, ...]
    values: Tensor  # (rows, columns) float64; −∞ is a masked cell
    _: KW_ONLY
    columns: tuple[str, ...] = ()  # A label for each column; none: components, counted from 0
    share_column: int | None = None  # The column that holds shares of 1, which can be drawn as bars
    marked_row: int | None = None  # The row that it is all about
    is_detail: bool = False  # Omitted where there is little room


@dataclass(frozen=True, kw_only=True)
class Check:
    """A comparison of recomputed numbers with the model's own."""

    what: str
    difference: float  # max |recomputed − model's|, divided by max |model's| where that is above 1


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the computation."""

    number: int = 0  # Its place among the steps; 0 is the input
    name: str
    title: str
    formulas: tuple[str, ...]  # How, as formulas: ``_`` begins a subscript that ends with the word
    says: str
    worked: str = ""
    tables: tuple[Table, ...]
    checks: tuple[Check, ...] = ()

    @property
    def difference(self) -> float | None:
        """The largest difference of all checks; None if there is nothing to compare with."""
        return max((check.difference for check in self.checks), default=None)


@dataclass(frozen=True, kw_only=True, repr=False)
class StepRecord(SentenceRecord):
    """The steps of one head for one token of a sentence."""

    sentence: HeadsRecord  # The sentence, its translation and its maps
    head: HeadId
    row: int
    key: int  # The key that is worked out as an example
    norm: str  # Place of the model's norms: "pre" or "post"
    steps: tuple[Step, ...]
    quiz: Quiz | None = None  # The blanks of a worksheet; None shows everything
    with_answers: bool = True  # False if a worksheet's answers are kept elsewhere

    @property
    def hidden(self) -> Quiz:
        """The blanks of the worksheet, if it is one."""
        return self.quiz or Quiz(())

    @property
    def token(self) -> str:
        """The label of the row: the token itself, in the decoder the one that it predicts."""
        return self.sentence.row_labels(self.head.kind)[self.row]

    @property
    def where(self) -> str:
        if self.head.kind == "enc":
            unit = "patch" if self.sentence.is_image else "source token"
            return f"{unit} {self.row}, {self.token}"
        read = self.sentence.input_pieces[self.row]
        return f"decoder position {self.row}, which has read {read} and predicts {self.token}"

    @property
    def key_piece(self) -> str:
        return self.sentence.column_labels(self.head.kind)[self.key]

    @property
    def example(self) -> str:
        weight = self.sentence.captured.weights(self.head)[self.row, self.key].item()
        return f"key {self.key}, {self.key_piece}, with weight {weight:.3f}"

    @property
    def difference(self) -> float:
        return max(step.difference or 0.0 for step in self.steps)

    def table(self, name: str) -> Table:
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


_BYTE = re.compile(rb"<0x([0-9A-F]{2})>")
_OCCURRENCE = re.compile(r"(.+)#([1-9]\d{0,5})", re.DOTALL)
_POSITION = re.compile(r"-?\d{1,6}")


def find_token(wanted: str, pieces: Sequence[str], setting: str = "token") -> int:
    """Finds the position that ``it``, ``it#2`` (the second of them), ``6`` or ``-1`` names.

    A text names a piece, a word, or any run of pieces that spells it; whole words come before parts
    of words, the same case before another. Of several pieces the first is meant. A number is a
    position from 0, or from the end if it is negative, unless the sentence has it as a token.
    """
    for text, number in _readings(wanted):
        places = _starts(text, pieces)
        if number <= len(places):
            return places[number - 1]
    if _POSITION.fullmatch(wanted) and -len(pieces) <= int(wanted) < len(pieces):
        return int(wanted) % len(pieces)
    listed = ", ".join(f"{place} {piece}" for place, piece in enumerate(pieces))
    raise UsageError.of(
        '{}: "{}" matches no token; the tokens are {}', Setting(setting), wanted, listed
    )


def _readings(wanted: str) -> list[tuple[str, int]]:
    """Typed text and the number of its occurrence; a ``#`` may belong to the text."""
    match = _OCCURRENCE.fullmatch(wanted)
    return [(wanted, 1), *([(match[1], int(match[2]))] if match else [])]


def _starts(text: str, pieces: Sequence[str]) -> list[int]:
    """Runs of pieces that spell a text: the best kind of match that there is."""
    if is_blank(text):
        return []
    spelled = [_text_of(piece) for piece in pieces]
    for fold in (str, str.casefold):
        spans = [
            (start, stop)
            for start in range(len(pieces))
            if (stop := _run_end(fold(text.strip()), [fold(s) for s in spelled], start))
        ]
        whole = [start for start, stop in spans if _is_whole(spelled, start, stop)]
        if spans:
            return whole or [start for start, _ in spans]
    return []


def _run_end(text: str, spelled: Sequence[str], start: int) -> int | None:
    """End of the run of pieces from `start` on that spells a text, if there is one."""
    run = ""
    for stop in range(start, len(spelled)):
        run += spelled[stop]
        # Bytes of one character may come from several pieces: they are read together.
        whole = run.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        if whole.strip() == text:
            return stop + 1
        if len(run.lstrip()) > 4 * len(text):
            return None
    return None


def _is_whole(spelled: Sequence[str], start: int, stop: int) -> bool:
    """Returns whether no letter or digit touches a run of pieces on either side."""
    before = spelled[start - 1][-1:] if start and not spelled[start].startswith(" ") else ""
    after = spelled[stop][:1] if stop < len(spelled) else ""
    return not before.isalnum() and not after.isalnum()


def _text_of(piece: str) -> str:
    """The text of a label; bytes that are not characters by themselves become surrogates."""
    raw = piece.replace(SPACE_LABEL, " ").encode("utf-8", "surrogateescape")
    spelled = _BYTE.sub(lambda match: bytes([int(match[1], 16)]), raw)
    return spelled.decode("utf-8", "surrogateescape")


EXAMPLE_WEIGHT = 0.7  # The largest weight of a row that is good to work out by hand; ours
EXAMPLE_LETTERS = 3  # Letters of a token that people know as a word; ours


def row_of(token: str, labels: Sequence[str]) -> int | None:
    try:
        return find_token(token, labels)
    except UsageError:
        return None


def first_heads(record: HeadsRecord) -> tuple[HeadId, ...]:
    return tuple(head for kind in reversed(KINDS) for head in record.order_heads(kind)[:1])


def example_row(record: HeadsRecord, head: HeadId) -> int:
    """Finds a row of a head that makes a good example: one key wins and others still count.

    It is the row whose largest weight on a word is nearest to `EXAMPLE_WEIGHT`. Begin and end of
    sentence are not words, either as a row's name or as a key. Rows named by at least
    `EXAMPLE_LETTERS` letters come first. A sentence with nothing else has its first row. For a text
    with gaps, it is the first gap's.
    """
    if record.gaps:
        return record.gaps[0].position
    weights = record.captured.weights(head)
    first_row, first_key = (1, 1) if head.kind == "dec" else (0, 0)
    last_key = weights.shape[1] if head.kind == "dec" else weights.shape[1] - 1
    words = weights[first_row:-1, first_key:last_key]
    if words.size == 0:
        return 0
    distances = abs(words.max(axis=1) - EXAMPLE_WEIGHT)
    labels = record.row_labels(head.kind)[first_row:-1]
    is_short = [sum(map(str.isalpha, label)) < EXAMPLE_LETTERS for label in labels]
    return first_row + int((distances + is_short).argmin())


_CLOSE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Blank:
    """One number to find."""

    number: int  # Its number on the worksheet, from 1
    step: int
    what: str
    value: float
    answer: float  # What the printed digits give, to as many digits


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
