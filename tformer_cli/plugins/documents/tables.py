"""CSV and TSV tables: translates some columns; all other cells keep their bytes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tformer_cli.documents.segments import (
    Document,
    ReadSettings,
    Segment,
    SegmentBuilder,
    Slot,
    TextDocument,
    add_message,
    decode_file,
)
from tformer_cli.errors import DataError, UsageError
from tformer_cli.text.csv_records import (
    DELIMITERS,
    Cell,
    Dialect,
    dialect_of,
    header_of,
    in_one_line,
    start_of,
)
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHOWN = 40
"""Maximum number of column names in an error message, and of characters in each."""
_NULL = r"\N"
"""Null values, as databases write them."""
_FORMULA = re.compile(r"=[A-Z$('\"@+-]|=\d+[-+*/]", re.IGNORECASE)
_LONGER = "row with more cells than the header"


def list_names(names: Iterable[str]) -> str:
    """Lists names for an error message."""
    names = list(names)
    return ", ".join(in_one_line(name)[:_SHOWN] for name in names[:_SHOWN]) + ", …" * (
        len(names) > _SHOWN
    )


def choose_columns(names: Sequence[str], settings: ReadSettings) -> list[int]:
    """Returns the indices of the requested columns, given by name or by number from 1."""
    names = [in_one_line(name) for name in names]
    columns = list_names(names) if settings.has_header else f"a number from 1 to {len(names)}"
    if not settings.columns:
        raise no_columns(settings, columns)
    chosen: list[int] = []
    for name in map(in_one_line, settings.columns):
        if settings.has_header and names.count(name) > 1:
            places = " and ".join(str(n) for n, header in enumerate(names, 1) if header == name)
            raise UsageError.of(
                "{column}: {} has {} in columns {}; choose one by its number",
                *(settings.name, name, places),
            )
        if settings.has_header and name in names:
            chosen.append(names.index(name))
        elif name.isascii() and name.isdigit() and 0 < int(name) <= len(names):
            chosen.append(int(name) - 1)
        else:
            raise missing_column(name, names, columns, settings)
    return sorted(set(chosen))


def no_columns(settings: ReadSettings, columns: str) -> UsageError:
    """Returns the error for a table whose columns are not chosen."""
    return UsageError.of(
        "{}: is a table, not lines of text; add {column} NAME for each column to translate: {}",
        *(settings.name, columns),
    )


def missing_column(
    name: str, names: Sequence[str], columns: str, settings: ReadSettings
) -> UsageError:
    """Returns the error for a column that a table lacks."""
    near = get_close_matches(name, names, n=1) if settings.has_header else []
    advice = f"did you mean {near[0]}?" if near else f"its columns are: {columns or 'none'}"
    return UsageError.of("{column}: {} has no column {}; {}", settings.name, name, advice)


def read_csv(data: bytes, settings: ReadSettings) -> Document:
    return _read(data, settings, DELIMITERS)


def read_tsv(data: bytes, settings: ReadSettings) -> Document:
    return _read(data, settings, "\t,;|")


@dataclass(frozen=True, slots=True)
class _PlainSlot(Slot):
    """A cell without quotes; its translation may need them."""

    dialect: Dialect = field(kw_only=True)

    def write(self, translated: Segment | None) -> str:
        text = Slot.write(self, translated)
        return text if text is self.raw else self.dialect.write_cell(text, self.raw)


def _read(data: bytes, settings: ReadSettings, delimiters: str) -> Document:
    text, encoding = decode_file(data, settings)
    wanted = set(map(in_one_line, settings.columns if settings.has_header else ()))
    wanted = {name for name in wanted if not name.isdigit()}
    dialect, (start, _) = dialect_of(text, delimiters, wanted), start_of(text)
    header = header_of(text, dialect, wanted, start) if wanted else None
    start, n_above = header or (start, 0)
    skipped: Counter[str] = Counter()
    parts: list[str | Slot] = []
    names: list[str] | None = None
    columns: list[int] = []
    place = 0
    for number, cells in enumerate(dialect.records(text, start), n_above + 1):
        for cell in cells:
            if cell.fault == "open":
                line = text.count("\n", 0, cell.start) + 1
                raise DataError(
                    f"{settings.name}:{line}: a cell starts with a quote ({dialect.quote}) but "
                    "does not end with one; double the quotes in it, or close it"
                )
        texts = [text[cell.start : cell.end] for cell in cells]
        if all(map(is_blank, texts)):
            continue
        if names is None:
            names = [
                dialect.decode_cell(raw, is_quoted=cell.is_quoted)
                for raw, cell in zip(texts, cells, strict=True)
            ]
            columns = choose_columns(names, settings)
            if settings.has_header:
                continue
        elif settings.has_header and not all(map(is_blank, texts[len(names) :])):
            # Its cells may belong to other columns
            skipped[_LONGER] += any(not is_blank(raw) for raw in texts)
            continue
        for column in columns:
            if column >= len(cells) or is_blank(texts[column]):
                continue
            cell, raw = cells[column], texts[column]
            if raw == _NULL:
                continue
            if dialect.has_codes(raw):
                skipped["cell with escapes such as \\n"] += 1
            elif _FORMULA.match(raw):
                skipped["cell that a formula computes"] += 1
            elif cell.fault:
                skipped["cell with text behind its quote"] += 1
            else:
                name = in_one_line(names[column]) if settings.has_header else f"column {column + 1}"
                parts += (
                    text[place : cell.start],
                    _slot(f"row {number}, {name}", raw, cell, dialect),
                )
                place = cell.end
    document = TextDocument([*parts, text[place:]], encoding)
    document.skipped.update(skipped)
    return document


def _slot(context: str, raw: str, cell: Cell, dialect: Dialect) -> Slot:
    escape = dialect.in_quotes if cell.is_quoted else str
    builder = SegmentBuilder(context)
    add_message(builder, dialect.decode_cell(raw, is_quoted=cell.is_quoted), builder.text, escape)
    segment = builder.build()
    if cell.is_quoted:
        return Slot(segment, raw, escape)
    return _PlainSlot(segment, raw, dialect=dialect)
