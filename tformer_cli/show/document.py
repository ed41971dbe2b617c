"""A result for people: sections of tables, notes, sentences and pictures, whatever draws them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    is_best: bool = False
    """True for the best value of its kind."""
    anchor: str = ""
    """Anchor of the sentences that the cell refers to."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, the first column of which names the rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """A line below it, such as the signature."""
    remark: str = ""
    texts: tuple[int, ...] = (0,)
    """Columns that hold texts; the others hold numbers."""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence with its translations, or an example with its parts."""

    heading: str
    texts: tuple[tuple[str, str], ...]
    """Names and texts: source, references, systems."""


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """Sentences under a heading."""

    heading: str
    sentences: tuple[Sentence, ...]
    text: str = ""
    anchor: str = ""


@dataclass(frozen=True, kw_only=True)
class Note:
    """Lines under a heading: a list, or commands to be copied."""

    title: str
    lines: tuple[str, ...]
    is_code: bool = False


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture with a caption."""

    png: bytes
    caption: tuple[str, ...]
    """Lines; the first names the picture."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a document, such as all results on one test set."""

    title: str
    tables: tuple[Table, ...] = ()
    notes: tuple[Note, ...] = ()
    sentences: tuple[Sentences, ...] = ()
    pictures: tuple[tuple[Picture, ...], ...] = ()
    legend: str = ""
    """Meaning of the columns; renderers show the first section's legend above everything."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A titled result; the same document gives the same bytes in every format."""

    title: str
    sections: Sequence[Section]

    @property
    def legend(self) -> str:
        return self.sections[0].legend if self.sections else ""
