"""Tables of separated values in any dialect: the place of each cell, so that other bytes stay.

The reader of the standard library returns values without their places, so quotes, blanks and line
ends of unchanged cells would be lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

DELIMITERS = ",;\t|"
LOOKED_AT = 200
"""Records by which a dialect is recognized."""
HEADER_RECORDS = 20
"""Records that may hold the column names: titles may come before them."""
_NAMED_DELIMITER = re.compile(r"sep=(.)(?:\r\n|\n|\r)", re.IGNORECASE)
"""First line that tells Excel the delimiter."""


class Cell(NamedTuple):
    """Places of a cell in a text, without its quotes."""

    start: int
    end: int
    is_quoted: bool
    fault: Literal["", "open", "behind"]
    """open: its quote does not end. behind: text follows its quote."""
    after: int
    """The start of the next cell, or record."""


@dataclass(frozen=True)
class Dialect:
    """Separator and quoting of cells."""

    delimiter: str
    quote: str = '"'
    """Empty: no character quotes."""
    escapes: bool = False
    r"""True: \" is a quote in quotes; otherwise it is "" there."""

    @cached_property
    def _cell(self) -> re.Pattern[str]:
        d, q = re.escape(self.delimiter), re.escape(self.quote)
        escape, escaped = (r"\\", r"|\\(?:.|\Z)") if self.escapes else ("", "")
        plain = rf"(?P<plain>(?:[^{d}\r\n{escape}]++{escaped})*+)"
        end = rf"(?P<end>{d}|\r\n|\n|\r|\Z)"
        if not self.quote:
            return re.compile(plain + end, re.DOTALL)
        # Possessive: else each quote that does not end would be looked at from all its places
        inner = rf"(?P<inner>(?:[^{q}{escape}]++|{q}{q}{escaped})*+)"
        return re.compile(rf"(?:\ *{q}{inner}{q}(?P<behind>[^{d}\r\n]*+)|{plain}){end}", re.DOTALL)

    def records(self, text: str, place: int = 0) -> Iterator[list[Cell]]:
        """Yields the cells of each record; an empty line has an empty cell."""
        while place < len(text):
            cells: list[Cell] = []
            is_last = False
            while not is_last:
                match = self._cell.match(text, place)
                if match is None:  # no text is without a match
                    raise AssertionError(place)
                cells.append(self._make_cell(match))
                place, is_last = match.end(), match["end"] != self.delimiter
            yield cells

    def _make_cell(self, match: re.Match[str]) -> Cell:
        if self.quote and match["inner"] is not None:
            is_whole = not match["behind"].strip()
            return Cell(*match.span("inner"), True, "" if is_whole else "behind", match.end())
        is_open = self.quote and match["plain"].lstrip(" ").startswith(self.quote)
        return Cell(*match.span("plain"), False, "open" if is_open else "", match.end())

    def decode_cell(self, raw: str, *, is_quoted: bool) -> str:
        """Reads the text of a cell."""
        twice = rf"|{self.quote}(?={self.quote})" if is_quoted else ""
        if self.escapes:
            return re.sub(rf"\\(.){twice}", lambda match: match[1] or "", raw, flags=re.DOTALL)
        return raw.replace(self.quote * 2, self.quote) if is_quoted else raw

    def has_codes(self, raw: str) -> bool:
        r"""Returns whether a cell has escapes such as \n, which programs read in different ways."""
        return self.escapes and re.search(r"\\\w", raw) is not None

    def in_quotes(self, text: str) -> str:
        """Writes quoted text."""
        if self.escapes:
            return text.replace("\\", r"\\").replace(self.quote, "\\" + self.quote)
        return text.replace(self.quote, self.quote * 2)

    def write_cell(self, text: str, before: str = "") -> str:
        """Writes a cell that was without quotes; it gets some if the text needs them."""
        if not self.quote:
            return re.sub(rf"[{re.escape(self.delimiter)}\r\n]", " ", text)
        special = {self.delimiter, self.quote, "\r", "\n", *("\\" * self.escapes)}
        if self.quote in before and not text.lstrip(" ").startswith(self.quote):
            special.remove(self.quote)  # within a cell it is a character
        if not special.intersection(text):
            return text
        return f"{self.quote}{self.in_quotes(text)}{self.quote}"


def start_of(text: str) -> tuple[int, str]:
    """Returns where the records begin, and the delimiter if a line before them names it."""
    match = _NAMED_DELIMITER.match(text)
    return (match.end(), match[1]) if match else (0, "")


def header_of(
    text: str, dialect: Dialect, names: AbstractSet[str], start: int
) -> tuple[int, int] | None:
    """Finds the record that has some names, below titles with fewer cells.

    Returns its place and the number of records above it.
    """
    most, place = 0, start
    for number, cells in enumerate(islice(dialect.records(text, start), HEADER_RECORDS)):
        raw = ((text[cell.start : cell.end], cell.is_quoted) for cell in cells)
        texts = [in_one_line(dialect.decode_cell(cell, is_quoted=quoted)) for cell, quoted in raw]
        n_texts = sum(map(bool, texts))
        if n_texts > most and names <= set(texts):
            return place, number
        most, place = max(most, n_texts), cells[-1].after
    return None


def in_one_line(name: str) -> str:
    """Writes the name of a column in one line, in which headers may have several."""
    return " ".join(name.split())


def dialect_of(
    text: str, delimiters: str = DELIMITERS, names: AbstractSet[str] = frozenset()
) -> Dialect:
    """Recognizes the dialect in which most records have as many cells as the first.

    A dialect with the named columns comes first, if there is one; among equals, the first delimiter
    of the list wins.
    """
    start, named = start_of(text)
    dialects = [
        Dialect(delimiter, quote, escapes)
        for delimiter in named or delimiters
        for quote in ('"', "'")
        for escapes in (False, True)[: 1 + ("\\" in text)]
    ]
    # In text between tabs a quote may be a character like all others
    dialects += [Dialect("\t", "")] * ("\t" in (named or delimiters))

    def fit(dialect: Dialect) -> tuple[object, ...]:
        header = header_of(text, dialect, names, start) if names else None
        return header is not None, *_fit(dialect, text, header[0] if header else start)

    return max(dialects, key=fit)


def _fit(dialect: Dialect, text: str, start: int) -> tuple[bool, float, int, int, bool]:
    """Measures how well a dialect fits."""
    n_columns = n_good = n_quoted = n = 0
    for cells in islice(dialect.records(text, start), LOOKED_AT):
        if len(cells) == 1 and not text[cells[0].start : cells[0].end].strip():
            continue
        n += 1
        n_columns = n_columns or len(cells)
        n_quoted += sum(cell.is_quoted for cell in cells)
        n_good += len(cells) == n_columns and not any(cell.fault for cell in cells)
        if any(cell.fault == "open" for cell in cells):
            break  # each next one would be looked for until the end
    if dialect.quote == "'" and not n_quoted:
        return False, 0.0, 0, 0, False
    # A quote after a backslash may also end a cell: "C:\"
    d, q = re.escape(dialect.delimiter), re.escape(dialect.quote)
    has_escape = dialect.escapes and re.search(rf"\\{q}(?![{d}\r\n]|\Z)", text) is not None
    return n_columns > 1, n_good / max(n, 1), n_columns, n_quoted, has_escape
