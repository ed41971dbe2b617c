"""XLIFF 1.2 and 2, and TMX: files with a source and its translation next to each other.

A segment is a source that has no translation yet. Its translation is written into the target, which
is added where there is none; what has a translation stays, and so do states and ids.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import escape

from tformer_cli.documents.segments import Behavior, Document, ReadSettings
from tformer_cli.documents.xml_text import (
    Edit,
    Element,
    InlineReader,
    Source,
    Unit,
    XmlDocument,
    build_unit,
    parsed,
)
from tformer_cli.errors import DataError
from tformer_cli.wording import is_blank

NAMESPACES = {
    "urn:oasis:names:tc:xliff:document:1.1": "",
    "urn:oasis:names:tc:xliff:document:1.2": "",
    "urn:oasis:names:tc:xliff:document:2.0": "",
    "urn:oasis:names:tc:xliff:document:2.1": "",
    "urn:oasis:names:tc:xliff:document:2.2": "",
    "http://www.lisa.org/tmx14": "",
}
_VOID = frozenset(["x", "bx", "ex", "bpt", "ept", "ph", "it", "sc", "ec", "cp", "sm", "em", "ut"])
"""Codes of the program that the text is from, and halves of them."""
_ONCE = frozenset(("g", "pc", "mrk", "hi"))
_HALVES = {
    "bpt": ("start", ("rid", "i", "id")),
    "ept": ("end", ("rid", "i", "id")),
    "bx": ("start", ("rid", "id")),
    "ex": ("end", ("rid", "id")),
    "sc": ("start", ("id",)),
    "ec": ("end", ("startRef",)),
    "sm": ("start", ("id",)),
    "em": ("end", ("startRef",)),
}
"""The side of a pair, and the attributes of which the first that is there names the pair."""
_UNTRANSLATED = frozenset(("new", "needs-translation"))


def read_xliff(data: bytes, settings: ReadSettings) -> Document:
    source, root = _root(data, settings, "xliff")
    reader = _Reader(source, settings)
    language = settings.target_language
    edits: list[Edit] = []
    if (source.attribute(root, "version") or "").startswith("2"):
        units = [*reader.xliff(root, "segment")]
        edits += reader.labelled(root, "trgLang", language)
    else:
        units = [*reader.xliff(root, "trans-unit")]
        for file in (one for one in root.children if one.name == "file"):
            edits += reader.labelled(file, "target-language", language)
    return XmlDocument(data, source, [*units, *edits])


def read_tmx(data: bytes, settings: ReadSettings) -> Document:
    source, root = _root(data, settings, "tmx")
    if not settings.target_language:
        raise DataError(
            f"{settings.name}: a .tmx file needs to know the language to translate into; name it: "
            "--target-language de"
        )
    headers = [one for one in root.children if one.name == "header"]
    declared = source.attribute(headers[0], "srclang") if headers else None
    language = settings.source_language or ("" if declared in (None, "*all*") else declared or "")
    reader = _Reader(source, settings)
    units = (reader.tmx(one, language) for one in root.walk() if one.name == "tu")
    return XmlDocument(data, source, [unit for unit in units if unit])


def _root(data: bytes, settings: ReadSettings, name: str) -> tuple[Source, Element]:
    source = parsed(data, settings.name, NAMESPACES)
    root = next(one for one in source.root.children if one.name != "#")
    if root.name != name:
        raise DataError(f"{settings.name}: its root element is {root.name[:40]} and not {name}")
    return source, root


def _child(element: Element, name: str) -> Element | None:
    return next((one for one in element.children if one.name == name), None)


def _is_of(language: str, code: str) -> bool:
    """Tests whether a code, perhaps with a country, is of a language."""
    return (code.lower().replace("_", "-") + "-").startswith(
        language.lower().replace("_", "-") + "-"
    )


class _Reader:
    """Finds the sources that have no translation."""

    def __init__(self, source: Source, settings: ReadSettings) -> None:
        self._source = source
        self._settings = settings
        self._inline = InlineReader(source, self._behavior, halves=self._half)

    def _behavior(self, element: Element) -> Behavior:
        attribute = self._source.attribute
        if element.name == "mrk" and (
            attribute(element, "translate") == "no" or attribute(element, "mtype") == "protected"
        ):
            return "protected"
        if element.name in _ONCE:
            return "once"
        return "void" if element.name in _VOID else "protected"

    def _half(self, element: Element) -> str:
        if element.name not in _HALVES:
            return ""
        side, names = _HALVES[element.name]
        ids = (self._source.attribute(element, name) for name in names)
        return f"{side}{element.name[-1]} {next((one for one in ids if one is not None), None)}"

    def labelled(self, element: Element, attribute: str, language: str) -> Iterator[Edit]:
        """Adds the target's language where a file does not tell it."""
        if language and self._source.attribute(element, attribute) is None:
            place = element.start + 1 + len(self._name(element))
            yield Edit(place, place, f' {attribute}="{escape(language)}"')

    def xliff(
        self, element: Element, unit_name: str, *, keeps_blanks: bool = False
    ) -> Iterator[Unit]:
        for child in element.children:
            if self._source.attribute(child, "translate") == "no":
                continue
            space = self._source.attribute(child, "xml:space")
            keeps = space == "preserve" if space else keeps_blanks
            if child.name != unit_name:
                yield from self.xliff(child, unit_name, keeps_blanks=keeps)
            elif unit := self._xliff_unit(child, keeps_blanks=keeps):
                yield unit

    def _xliff_unit(self, element: Element, *, keeps_blanks: bool) -> Unit | None:
        origin, target = _child(element, "source"), _child(element, "target")
        if origin is None:
            return None
        if target is not None:
            state = self._source.attribute(target, "state") or ""
            is_open = state in _UNTRANSLATED or (
                self._settings.fills_fuzzy and state.startswith("needs-")
            )
            if not (is_open or is_blank(self._source.content(target))):
                return None
            return self._filled(origin, target.start, target.end, *self._tags(target), keeps_blanks)
        before = _child(element, "seg-source") or origin
        # In XLIFF 2 the state is the segment's own
        state = ' state="needs-review-translation"' if element.name == "trans-unit" else ""
        name = self._name(origin).replace("source", "target")
        opening = f"{self._indent(origin)}<{name}{state}>"
        return self._filled(origin, before.end, before.end, opening, f"</{name}>", keeps_blanks)

    def tmx(self, element: Element, language: str) -> Unit | None:
        variants = [(self._language(one), one) for one in element.children if one.name == "tuv"]
        origins = [one for code, one in variants if not language or _is_of(language, code)]
        origin = _child(origins[0], "seg") if origins else None
        if origin is None:
            return None
        for code, variant in variants:
            if _is_of(self._settings.target_language, code):
                segment = _child(variant, "seg")
                if segment is None or not is_blank(self._source.content(segment)):
                    return None
                return self._filled(origin, segment.start, segment.end, *self._tags(segment), False)
        last = variants[-1][1]
        opening = f'<tuv xml:lang="{escape(self._settings.target_language)}"><seg>'
        opening = self._indent(origins[0]) + opening
        return self._filled(origin, last.end, last.end, opening, "</seg></tuv>", False)

    def _language(self, variant: Element) -> str:
        attribute = self._source.attribute
        return attribute(variant, "xml:lang") or attribute(variant, "lang") or ""

    def _name(self, element: Element) -> str:
        return re.match(r"[^\s/>]+", self._source.tag(element)[1:])[0]  # type: ignore[index]

    def _tags(self, element: Element) -> tuple[str, str]:
        """Makes the tags of an element that may be written as one, <target/>."""
        opening = re.sub(r"\s*/>$", ">", self._source.tag(element))
        return opening, f"</{self._name(element)}>"

    def _indent(self, element: Element) -> str:
        text, place = self._source.text, element.start
        while text[place - 1].isspace():  # of a child: a tag stands before it
            place -= 1
        return text[place : element.start]

    def _filled(
        self, origin: Element, start: int, end: int, opening: str, closing: str, keeps_blanks: bool
    ) -> Unit | None:
        """Makes a unit of the source's text for the region of the target."""
        pieces = self._inline.pieces(origin)
        unit = build_unit(pieces, origin.name, joins_blanks=not keeps_blanks)
        if unit is None:
            return None
        unit.segment = replace(unit.segment, is_message=origin.name == "source")
        text = self._source.text
        # Markup around all of the source is no part of the segment, but of the target
        lead, tail = text[origin.inner : unit.start], text[unit.end : origin.inner_end]
        unit.around = opening + lead, tail + closing
        unit.start, unit.end, unit.fills = start, end, True
        return unit
