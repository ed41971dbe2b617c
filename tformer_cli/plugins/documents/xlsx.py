"""Excel: translates some columns; formulas, styles and all other parts keep their bytes.

Most texts are in a part with shared strings, and cells refer to them by number. A string shared
with a cell outside the columns is copied, so that the other cell does not change.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tformer_cli.errors import UsageError
from tformer_cli.plugins.documents.archives import Archive, ArchiveDocument
from tformer_cli.plugins.documents.office import Dialect, RunReader
from tformer_cli.plugins.documents.tables import list_names, missing_column, no_columns
from tformer_cli.plugins.documents.xml_text import (
    Element,
    Piece,
    Source,
    Unit,
    XmlDocument,
    build_unit,
    decode_text,
    parse_xml,
)
from tformer_cli.text.csv_records import in_one_line
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tformer_cli.documents.segments import Document, ReadSettings, Segment

NAMESPACES = {
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main": "x",
    "http://purl.oclc.org/ooxml/spreadsheetml/main": "x",
    "http://schemas.openxmlformats.org/package/2006/relationships": "",
}
_RUNS = Dialect(
    paragraphs=frozenset({"x:si", "x:is"}),
    plain=frozenset(),
    skipped=frozenset(),
    runs=frozenset({"x:r"}),
    texts=frozenset({"x:t"}),
    dropped=frozenset({"x:rPh", "x:phoneticPr"}),
)
_HEADER_ROWS = 20
"""Number of rows with text searched for column names: titles may come before them."""
_PLACE = re.compile(r"([A-Z]{1,3})([0-9]{1,7})")
_CODE = re.compile(r"_x[0-9A-Fa-f]{4}_")
"""An escaped character that XML does not allow."""
_RETURN = "_x000D_"
"""A carriage return; with a line feed after it, one line end, as in Windows."""


class Cell(NamedTuple):
    """A cell of a sheet."""

    row: int
    column: int
    """Column number, from 1 like rows."""
    element: Element
    text: str
    """Empty if the cell is not text."""
    number: int = -1
    """Number of the shared string."""
    fixed: str = ""
    """The reason why it cannot change; empty if it can."""


FORMULA = "cell that a formula computes"


@dataclass
class Sheet:
    """A sheet with its cells, and the cells to translate."""

    name: str
    part: str
    source: Source
    cells: list[Cell]
    fixed_rows: set[int]
    """Rows with headers and totals of tables; another part repeats their texts."""
    wanted: set[tuple[int, int]] = field(default_factory=set)
    """Rows and columns of the cells to translate."""

    @property
    def skipped(self) -> Counter[str]:
        """Counts the requested cells that cannot change."""
        return Counter(cell.fixed for cell in self.cells if cell.fixed and self.wants(cell))

    def wants(self, cell: Cell) -> bool:
        return (cell.row, cell.column) in self.wanted

    @property
    def headers(self) -> list[list[Cell]]:
        """The rows that may have the column names: those with more texts than all rows above.

        The last of them is probably the header.
        """
        rows: dict[int, list[Cell]] = {}
        for cell in self.cells:
            if not is_blank(cell.text):
                if cell.row not in rows and len(rows) == _HEADER_ROWS:
                    break
                rows.setdefault(cell.row, []).append(cell)
        candidates: list[list[Cell]] = []
        for row in rows.values():
            if not candidates or len(row) > len(candidates[-1]):
                candidates.append(row)
        return candidates

    @property
    def header(self) -> list[Cell]:
        """The probable row of column names."""
        return next((row for row in self.headers if len(row) > 1), [*self.headers, []][0])

    def find_header(self, name: str, settings: ReadSettings) -> tuple[int, int] | None:
        """Returns the row and the column of a header; None if there is none."""
        for row in self.headers if settings.has_header else ():
            columns = [cell.column for cell in row if in_one_line(cell.text) == name]
            if len(columns) > 1:
                places = " and ".join(map(letters, columns))
                raise UsageError.of(
                    "{column}: {} has {} in columns {} of {}; choose one by its letter",
                    *(settings.name, name, places, self.name),
                )
            if columns:
                return row[0].row, columns[0]
        return None

    def find_letter(self, name: str, settings: ReadSettings) -> tuple[int, int] | None:
        """Returns the header row, and the column for a letter or number."""
        is_number = name.isascii() and name.isdigit()
        letter = letters(int(name)) if is_number and len(name) < 6 else name.upper()
        if not re.fullmatch("[A-Z]{1,3}", letter):
            return None
        return self.header[0].row if self.header and settings.has_header else 0, _number(letter)

    def choose(self, place: tuple[int, int]) -> bool:
        """Selects the cells of a column below a row; False if there are none."""
        header, column = place
        cells = [cell for cell in self.cells if cell.column == column]
        self.wanted |= {
            (cell.row, column)
            for cell in cells
            if cell.row > header
            and cell.row not in self.fixed_rows
            and (cell.fixed or not is_blank(cell.text))
        }
        return bool(cells)


def letters(column: int) -> str:
    """Returns the letters of a column number, from 1."""
    text = ""
    while column:
        column, rest = divmod(column - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def _number(name: str) -> int:
    number = 0
    for letter in name:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def read(data: bytes, settings: ReadSettings) -> Document:
    archive = Archive(data, settings.name)
    book = _Book(archive)
    choose_cells(book.sheets, settings)
    return book.document()


class _Book:
    """The parts of a workbook with texts."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._names = {name.lower(): name for name in archive.members}
        book = next(iter(self._related_parts("", "/officeDocument").values()), "xl/workbook.xml")
        self._shared = next(iter(self._related_parts(book, "/sharedStrings").values()), "")
        self._texts: list[str] = []
        if self._shared:
            strings = self._parse_part(self._shared)
            self._texts = [_text(strings, element) for element in _all(strings, "x:si")]
        places = self._related_parts(book, "/worksheet")
        source = self._parse_part(book)
        self.sheets = []
        for element in _all(source, "x:sheet"):
            match = re.search(r"""\s[^\s=:]+:id\s*=\s*["']([^"']*)""", source.tag(element))
            part = places.get(match[1] if match else "")
            if part:  # others are charts
                sheet, name = self._parse_part(part), source.attribute(element, "name") or ""
                cells, fixed = list(self._cells(sheet)), set(self._fixed_rows(part))
                self.sheets.append(Sheet(name, part, sheet, cells, fixed))

    def _parse_part(self, part: str) -> Source:
        data = self._archive.read(part)
        return parse_xml(data, f"{self._archive.where}: {part}", NAMESPACES)

    def _related_parts(self, part: str, kind: str) -> dict[str, str]:
        """Returns the related parts of one kind, by relationship id."""
        folder, name = posixpath.split(part)
        relations = self._names.get(posixpath.join(folder, "_rels", f"{name}.rels").lower())
        if relations is None:
            return {}
        source, targets = self._parse_part(relations), {}
        for relation in _all(source, "Relationship"):
            if (source.attribute(relation, "Type") or "").endswith(kind):
                target = posixpath.normpath(
                    posixpath.join("/", folder, source.attribute(relation, "Target") or "")
                )
                actual = self._names.get(target.lstrip("/").lower())
                if actual:
                    targets[source.attribute(relation, "Id") or ""] = actual
        return targets

    def _fixed_rows(self, part: str) -> Iterator[int]:
        for table in self._related_parts(part, "/table").values():
            source = self._parse_part(table)
            (root,) = _all(source, "x:table")
            rows = [int(row) for _, row in _PLACE.findall(source.attribute(root, "ref") or "")]
            if rows and source.attribute(root, "headerRowCount") != "0":
                yield rows[0]
            if rows and source.attribute(root, "totalsRowCount") not in (None, "0"):
                yield rows[-1]

    def _cells(self, source: Source) -> Iterator[Cell]:
        row = 0
        for line in _all(source, "x:row"):
            number = source.attribute(line, "r") or ""
            row = int(number) if number.isdigit() else row + 1
            column = 0
            for child in line.children:
                if child.name != "x:c":
                    continue
                place = _PLACE.fullmatch(source.attribute(child, "r") or "")
                column = _number(place[1]) if place else column + 1
                yield self._cell(source, child, row, column)

    def _cell(self, source: Source, cell: Element, row: int, column: int) -> Cell:
        kind = source.attribute(cell, "t")
        parts = {child.name: child for child in cell.children}
        value, fixed = parts.get("x:v"), FORMULA if "x:f" in parts else ""
        if kind == "s" and value:
            text = source.content(value).strip()
            number = int(text) if text.isascii() and text.isdigit() else -1
            if number in range(len(self._texts)):
                return Cell(row, column, cell, self._texts[number], number, fixed)
        elif kind == "inlineStr" and "x:is" in parts:
            return Cell(row, column, cell, _text(source, parts["x:is"]), -1, fixed)
        elif kind == "str" and value:
            text = source.content(value)
            return Cell(row, column, cell, text, -1, "" if is_blank(text) else fixed)
        if fixed and kind in (None, "str") and value is None:
            # Its result is unknown: it may be text
            return Cell(row, column, cell, "", fixed=fixed)
        return Cell(row, column, cell, "")

    def document(self) -> Document:
        """Builds the document from the selected cells."""
        uses = Counter(cell.number for sheet in self.sheets for cell in sheet.cells)
        wanted: dict[int, list[str]] = defaultdict(list)
        for sheet in self.sheets:
            for cell in sheet.cells:
                if cell.number >= 0 and sheet.wants(cell):
                    place = f"{sheet.name}!{letters(cell.column)}{cell.row}"
                    wanted[cell.number].append(place)
        also_elsewhere = [number for number in wanted if len(wanted[number]) < uses[number]]
        copies = {number: len(self._texts) + n for n, number in enumerate(also_elsewhere)}
        parts: dict[str, Document] = {}
        if self._shared:
            source = self._parse_part(self._shared)
            if copies:
                source = self._parse_again(self._shared, source, _with_copies(source, list(copies)))
            elements = _all(source, "x:si")
            places = {
                copies.get(number, number): contexts[0] for number, contexts in wanted.items()
            }
            units = [_unit(source, elements[number], places[number]) for number in places]
            parts[self._shared] = _document(source, units)
        for sheet in self.sheets:
            if sheet.wanted:
                parts[sheet.part] = self._sheet(sheet, copies)
        document = _XlsxDocument(self._archive, parts, {})
        for sheet in self.sheets:
            document.skipped.update(sheet.skipped)
        document.skipped["pivot table"] += sum(
            "pivotcachedefinition" in name for name in self._names
        )
        document.skipped = +document.skipped
        return document

    def _parse_again(self, part: str, source: Source, text: str) -> Source:
        where = f"{self._archive.where}: {part}"
        return parse_xml(source.encode(text), where, NAMESPACES)

    def _sheet(self, sheet: Sheet, copies: Mapping[int, int]) -> XmlDocument:
        source = sheet.source
        wanted = [cell for cell in sheet.cells if sheet.wants(cell) and not cell.fixed]
        text, place = "", 0
        for cell in wanted:
            if cell.number in copies:
                (value,) = (child for child in cell.element.children if child.name == "x:v")
                text += source.text[place : value.inner] + str(copies[cell.number])
                place = value.inner_end
        if text:
            source = self._parse_again(sheet.part, source, text + source.text[place:])
            # Cells that refer to a copy have an unknown number, and therefore no text
            wanted = [cell for cell in self._cells(source) if sheet.wants(cell) and cell.text]
        units = [
            _unit(source, child, f"{sheet.name}!{letters(cell.column)}{cell.row}")
            for cell in wanted
            if cell.number < 0 and not cell.fixed
            for child in cell.element.children
            if child.name in ("x:is", "x:v")
        ]
        return _document(source, units)


def _document(source: Source, units: Sequence[Unit | None]) -> XmlDocument:
    return XmlDocument(source.encode(source.text), source, [unit for unit in units if unit])


def _all(source: Source, name: str) -> list[Element]:
    return [element for element in source.root.walk() if element.name == name]


def _text(source: Source, element: Element) -> str:
    """Joins the text of runs, without phonetic annotations."""
    runs = (child for child in element.children if child.name in ("x:t", "x:r"))
    texts = (t for run in runs for t in ([run] if run.name == "x:t" else run.children))
    return "".join(source.content(child) for child in texts if child.name == "x:t")


def _with_copies(source: Source, numbers: Sequence[int]) -> str:
    """Appends copies of shared strings."""
    elements, root = _all(source, "x:si"), _all(source, "x:sst")[0]
    copied = "".join(source.raw(elements[number]) for number in numbers)
    text = source.text[: root.inner_end] + copied + source.text[root.inner_end :]
    place = source.value_place(root, "uniqueCount")
    if place and text[slice(*place)].isdigit():
        text = text[: place[0]] + str(int(text[slice(*place)]) + len(numbers)) + text[place[1] :]
    return text


def _unit(source: Source, element: Element, context: str) -> Unit | None:
    if any(child.name == "x:r" for child in element.children):
        unit = _CodeReader(source, _RUNS).unit(element)
    else:
        holders = [child for child in element.children if child.name == "x:t"] or [element]
        unit = build_unit(list(_pieces(source, holders[0])), context)
    if unit:
        unit.segment = replace(unit.segment, context=context)
        if f"{_RETURN}\n" in source.raw(element):
            escape = unit.escape
            unit.escape = lambda text: escape(text).replace("\n", f"{_RETURN}\n")
    return unit


class _CodeReader(RunReader):
    """Reads runs whose text contains character codes."""

    def _text_pieces(self, holder: Element) -> Iterator[Piece]:
        for piece in _pieces(self._source, holder):
            if piece.kind == "text":
                yield replace(piece, level="inside")


def _pieces(source: Source, holder: Element) -> Iterator[Piece]:
    """Yields the text of an element and the character codes in it."""
    place = holder.inner
    text = source.text
    for match in _CODE.finditer(text, place, holder.inner_end):
        yield _text_piece(source, place, match.start())
        if not text.startswith(f"{_RETURN}\n", match.start()):
            yield Piece("void", match[0], match.start(), match.end(), breaks=True)
        place = match.end()
    yield _text_piece(source, place, holder.inner_end)


def _text_piece(source: Source, start: int, end: int) -> Piece:
    raw = source.text[start:end]
    return Piece("text", raw, start, end, decode_text(raw))


class _XlsxDocument(ArchiveDocument):
    """A workbook; adds copies of shared strings only if a text changes."""

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        changed = [
            None if new is not None and (new.text, new.spans) == (old.text, old.spans) else new
            for new, old in zip(translated, self.segments, strict=True)
        ]
        return super().write(changed)


def choose_cells(sheets: Sequence[Sheet], settings: ReadSettings) -> None:
    """Selects the cells of the requested columns, in all sheets that have them."""
    shown = {sheet.name: list_names(cell.text for cell in sheet.header) for sheet in sheets}
    names = next(iter(shown.values()), "")
    if len(sheets) > 1:
        names = "; ".join(f"{sheet}: {columns}" for sheet, columns in shown.items() if columns)
    if not settings.has_header:
        names = "their letters"
    if not settings.columns:
        raise no_columns(settings, names)
    for column_name in map(in_one_line, settings.columns):
        of_sheet, _, column = column_name.rpartition("!")
        named = [sheet for sheet in sheets if of_sheet in (sheet.name, _quote_name(sheet.name))]
        name = column.strip() if named else column_name
        places = [(sheet, sheet.find_header(name, settings)) for sheet in named or sheets]
        if not any(place for _, place in places):  # try it as a letter: no column has this name
            places = [(sheet, sheet.find_letter(name, settings)) for sheet in named or sheets]
        n_found = sum(sheet.choose(place) for sheet, place in places if place)
        if not n_found:
            texts = [in_one_line(cell.text) for sheet in sheets for cell in sheet.header]
            raise missing_column(column_name, texts, names, settings)


def _quote_name(name: str) -> str:
    """Quotes the name of a sheet as in formulas."""
    doubled = name.replace("'", "''")
    return f"'{doubled}'"
