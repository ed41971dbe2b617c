"""Parts of Office packages (Open Packaging Conventions, ECMA-376 part 2) and their kinds.

Programs may name parts freely. The content type tells the kind of a part, by extension (Default)
or by name (Override); where it is only "XML", a relationship of another part tells it. Names are
compared case-insensitively, with percent-encoding decoded.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from tformer_cli.plugins.documents.archives import Archive
from tformer_cli.plugins.documents.xml_text import Source, parse_xml

_TYPES = "[Content_Types].xml"
_NAMESPACES = {
    "http://schemas.openxmlformats.org/package/2006/content-types": "",
    "http://schemas.openxmlformats.org/package/2006/relationships": "",
}
_RELATIONS = re.compile(r"(.*/)?_rels/([^/]*)\.rels")
_KIND = re.compile(r"\.([\w-]+)\+xml$")
_BY_RELATION = {
    "officedocument": "main",
    "glossarydocument": "glossary",
    "chartusershapes": "chartshapes",
}
"""Kinds with different names in relationships and content types."""


class Part(NamedTuple):
    """A part of a package."""

    name: str
    """Name in the archive."""
    content_type: str
    """Lowercase, without parameters."""
    kinds: tuple[str, ...]
    """Lowercase names of its kind: the end of its content type, then its relationships."""


def _comparable(name: str) -> str:
    """Normalizes a name for comparison."""
    name = posixpath.normpath("/" + unquote(name).replace("\\", "/"))
    return name.lstrip("/").casefold()


def package_parts(archive: Archive) -> list[Part]:
    """Lists the parts of a package in archive order."""
    names = {_comparable(name): name for name in archive.members}
    types = _parse_part(archive, names.get(_comparable(_TYPES), _TYPES))
    by_name: dict[str, str] = {}
    by_ending: dict[str, str] = {}
    for element in types.root.walk():
        declared = types.attribute(element, "ContentType") or ""
        content_type = declared.partition(";")[0].strip().casefold()
        if element.name == "Override":
            by_name[_comparable(types.attribute(element, "PartName") or "")] = content_type
        elif element.name == "Default":
            ending = (types.attribute(element, "Extension") or "").lstrip(".").casefold()
            by_ending[ending] = content_type
    typed = {
        comparable: by_name.get(
            comparable, by_ending.get(posixpath.splitext(comparable)[1].lstrip("."), "")
        )
        for comparable in names
    }
    relations: dict[str, list[str]] = {}
    for comparable, name in names.items():
        if match := _RELATIONS.fullmatch(comparable):
            folder = match[1] or ""
            is_of_chart = "chart" in typed.get(folder + match[2], "")
            for kind, target in _relations(_parse_part(archive, name), folder):
                # The workbook of a chart is not text of the document
                if not (kind == "package" and is_of_chart):
                    relations.setdefault(target, []).append(kind)
    parts = []
    for comparable, content_type in typed.items():
        known = _KIND.search(content_type)
        kinds = [known[1]] if known else []
        kinds += relations.get(comparable, ())
        parts.append(Part(names[comparable], content_type, tuple(kinds)))
    return parts


def _relations(source: Source, folder: str) -> Iterator[tuple[str, str]]:
    """Yields the kind and normalized name of each part in a relationship file."""
    for element in source.root.walk():
        target = source.attribute(element, "Target")
        if element.name != "Relationship" or target is None:
            continue
        if (source.attribute(element, "TargetMode") or "").casefold() == "external":
            continue
        # The last word is the same in the strict and the transitional form
        kind = (source.attribute(element, "Type") or "").rstrip("/").rpartition("/")[2].casefold()
        path = posixpath.join("/", folder, target.partition("#")[0])
        yield _BY_RELATION.get(kind, kind), _comparable(path)


def _parse_part(archive: Archive, name: str) -> Source:
    return parse_xml(archive.read(name), f"{archive.where}: {name}", _NAMESPACES)
