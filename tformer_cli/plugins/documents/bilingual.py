"""XLIFF 1.2 and 2, and TMX: bilingual files with sources and their translations.

A segment is a source without a translation. Its translation goes into the target, which is added
if missing; existing translations and ids stay. Where the format has a state for it, a new target
is marked for review.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape

from tformer_cli.documents.segments import Document, ReadSettings
from tformer_cli.errors import DataError
from tformer_cli.plugins.documents.inline_codes import (
    CodeReader,
    escape_in_cdata,
    is_in_cdata,
    write_codes,
)
from tformer_cli.plugins.documents.labels import check_target
from tformer_cli.plugins.documents.xml_text import (
    Edit,
    Element,
    Source,
    Unit,
    XmlDocument,
    build_unit,
    parse_xml,
)
from tformer_cli.text.language_codes import is_same_language
from tformer_cli.wording import is_blank

NAMESPACES = {
    "urn:oasis:names:tc:xliff:document:1.1": "",
    "urn:oasis:names:tc:xliff:document:1.2": "",
    "urn:oasis:names:tc:xliff:document:2.0": "",
    "urn:oasis:names:tc:xliff:document:2.1": "",
    "urn:oasis:names:tc:xliff:document:2.2": "",
    "http://www.lisa.org/tmx14": "",
}
_UNTRANSLATED = frozenset(("new", "needs-translation"))
_DONE = frozenset(("final", "signed-off", "reviewed"))
"""States of targets that are empty on purpose."""
_TO_REVIEW = "needs-review-translation"


def read_xliff(data: bytes, settings: ReadSettings) -> Document:
    source, root = _root(data, settings, "xliff")
    reader = _Reader(source, settings)
    labels: list[Edit] = []
    if (source.attribute(root, "version") or "").startswith("2"):
        units = [*reader.xliff(root, "segment")]
        labels += reader.label_edits(root, "trgLang", "srcLang")
    else:
        units = [*reader.xliff(root, "trans-unit")]
        for file in (child for child in root.children if child.name == "file"):
            labels += reader.label_edits(file, "target-language", "source-language")
    return reader.document(data, [*units, *labels])


def read_tmx(data: bytes, settings: ReadSettings) -> Document:
    source, root = _root(data, settings, "tmx")
    if not settings.target_language:
        raise DataError.of(
            "{}: a .tmx file needs a target language; name it: {target_language} de", settings.name
        )
    headers = [child for child in root.children if child.name == "header"]
    declared = source.attribute(headers[0], "srclang") if headers else None
    reader = _Reader(source, settings)
    units = (reader.tmx(element, declared) for element in root.walk() if element.name == "tu")
    return reader.document(data, [unit for unit in units if unit])


def _root(data: bytes, settings: ReadSettings, name: str) -> tuple[Source, Element]:
    source = parse_xml(data, settings.name, NAMESPACES)
    root = next(child for child in source.root.children if child.name != "#")
    if root.name != name:
        raise DataError(f"{settings.name}: its root element is {root.name[:40]}, not {name}")
    return source, root


def _child(element: Element, name: str) -> Element | None:
    return next((child for child in element.children if child.name == name), None)


def _is_of(language: str, code: str) -> bool:
    """True if a code, with or without a country, is a language."""
    return (code.lower().replace("_", "-") + "-").startswith(
        language.lower().replace("_", "-") + "-"
    )


class _Reader:
    """Finds the sources without a translation."""

    def __init__(self, source: Source, settings: ReadSettings) -> None:
        self._source = source
        self._settings = settings
        self._codes = CodeReader(source)
        self._skipped: Counter[str] = Counter()
        self._n_groups = 0

    def document(self, data: bytes, regions: Sequence[Unit | Edit]) -> Document:
        document = XmlDocument(data, self._source, regions)
        document.skipped.update(self._skipped)
        return document

    def label_edits(
        self, element: Element, attribute: str, source_attribute: str
    ) -> Iterator[Edit]:
        """Adds the target language if missing; refuses a file for another language."""
        language = self._settings.target_language
        declared = self._source.attribute(element, attribute)
        own = self._source.attribute(element, source_attribute)
        # A template has no target language, or repeats the source language
        is_open = not declared or (own is not None and is_same_language(declared, own))
        if language and declared is None:
            place = element.start + 1 + len(self._name(element))
            yield Edit(place, place, f' {attribute}="{escape(language)}"')
        elif language and is_open and not is_same_language(declared or "", language):
            start, end = self._source.value_place(element, attribute) or (0, 0)
            yield Edit(start, end, escape(language))
        elif declared and not is_open:
            check_target(self._settings, declared, attribute)

    def xliff(
        self,
        element: Element,
        unit_name: str,
        *,
        keeps_blanks: bool = False,
        is_translated: bool = True,
    ) -> Iterator[Unit]:
        for child in element.children:
            translate = self._source.attribute(child, "translate")
            translates = is_translated if translate is None else translate != "no"
            space = self._source.attribute(child, "xml:space")
            keeps = space == "preserve" if space else keeps_blanks
            if child.name == "unit":
                self._codes.keep_data(child)
            if child.name != unit_name:
                yield from self.xliff(
                    child, unit_name, keeps_blanks=keeps, is_translated=translates
                )
            elif translates:
                yield from self._xliff_units(child, keeps_blanks=keeps)

    def _xliff_units(self, element: Element, *, keeps_blanks: bool) -> Iterator[Unit]:
        origin, target = _child(element, "source"), _child(element, "target")
        if origin is None:
            return
        attribute = self._source.attribute
        # In XLIFF 2 the segment has the state
        is_old = element.name == "trans-unit"
        state = attribute(element if target is None or not is_old else target, "state") or ""
        if attribute(element, "approved") == "yes" or state in _DONE:
            if target is None:
                self._skipped["approved unit without a target"] += 1
            return
        segmented = _child(element, "seg-source")
        marks = [*self._marks(segmented)] if segmented else []
        if target is None:
            before = segmented or origin
            name = self._name(origin).replace("source", "target")
            stated = f' state="{_TO_REVIEW}"' if is_old else ""
            if attribute(origin, "xml:lang") and self._settings.target_language:
                stated += f' xml:lang="{escape(self._settings.target_language)}"'
            opening = f"{self._indent(origin)}<{name}{stated}>"
            region, tags = (before.end, before.end), (opening, f"</{name}>")
        else:
            is_open = is_old and (
                state in _UNTRANSLATED or (self._settings.fills_fuzzy and state[:6] == "needs-")
            )
            # Programs that merge XLIFF 2 copy sources like this; the state of filled targets stays
            is_open |= state == "initial" and self._source.inside(target) == self._source.inside(
                origin
            )
            if not (is_open or is_blank(self._source.content(target))):
                yield from self._mark_units(marks, target, keeps_blanks)
                return
            region, tags = (target.start, target.end), self._tags(target)
            code, label = attribute(target, "xml:lang"), self._settings.target_language
            if code and label and not is_same_language(code, label):  # copied from the source
                tags = _with_attribute(tags[0], "xml:lang", escape(label)), tags[1]
            if is_old:
                tags = _with_attribute(tags[0], "state", _TO_REVIEW), tags[1]
        if segmented and marks:
            yield from self._grouped_units(segmented, marks, region, tags, keeps_blanks)
        elif unit := self._make_unit(origin, region, tags, keeps_blanks):
            yield unit

    def _marks(self, element: Element) -> Iterator[Element]:
        """Finds the segments that a program has divided a source into."""
        for child in element.children:
            if child.name == "mrk" and self._source.attribute(child, "mtype") == "seg":
                yield child
            else:
                yield from self._marks(child)

    def _mark_units(
        self, marks: Sequence[Element], target: Element, keeps_blanks: bool
    ) -> Iterator[Unit]:
        """Fills the empty segments of a partly translated target."""
        attribute = self._source.attribute
        by_id = {attribute(mark, "mid"): mark for mark in self._marks(target)}
        for mark in marks:
            empty = by_id.get(attribute(mark, "mid"))
            if empty is not None and is_blank(self._source.content(empty)):
                region = empty.start, empty.end
                unit = self._make_unit(mark, region, self._tags(empty), keeps_blanks)
                if unit is not None:
                    yield unit

    def _grouped_units(
        self,
        segmented: Element,
        marks: Sequence[Element],
        region: tuple[int, int],
        tags: tuple[str, str],
        keeps_blanks: bool,
    ) -> Iterator[Unit]:
        """Yields a unit for each segment of a source; copies the text between them."""
        text, place = self._source.text, segmented.inner
        self._n_groups += 1
        group: list[Unit] = []
        for mark in marks:
            # all are written at the same position of the file, one after the other
            start = region[1] if group else region[0]
            unit = self._make_unit(mark, (start, region[1]), ("", ""), keeps_blanks)
            if unit is not None:
                unit.group, unit.copied = self._n_groups, self._source.inside(mark)
                unit.around = text[place : mark.inner], ""
                place = mark.inner_end
                group.append(unit)
        if group:
            group[0].around = tags[0] + group[0].around[0], ""
            group[-1].around = group[-1].around[0], text[place : segmented.inner_end] + tags[1]
        yield from group

    def tmx(self, element: Element, declared: str | None) -> Unit | None:
        declared = self._source.attribute(element, "srclang") or declared
        language = self._settings.source_language or ("" if declared == "*all*" else declared or "")
        target_language = self._settings.target_language
        variants = [
            (self._language(variant), variant)
            for variant in element.children
            if variant.name == "tuv"
        ]
        origins = [
            variant
            for code, variant in variants
            if (_is_of(language, code) if language else not _is_of(target_language, code))
        ]
        origin = _child(origins[0], "seg") if origins else None
        if origin is None:
            return None
        for code, variant in variants:
            if _is_of(target_language, code):
                segment = _child(variant, "seg")
                if segment is None or not is_blank(self._source.content(segment)):
                    return None
                region = segment.start, segment.end
                return self._make_unit(origin, region, self._tags(segment), keeps_blanks=False)
        last = variants[-1][1]
        opening = f'<tuv xml:lang="{escape(target_language)}"><seg>'
        tags = self._indent(origins[0]) + opening, "</seg></tuv>"
        return self._make_unit(origin, (last.end, last.end), tags, keeps_blanks=False)

    def _language(self, variant: Element) -> str:
        attribute = self._source.attribute
        return attribute(variant, "xml:lang") or attribute(variant, "lang") or ""

    def _name(self, element: Element) -> str:
        return re.match(r"[^\s/>]+", self._source.tag(element)[1:])[0]  # type: ignore[index]

    def _tags(self, element: Element) -> tuple[str, str]:
        """Returns the tags of an element, which may be self-closing: <target/>."""
        opening = re.sub(r"\s*/>$", ">", self._source.tag(element))
        return opening, f"</{self._name(element)}>"

    def _indent(self, element: Element) -> str:
        text, place = self._source.text, element.start
        while text[place - 1].isspace():  # a child follows a tag, so this ends
            place -= 1
        return text[place : element.start]

    def _make_unit(
        self,
        origin: Element,
        region: tuple[int, int],
        tags: tuple[str, str],
        keeps_blanks: bool,
    ) -> Unit | None:
        """Builds a unit of the source's text for the target's region."""
        pieces = self._codes.pieces(origin)
        unit = build_unit(
            pieces, origin.name, joins_blanks=not keeps_blanks, region=region, render=write_codes
        )
        if unit is None:
            return None
        unit.segment = replace(unit.segment, is_message=origin.name != "seg")
        texts = (self._source.content(code) for code in origin.walk() if code.name == "sub")
        if number := sum(not is_blank(text) for text in texts):
            self._skipped["text in a code (sub)"] += number
        if is_in_cdata(pieces):
            unit.escape = escape_in_cdata
        unit.around, unit.fills = tags, True
        return unit


def _with_attribute(tag: str, name: str, value: str) -> str:
    """Sets an attribute in a tag that opens an element."""
    changed, count = re.subn(rf"""(\s{name}\s*=\s*)("[^"]*"|'[^']*')""", rf'\g<1>"{value}"', tag)
    return changed if count else f'{tag[:-1]} {name}="{value}">'
