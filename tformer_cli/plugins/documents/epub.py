"""EPUB books: reads chapters as HTML, and contents, title and description as XML."""

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from html import escape as html_escape
from typing import NamedTuple
from urllib.parse import unquote

from tformer_cli.documents.segments import (
    Document,
    ReadSettings,
    SegmentBuilder,
    add_message,
    unescape,
)
from tformer_cli.plugins.documents import html
from tformer_cli.plugins.documents.archives import Archive, ArchiveDocument
from tformer_cli.plugins.documents.xml_text import (
    Element,
    InlineReader,
    Source,
    Unit,
    XmlDocument,
    build_unit,
    decode_text,
    escape_like,
    parse_xml,
)

NAMESPACES = {
    "urn:oasis:names:tc:opendocument:xmlns:container": "",
    "http://www.idpf.org/2007/opf": "",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://www.daisy.org/z3986/2005/ncx/": "",
    "http://www.w3.org/2001/04/xmlenc#": "",
}
_CHAPTERS = frozenset(
    (
        *("application/xhtml+xml", "text/html", "application/html", "text/xhtml"),
        *("application/x-dtbook+xml", "text/x-oeb1-document"),
    )
)
"""Media types of chapters; all but the first occur in older books."""
_CONTENTS = "application/x-dtbncx+xml"
_DRAWING = "image/svg+xml"
_LABELS = (
    re.compile(rb"(<(?:\w+:)?(?:package|ncx)\b[^>]*?\sxml:lang\s*=\s*[\"'])[^\"']*"),
    re.compile(rb"(<(?:\w+:)?language\b[^>]*>)[^<]*(?=</)"),
)
"""Declared language of a package or its contents, and the first language of a book."""
# A description is often escaped markup; its paragraphs are segments
_PARAGRAPH_TAG = re.compile(
    r"(?:&lt;|<)/?(?:p|div|br|h[1-6]|[uo]l|li|blockquote|hr)\b(?:(?!&[lg]t;)[^<>])*/?(?:&gt;|>)",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_SECTION = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)


def read(data: bytes, settings: ReadSettings) -> Document:
    archive = Archive(data, settings.name)
    names = _Names(archive)
    container = _parse_member(archive, names.find("META-INF/container.xml"))
    roots = [
        names.find(container.attribute(element, "full-path") or "")
        for element in container.root.walk()
        if element.name == "rootfile"
    ]
    parts: dict[str, Document] = {}
    skipped: Counter[str] = Counter()
    for root in roots:
        package = _parse_member(archive, root)
        # Parts may be in any folder; names are relative to the package file
        for item in _items(package, posixpath.dirname(root)):
            name = names.find(item.name)
            if name not in archive.members:
                continue  # remote or missing: nothing to write
            if item.kind in _CHAPTERS or (item.kind == _DRAWING and item.is_chapter):
                where = replace(settings, name=f"{settings.name}: {name}")
                is_xml = item.kind != "text/html"
                parts[name] = html.read(archive.read(name), where, is_xml=is_xml)
            elif item.kind == _CONTENTS or name.lower().endswith(".ncx"):
                parts[name] = _contents(archive, name)
            elif item.is_chapter:
                skipped[f"chapter of type {item.kind[:40]}"] += 1
        parts[root] = _metadata(archive, package, root)
    _refuse_locked(archive, parts, names)
    code = settings.target_language.replace("_", "-")
    named = [name for name in parts if name in roots or name.lower().endswith(".ncx")]
    document = ArchiveDocument(
        archive, parts, dict.fromkeys(named, partial(_relabel, code)) if code else {}
    )
    document.skipped += skipped
    return document


def _relabel(code: str, data: bytes) -> bytes:
    for label in _LABELS:
        data = label.sub(rb"\g<1>" + code.encode(), data, count=1)
    return data


class _Names:
    """Names in an archive; also found in another case, as on most readers' disks."""

    def __init__(self, archive: Archive) -> None:
        self._members = archive.members
        self._folded = {name.casefold().replace("\\", "/"): name for name in archive.members}

    def find(self, name: str) -> str:
        for wanted in (name, unquote(name)):
            if wanted in self._members:
                return wanted
        return self._folded.get(unquote(name).casefold(), name)


class _Item(NamedTuple):
    """A part of a book."""

    name: str
    kind: str
    is_chapter: bool


def _parse_member(archive: Archive, name: str) -> Source:
    return parse_xml(archive.read(name), f"{archive.where}: {name}", NAMESPACES)


def _items(package: Source, folder: str) -> list[_Item]:
    """Lists the parts of a book with their types; chapters first, in reading order."""
    items: dict[str, tuple[str, str]] = {}
    spine: list[str] = []
    for element in package.root.walk():
        if element.name == "item":
            href = unquote((package.attribute(element, "href") or "").partition("#")[0])
            name = posixpath.normpath(posixpath.join(folder, href)).lstrip("/")
            kind = (
                (package.attribute(element, "media-type") or "").partition(";")[0].strip().lower()
            )
            items[package.attribute(element, "id") or href] = name, kind
        elif element.name == "itemref":
            spine.append(package.attribute(element, "idref") or "")
    chapters = {key: items[key] for key in spine if key in items}
    other_items = (item for key, item in items.items() if key not in chapters)
    listed = [
        *(_Item(*item, is_chapter=True) for item in chapters.values()),
        *(_Item(*item, is_chapter=False) for item in other_items),
    ]
    return list(dict.fromkeys(listed))


def _contents(archive: Archive, name: str) -> XmlDocument:
    """Reads the texts of an EPUB 2 table of contents, except the author."""
    source = _parse_member(archive, name)
    reader = InlineReader(source, lambda _element: "protected")
    units, authors = [], 0
    for element in source.root.walk():
        if element.name == "docAuthor":
            authors = element.end
        elif element.name == "text" and element.start >= authors:
            units.append(build_unit(reader.pieces(element), "text", joins_blanks=True))
    return XmlDocument(archive.read(name), source, [unit for unit in units if unit])


def _metadata(archive: Archive, package: Source, name: str) -> XmlDocument:
    """Reads the title and description of a book."""
    units = [
        unit
        for element in package.root.walk()
        if element.name in ("dc:title", "dc:description")
        for unit in _marked_units(package, element)
    ]
    return XmlDocument(archive.read(name), package, units)


def _marked_units(source: Source, element: Element) -> Iterator[Unit]:
    """Yields a unit for each paragraph of a text with escaped markup or none."""
    raw = source.inside(element)
    section = _SECTION.fullmatch(raw.strip())
    place, end = element.inner, element.inner_end
    if section:
        place = source.text.index(section[0], place) + len("<![CDATA[")
        end = place + len(section[1])
    tag = _in_section if section else escape_like(raw)
    # Text inside escaped markup is escaped twice
    is_marked = _TAG.search(section[1] if section else decode_text(raw)) is not None
    escape = partial(_escape_twice, tag) if is_marked else tag
    breaks = _PARAGRAPH_TAG.finditer(source.text, place, end)
    for start, stop in [*(match.span() for match in breaks), (end, end)]:
        text = source.text[place:start]
        builder = SegmentBuilder(element.name, joins_blanks=True)
        text = text if section else decode_text(text)
        add_message(builder, text, partial(_add_decoded, builder, is_marked), tag)
        if not builder.is_blank:
            yield Unit(start=place, end=start, segment=builder.build(), escape=escape)
        place = stop


def _add_decoded(builder: SegmentBuilder, is_marked: bool, text: str) -> None:
    builder.text(unescape(text) if is_marked else text)


def _escape_twice(escape: Callable[[str], str], text: str) -> str:
    return escape(html_escape(text, quote=False))


def _in_section(text: str) -> str:
    return text.replace("]]>", "]]]]><![CDATA[>")


def _refuse_locked(archive: Archive, parts: dict[str, Document], names: _Names) -> None:
    """Refuses books with encrypted chapters; obfuscated fonts are common and fine."""
    name = names.find("META-INF/encryption.xml")
    if name not in archive.members:
        return
    locked = _parse_member(archive, name)
    for element in locked.root.walk():
        if element.name != "CipherReference":
            continue
        if names.find(unquote(locked.attribute(element, "URI") or "")) in parts:
            raise archive.error("is protected by DRM")
