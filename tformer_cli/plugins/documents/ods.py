"""OpenDocument spreadsheets: translates some columns; all other bytes stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tformer_cli.plugins.documents.archives import Archive, ArchiveDocument
from tformer_cli.plugins.documents.office import NAMESPACES, OPEN_DOCUMENT
from tformer_cli.plugins.documents.xlsx import FORMULA, Cell, Sheet, choose_cells, letters
from tformer_cli.plugins.documents.xml_text import (
    Edit,
    Element,
    InlineReader,
    Source,
    XmlDocument,
    build_unit,
    parse_xml,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.documents.segments import Document, ReadSettings

_CONTENT = "content.xml"
_CELLS = ("table:table-cell", "table:covered-table-cell")
_VALUE = "office:string-value"
"""Attribute in which some programs repeat the text of a cell."""


def read(data: bytes, settings: ReadSettings) -> Document:
    archive = Archive(data, settings.name)
    content = archive.read(_CONTENT)
    if b"encryption-data" in archive.read("META-INF/manifest.xml"):
        raise archive.error("has a password; save it without one")
    source = parse_xml(content, f"{settings.name}: {_CONTENT}", NAMESPACES)
    sheets = [
        Sheet(source.attribute(element, "table:name") or "", _CONTENT, source, cells, set())
        for element in source.root.walk()
        if element.name == "table:table" and (cells := list(_cells(source, element)))
    ]
    choose_cells(sheets, settings)
    dialect = OPEN_DOCUMENT
    reader = InlineReader(
        source,
        lambda element: dialect.behaviors.get(element.name, "protected"),
        dialect.breaks,
        lambda element: dialect.half(source, element),
    )
    units = [
        build_unit(
            reader.pieces(paragraph),
            f"{sheet.name}!{letters(cell.column)}{cell.row}",
            joins_blanks=True,
        )
        for sheet in sheets
        for cell in sheet.cells
        if sheet.wants(cell) and not cell.fixed
        for paragraph in _paragraphs(cell.element)
    ]
    # The text of a translated cell replaces its value
    places = {
        place
        for sheet in sheets
        for cell in sheet.cells
        if sheet.wants(cell) and not cell.fixed
        if (place := source.value_place(cell.element, _VALUE))
    }
    edits = [_without_attribute(source, place) for place in sorted(places)]
    document = XmlDocument(content, source, [*(unit for unit in units if unit), *edits])
    for sheet in sheets:
        document.skipped.update(sheet.skipped)
    return ArchiveDocument(archive, {_CONTENT: document}, {})


def _without_attribute(source: Source, place: tuple[int, int]) -> Edit:
    """Removes the attribute with its value at a place."""
    name = source.text.rindex(_VALUE, 0, place[0])
    return Edit(len(source.text[:name].rstrip()), place[1] + 1, "")


def _paragraphs(cell: Element) -> list[Element]:
    return [child for child in cell.children if child.name == "text:p"]


def _cells(source: Source, table: Element) -> Iterator[Cell]:
    """Yields cells with text; the file has equal rows and cells once, with a count."""
    row = 1
    for line in table.walk():
        if line.name != "table:table-row":
            continue
        column = 1
        for child in line.children:
            if child.name not in _CELLS:
                continue
            n_columns = _number(source, child, "table:number-columns-repeated")
            text = "\n".join(map(source.content, _paragraphs(child)))
            fixed = FORMULA if source.value_place(child, "table:formula") else ""
            value = source.attribute(child, _VALUE)
            if value is not None and "".join(value.split()) != "".join(text.split()):
                fixed = fixed or "cell whose value is not what it shows"
            fixed = fixed or "text of several columns" * (n_columns > 1)
            is_text = source.attribute(child, "office:value-type") == "string"
            if text and is_text:
                for place in range(column, column + min(n_columns, _MOST_REPEATED)):
                    yield Cell(row, place, child, text, fixed=fixed)
            column += n_columns
        row += _number(source, line, "table:number-rows-repeated")


_MOST_REPEATED = 100
"""Maximum number of repeated columns; a small file may claim millions."""


def _number(source: Source, element: Element, name: str) -> int:
    text = source.attribute(element, name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 1
