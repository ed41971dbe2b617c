"""A result for people: blocks, and sections of them, whatever draws them."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY

from tformer_cli.settings import dataclass


class Label(str):
    """A text that keeps its direction: its neighbors stay in their places."""

    __slots__ = ()


# Words, not codes: a medium may ignore a style, and no text commands a terminal, a page or LaTeX.
Span = str | tuple[str, str]
"""A text, or a text with its style: bold, dim, italic, underline, a color."""


@dataclass(frozen=True)
class Text:
    """A paragraph, or a cell with more than one style."""

    spans: tuple[Span, ...] = ()
    style: str = ""
    _: KW_ONLY
    indent: int = 0
    wraps: bool = True


def text(*spans: Span, style: str = "") -> Text:
    return Text(spans, style)


BLANK = Text()


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    is_best: bool = False
    """True for the best value of its kind."""
    anchor: str = ""
    """Anchor of the sentences that the cell refers to."""


Row = list[Cell | Text | str]


def plain_text(cell: Cell | Text | str) -> str:
    """A cell without its styles."""
    if isinstance(cell, Text):
        return "".join(span if isinstance(span, str) else span[0] for span in cell.spans)
    return cell.text if isinstance(cell, Cell) else cell


def styled_spans(cell: Cell | Text | str) -> list[tuple[str, str]]:
    """Texts of a cell, each with all words of its style; "not dim" takes back the cell's "dim"."""
    if not isinstance(cell, Text):
        return [(plain_text(cell), "bold green" if isinstance(cell, Cell) and cell.is_best else "")]
    pairs = ((span, "") if isinstance(span, str) else span for span in cell.spans)
    return [
        (words, style.replace("not dim", "").strip() if "not" in style else f"{cell.style} {style}")
        for words, style in pairs
    ]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; columns hold numbers unless declared otherwise."""

    title: str = ""
    head: tuple[str, ...]
    rows: Sequence[Sequence[Cell | Text | str]]
    note: str = ""
    """A line below it, such as the signature."""
    remark: str = ""
    """A sentence below that."""
    labels: tuple[int, ...] = (0,)
    """Columns of labels, which may be cut where there is little room."""
    texts: tuple[int, ...] = ()
    """Columns of texts, which are aligned like labels."""
    row_styles: Sequence[str] = ()
    n_repeated: int = 1
    """Leading columns that are repeated where a table is continued."""
    gap: int = 2


@dataclass(frozen=True)
class Texts:
    """Sentences, each with its name."""

    sentences: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Facts:
    """Rows of cells without a heading; the last cell may take several lines."""

    rows: Sequence[Sequence[Text | str]]


@dataclass(frozen=True, kw_only=True)
class Map:
    """A heat map of shares of `largest`, or of signed numbers."""

    kind: str
    """The kind of head whose colors it has: "enc", "dec" or "cross"."""
    labels: tuple[Sequence[str], Sequence[str]]
    """Labels of the rows and of the columns."""
    title: str = ""
    values: Sequence[Sequence[float]]
    largest: float = 1.0
    is_signed: bool = False
    wider: str = "use a wider terminal or --format html"
    """Advice about columns that have no room."""
    wraps: bool = False
    taller: str = ""
    """Advice about rows that a screen has no room for; empty: all rows are shown."""


@dataclass(frozen=True)
class SideBySide:
    """Tables or maps next to each other, as many as fit, each below its title."""

    blocks: Sequence[Table | Map]


@dataclass(frozen=True)
class Field:
    """Numbers from 0 to 1, a character each, below each other."""

    kind: str
    values: Sequence[Sequence[float]]


Block = Text | Table | SideBySide | Texts | Facts | Map | Field


@dataclass(frozen=True, kw_only=True)
class Room:
    """Room and abilities of the medium that blocks are for."""

    width: int
    """Cells of a line."""
    is_ascii: bool = False
    has_color: bool = False
    is_screen: bool = False


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
    summary: str = ""
    tables: tuple[Table, ...] = ()
    notes: tuple[Note, ...] = ()
    sentences: tuple[Sentences, ...] = ()
    pictures: tuple[tuple[Picture, ...], ...] = ()
    legend: str = ""
    """Meaning of the columns; renderers show the first section's legend above everything."""

    def blocks(self) -> Iterator[Block]:
        """Yields its title, tables and sentences; without notes and pictures."""
        yield text((self.title, "bold"))
        if self.summary:
            yield text(self.summary)
        for table in self.tables:
            yield from (BLANK, table)
        for group in self.sentences:
            yield from (BLANK, text((group.heading, "bold")))
            for sentence in group.sentences:
                yield from (BLANK, text(sentence.heading), Texts(sentence.texts))


@dataclass(frozen=True, kw_only=True)
class Document:
    """A titled result; the same document gives the same bytes in every format."""

    title: str
    sections: Sequence[Section]

    @property
    def legend(self) -> str:
        return self.sections[0].legend if self.sections else ""
