"""Markup in HTML that needs more than its tag: templates, marks of notes, what is not translated.

- Templates: what writes a text (`{{ name }}`) is copied in its sentence; what steers the program
  (`{% if %}`) parts sentences, or a translation might change the order of its parts.
- Marks of notes stay at the word before them: read with it, they would spoil its translation.
- `translate` holds for an element and all in it, until an element there says otherwise (HTML
  standard 3.2.6.5); `notranslate` is the class that Google's translation looks for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tformer_cli.documents.segments import unescaped

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUOTED = r""""[^"]*"|'[^']*'"""
# In quotes and in templates a tag may hold > and <
TAG = re.compile(
    rf"</?[a-zA-Z](?:{_QUOTED}|<%(?:[^%<]|%(?!>))*%>|<\?(?:[^?<]|\?(?!>))*\?>|[^<>\"'])*>"
)
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+)))?""")
_TAG_NAME = re.compile(r"</?[^\s/>]+")

TemplateKind = Literal["text", "program", "comment"]


def attributes(tag: str) -> dict[str, str]:
    """Reads the attributes of a tag; the first of two with one name holds."""
    values: dict[str, str] = {}
    start = _TAG_NAME.match(tag)
    for found in _ATTRIBUTE.finditer(tag, start.end() if start else 0):
        values.setdefault(found[1].lower(), unescaped(found[2] or found[3] or found[4] or ""))
    return values


_STATEMENTS = "if|else|elseif|end|range|with|template|block|define|for|foreach|while|include"
_TEMPLATES: tuple[tuple[TemplateKind, str, str], ...] = (
    # JSP, ERB, EJS, ASP; Underscore
    ("comment", "<%--", "--%>"),
    ("text", r"<%[=:#-]", "%>"),
    ("program", "<%", "%>"),
    # PHP; other instructions (<?xml ?>, <?pagebreak?>) are none
    ("text", r"<\?(?:=|php\s+(?:echo|print)\b)", "?>"),
    ("program", r"<\?(?:php)?(?=\s)", "?>"),
    # FreeMarker
    ("comment", "<#--", "-->"),
    ("program", "</?[#@][a-zA-Z]", ">"),
    # Handlebars, Mustache, Go
    ("comment", r"\{\{~?!", "}}"),
    ("program", rf"\{{\{{[~-]?\s*(?:[#/^>]|(?:{_STATEMENTS})\b)", "}}"),
    # Jinja, Django, Twig, Liquid, Vue, Angular; Blade
    ("text", r"\{\{\{", "}}}"),
    ("text", r"\{\{", "}}"),
    ("text", r"\{!!", "!!}"),
    ("program", r"\{%", "%}"),
    ("comment", r"\{#", "#}"),
    # Svelte; Smarty
    ("program", r"\{[#/:@][a-z]+(?=[^{}\n]{0,200}\})", "}"),
    ("text", r"\{\$(?=\w[^{}\n]{0,200}\})", "}"),
    ("program", rf"\{{(?:{_STATEMENTS})(?=[\s}}][^{{}}\n]{{0,200}})", "}"),
    # Template Toolkit
    ("comment", r"\[%[-+]?#", "%]"),
    ("program", r"\[%[-+]?\s*[A-Z]{2,}\b", "%]"),
    ("text", r"\[%", "%]"),
    # JSP, Thymeleaf, JavaScript
    ("text", r"[$#]\{(?=[^{}<>\n]{1,200}\})", "}"),
)
_COMPILED = [(kind, re.compile(opening), closing) for kind, opening, closing in _TEMPLATES]
_LONGEST = {"text": 1000, "program": 5000, "comment": 5000}
"""Characters within which a template ends: else it is text."""
BEGINNING = re.compile(r"<|\{[{%#/:@!$a-z]|\[%|[$#]\{")
"""Where markup may begin."""
_TEMPLATE_BEGINNING = re.compile(r"<[%?#@]|</[#@]|[^<]")


def template_at(text: str, place: int) -> tuple[str, TemplateKind] | None:
    """Reads what a program writes its own text for."""
    if _TEMPLATE_BEGINNING.match(text, place):
        for kind, opening, closing in _COMPILED:
            if found := opening.match(text, place):
                end = text.find(closing, found.end(), place + _LONGEST[kind])
                if end >= 0:
                    return text[place : end + len(closing)], kind
    return None


_TAGS = re.compile(r"<[^<>]*>")
_NUMBER = r"[\[(]?\d{1,3}[\])]?|\[\w{1,3}\]|[*\u2020\u2021\u00a7\u00b6]+"
_MARK = r"[\[(]?\w{1,4}[\])]?"
# A few tags and characters, or each of many unclosed ones would be read again and again
_INSIDE = r"((?:<[a-z/!][^<>]*>|[^<>]){1,100}?)"
_RAISED = re.compile(rf"<sup\b[^<>]*>{_INSIDE}</sup>", re.IGNORECASE)
_LINKED = re.compile(rf"(<a\b[^<>]*>){_INSIDE}</a\s*>", re.IGNORECASE)
_LINK = re.compile(r"<a\b[^<>]*>", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\[[^\[\]]{1,20}\]")
_IS_NUMBER = re.compile(_NUMBER)
_IS_MARK = re.compile(f"{_NUMBER}|{_MARK}")
_NOTE_TYPES = frozenset(("noteref", "doc-noteref", "biblioref", "doc-biblioref"))
_NOTE_WORD = re.compile(
    r"(?:^|[-_])_?(?:sd)?(?:ftn|edn|fn|foot-?note|end-?note|note|cite_note|cite|bib)(?:ref)?(?![a-z])",
    re.IGNORECASE,
)


def note_mark_at(text: str, place: int) -> str | None:
    """Reads the mark of a note: a raised number, or a link to a note."""
    if found := _RAISED.match(text, place):
        mark, link = _shown(found[1]), _LINK.search(found[1])
        is_note = link is not None and _names_note(link[0]) and _IN_BRACKETS.fullmatch(mark)
        return found[0] if is_note or _IS_NUMBER.fullmatch(mark) else None
    found = _LINKED.match(text, place)
    mark = _shown(found[2]) if found else ""
    if found is None or not _IS_MARK.fullmatch(mark):
        return None
    values = attributes(found[1])
    kinds = f"{values.get('epub:type', '')} {values.get('role', '')}".lower().split()
    if not _NOTE_TYPES.isdisjoint(kinds):
        return found[0]
    if not _IS_NUMBER.fullmatch(mark):
        return None
    # Behind a blank it is a word of its own: "see page <a href=#p3>3</a>"
    is_attached = place > 0 and not text[place - 1].isspace() and text[place - 1] != ">"
    is_linked = _names_note(found[1]) or ("#" in values.get("href", "") and is_attached)
    return found[0] if is_linked else None


def _shown(markup: str) -> str:
    """Returns the characters between tags, without blanks."""
    return "".join(unescaped(_TAGS.sub("", markup)).split())


def _names_note(link: str) -> bool:
    """Returns whether a link names a note, by its classes or its target."""
    values = attributes(link)
    target = values.get("href", "").rpartition("#")
    names = [*values.get("class", "").split(), target[2] if target[1] else ""]
    return any(map(_NOTE_WORD.search, names))


_CLOSERS = {
    "p": "address article aside blockquote details div dl fieldset figure footer form h1 h2 h3 h4 "
    "h5 h6 header hr main menu nav ol p pre section table ul",
    "li": "li",
    "dt": "dt dd",
    "dd": "dt dd",
    "tr": "tr tbody tfoot",
    "td": "td th tr tbody tfoot",
    "th": "td th tr tbody tfoot",
    "thead": "tbody tfoot",
    "tbody": "tbody tfoot",
    "option": "option optgroup",
}
_CLOSED_BY = {name: frozenset(names.split()) for name, names in _CLOSERS.items()}
"""Elements that need no closing tag, and the elements before which they end."""


_KEPT_CLASS = re.compile(r"notranslate|material-(?:icons|symbols)(?:-\w+)?")
"""What Google's translation looks for, and fonts that show a word as an icon."""


def is_translated(tag: str) -> bool | None:
    """Returns what a tag says about the translation of its element; None: nothing."""
    if "translate" not in tag.lower() and "material-" not in tag:
        return None
    values = attributes(tag)
    said = values.get("translate", "no such value").strip().lower()
    if said in ("yes", "no", ""):
        return said != "no"
    is_kept = any(map(_KEPT_CLASS.fullmatch, values.get("class", "").split()))
    return False if is_kept else None


@dataclass(slots=True)
class _Region:
    """An element that says whether it is translated."""

    name: str
    is_kept: bool
    depth: int = 1
    """Elements of this name that are open in it, itself included."""
    inner: int = 0
    """Elements that need a closing tag and are open in it."""


class KeptRegions:
    """The regions of a page that are not translated, as its tags pass by."""

    def __init__(self) -> None:
        self._regions: list[_Region] = []
        self._named: defaultdict[str, list[_Region]] = defaultdict(list)

    @property
    def is_kept(self) -> bool:
        return bool(self._regions) and self._regions[-1].is_kept

    def open(self, name: str, tag: str, *, is_block: bool) -> None:
        top = self._regions[-1] if self._regions else None
        if top and not top.inner and name in _CLOSED_BY.get(top.name, ()):
            self._end(top)
        said = is_translated(tag)
        if said is not None and said is self.is_kept:
            region = _Region(name, not said)
            self._regions.append(region)
            self._named[name].append(region)
            return
        if self._regions and is_block and name not in _CLOSED_BY:
            self._regions[-1].inner += 1
        if self._named[name]:
            self._named[name][-1].depth += 1

    def close(self, name: str, *, is_block: bool) -> None:
        top = self._regions[-1] if self._regions else None
        if top and is_block and name != top.name and name not in _CLOSED_BY:
            if top.inner:
                top.inner -= 1
            elif top.name in _CLOSED_BY:  # its parent ends
                self._end(top)
        if self._named[name]:
            region = self._named[name][-1]
            region.depth -= 1
            if region.depth == 0:
                self._end(region)

    def _end(self, region: _Region) -> None:
        while True:
            last = self._regions.pop()
            self._named[last.name].pop()
            if last is region:
                return


_SKIPPED_IN_DRAWINGS = re.compile(r"(?is)<(style|script)\b.*?</\1\s*>|<!--.*?-->")
_DRAWN = re.compile(r">([^<>]*[^\W\d_][^<>]*)(?=<)")


def drawn_texts(drawing: str) -> Iterator[tuple[int, int]]:
    """Finds the texts in an SVG: labels, titles and descriptions."""
    hidden = [found.span() for found in _SKIPPED_IN_DRAWINGS.finditer(drawing)]
    for found in _DRAWN.finditer(drawing):
        if not any(start <= found.start(1) < end for start, end in hidden):
            yield found.span(1)
