"""Books, .epub: chapters by the reader of HTML, the table of contents and the title by XML."""

import posixpath
import re
from dataclasses import replace
from urllib.parse import unquote

from tformer_cli.documents.archives import Archive, ArchiveDocument
from tformer_cli.documents.formats import html
from tformer_cli.documents.segments import Document, ReadSettings
from tformer_cli.documents.xml_text import InlineReader, Source, XmlDocument, build_unit, parsed

NAMESPACES = {
    "urn:oasis:names:tc:opendocument:xmlns:container": "",
    "http://www.idpf.org/2007/opf": "",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://www.daisy.org/z3986/2005/ncx/": "",
    "http://www.w3.org/2001/04/xmlenc#": "",
}
_XHTML = "application/xhtml+xml"
_CONTENTS = "application/x-dtbncx+xml"
_LANGUAGE = re.compile(rb"(<(?:\w+:)?language\b[^>]*>)[^<]*(</)")


def read(data: bytes, settings: ReadSettings) -> Document:
    archive = Archive(data, settings.name)
    container = _parsed(archive, "META-INF/container.xml")
    roots = [
        container.attribute(one, "full-path") or ""
        for one in container.root.walk()
        if one.name == "rootfile"
    ]
    parts: dict[str, Document] = {}
    for root in roots:
        package = _parsed(archive, root)
        # A book may have its parts in any folder: names count from that of the package
        for name, kind in _items(package, posixpath.dirname(root)):
            if name not in archive.members:
                continue  # on the web, or missing: nothing to write into
            if kind == _XHTML:
                where = replace(settings, name=f"{settings.name}: {name}")
                parts[name] = html.read(archive.read(name), where)
            elif kind == _CONTENTS:
                parts[name] = _texts(archive, _parsed(archive, name), name, "text")
        parts[root] = _texts(archive, package, root, "dc:title")
    _refuse_locked(archive, parts)
    code = settings.target_language.replace("_", "-")
    label = rb"\g<1>" + code.encode() + rb"\g<2>"
    relabel = dict.fromkeys(roots, lambda data: _LANGUAGE.sub(label, data, count=1))
    return ArchiveDocument(archive, parts, relabel if code else {})


def _parsed(archive: Archive, name: str) -> Source:
    return parsed(archive.read(name), f"{archive.where}: {name}", NAMESPACES)


def _items(package: Source, folder: str) -> list[tuple[str, str]]:
    """Lists the parts of a book and their types: first the chapters, as they are read."""
    items: dict[str, tuple[str, str]] = {}
    spine: list[str] = []
    for one in package.root.walk():
        if one.name == "item":
            href = unquote(package.attribute(one, "href") or "")
            name = posixpath.normpath(posixpath.join(folder, href))
            kind = package.attribute(one, "media-type") or ""
            items[package.attribute(one, "id") or href] = name, kind
        elif one.name == "itemref":
            spine.append(package.attribute(one, "idref") or "")
    first = [items[one] for one in dict.fromkeys(spine) if one in items]
    return list(dict.fromkeys([*first, *items.values()]))


def _texts(archive: Archive, source: Source, name: str, element: str) -> XmlDocument:
    reader = InlineReader(source, lambda _element: "protected")
    units = (
        build_unit(reader.pieces(one), element, joins_blanks=True)
        for one in source.root.walk()
        if one.name == element
    )
    return XmlDocument(archive.read(name), source, [unit for unit in units if unit])


def _refuse_locked(archive: Archive, parts: dict[str, Document]) -> None:
    """Refuses books whose chapters are encrypted; fonts often are, in a way of their own."""
    name = "META-INF/encryption.xml"
    if name not in archive.members:
        return
    locked = _parsed(archive, name)
    for one in locked.root.walk():
        if one.name == "CipherReference" and unquote(locked.attribute(one, "URI") or "") in parts:
            raise archive.damaged("is locked for other programs (DRM)")
