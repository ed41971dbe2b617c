"""HTML markup that needs special care: templates, note marks, untranslated elements.

- Template expressions that produce text (`{{ name }}`) are copied inside their sentence. Control
  statements (`{% if %}`) separate sentences; otherwise a translation might reorder their parts.
- Note marks stay at the word before them; the model does not read them with the word, which would
  spoil its translation.
- `translate` applies to an element and its descendants, unless they override it (HTML standard
  3.2.6.5); `notranslate` is the class that Google Translate respects.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Literal

from tformer_cli.documents.segments import unescape

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_QUOTED = r""""[^"]*"|'[^']*'"""
# Quoted values and templates in a tag may contain > and <
TAG = re.compile(
    rf"</?[a-zA-Z](?:{_QUOTED}|<%(?:[^%<]|%(?!>))*%>|<\?(?:[^?<]|\?(?!>))*\?>|[^<>\"'])*>"
)
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+)))?""")
_TAG_NAME = re.compile(r"</?[^\s/>]+")

TemplateKind = Literal["text", "program", "comment"]


def attributes(tag: str) -> dict[str, str]:
    """Reads the attributes of a tag; of duplicates, the first counts."""
    values: dict[str, str] = {}
    start = _TAG_NAME.match(tag)
    for match in _ATTRIBUTE.finditer(tag, start.end() if start else 0):
        values.setdefault(match[1].lower(), unescape(match[2] or match[3] or match[4] or ""))
    return values


_STATEMENTS = "if|else|elseif|end|range|with|template|block|define|for|foreach|while|include"
_TEMPLATES: tuple[tuple[TemplateKind, str, str], ...] = (
    # JSP, ERB, EJS, ASP; Underscore
    ("comment", "<%--", "--%>"),
    ("text", r"<%[=:#-]", "%>"),
    ("program", "<%", "%>"),
    # PHP, but not other instructions (<?xml ?>, <?pagebreak?>)
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
"""Maximum length of a template; anything longer is text."""
BEGINNING = re.compile(r"<|\{[{%#/:@!$a-z]|\[%|[$#]\{")
"""Possible starts of markup."""
_TEMPLATE_BEGINNING = re.compile(r"<[%?#@]|</[#@]|[^<]")


def template_at(text: str, place: int) -> tuple[str, TemplateKind] | None:
    """Reads a template that starts at a place."""
    if _TEMPLATE_BEGINNING.match(text, place):
        for kind, opening, closing in _COMPILED:
            if match := opening.match(text, place):
                end = text.find(closing, match.end(), place + _LONGEST[kind])
                if end >= 0:
                    return text[place : end + len(closing)], kind
    return None


_TAGS = re.compile(r"<[^<>]*>")
_NUMBER = r"[\[(]?\d{1,3}[\])]?|\[\w{1,3}\]|[*\u2020\u2021\u00a7\u00b6]+"
_MARK = r"[\[(]?\w{1,4}[\])]?"
# Limited length: otherwise many unclosed ones would take quadratic time
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
    """Reads a note mark: a raised number or a link to a note."""
    if match := _RAISED.match(text, place):
        mark, link = _visible_text(match[1]), _LINK.search(match[1])
        is_note = link is not None and _names_note(link[0]) and _IN_BRACKETS.fullmatch(mark)
        return match[0] if is_note or _IS_NUMBER.fullmatch(mark) else None
    match = _LINKED.match(text, place)
    mark = _visible_text(match[2]) if match else ""
    if match is None or not _IS_MARK.fullmatch(mark):
        return None
    values = attributes(match[1])
    kinds = f"{values.get('epub:type', '')} {values.get('role', '')}".lower().split()
    if not _NOTE_TYPES.isdisjoint(kinds):
        return match[0]
    if not _IS_NUMBER.fullmatch(mark):
        return None
    # After a blank it is a separate word: "see page <a href=#p3>3</a>"
    is_attached = place > 0 and not text[place - 1].isspace() and text[place - 1] != ">"
    is_linked = _names_note(match[1]) or ("#" in values.get("href", "") and is_attached)
    return match[0] if is_linked else None


def _visible_text(markup: str) -> str:
    """Returns the text between tags, without blanks."""
    return "".join(unescape(_TAGS.sub("", markup)).split())


def _names_note(link: str) -> bool:
    """True if the classes or the target of a link name a note."""
    values = attributes(link)
    target = values.get("href", "").rpartition("#")
    names = [*values.get("class", "").split(), target[2] if target[1] else ""]
    return any(map(_NOTE_WORD.search, names))


_SCOPES = "caption html marquee object table td template th"
_BLOCKS = (
    "address article aside blockquote center details dir div dl dd dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 header hgroup li main menu nav ol p section summary ul"
)
_FORMATS = "a b big code em font i nobr s small strike strong tt u"
_BOUNDARIES = frozenset(_SCOPES.split())
"""Elements that limit closing tags: a tag inside one closes nothing outside."""
_CLOSES_PARAGRAPH = frozenset((*_BLOCKS.split(), "dialog", "hr", "pre", "table"))
_SPECIAL = _BOUNDARIES.union(_BLOCKS.split(), ("body", "button", "tbody", "tfoot", "thead", "tr"))
_FORMATTING = frozenset(_FORMATS.split())
_ITEMS = {"li": ("li",), "dd": ("dd", "dt"), "dt": ("dd", "dt")}
_CELLS = ("td", "th")
_GROUPS = ("tbody", "thead", "tfoot")
_CONTEXTS = {
    **dict.fromkeys(_CELLS, ("tr", "table", "template", "html")),
    "tr": (*_GROUPS, "table", "template", "html"),
    **dict.fromkeys((*_GROUPS, "caption", "colgroup"), ("table", "template", "html")),
}
"""Table parts, and the elements that limit what each one closes."""
_DEEPEST = 512
"""Maximum nesting of elements, as in browsers."""


_KEPT_CLASS = re.compile(r"notranslate|material-(?:icons|symbols)(?:-\w+)?")
"""Class of Google Translate, and classes of icon fonts, which show a word as an icon."""


def is_translated(tag: str) -> bool | None:
    """Returns whether a tag asks to translate its element; None if it says nothing."""
    if "translate" not in tag.lower() and "material-" not in tag:
        return None
    values = attributes(tag)
    value = values.get("translate", "no such value").strip().lower()
    if value in ("yes", "no", ""):
        return value != "no"
    is_kept = any(map(_KEPT_CLASS.fullmatch, values.get("class", "").split()))
    return False if is_kept else None


class KeptRegions:
    """Tracks the open elements of a page, and which of them stay untranslated.

    Elements without closing tags end as in browsers (HTML standard 13.2.6.4.7); elements that
    browsers would move or reopen are not.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, bool]] = []
        self._counts: Counter[str] = Counter()

    @property
    def is_kept(self) -> bool:
        return bool(self._open) and self._open[-1][1]

    def open(self, name: str, tag: str) -> None:
        if name in _CLOSES_PARAGRAPH:
            self._close_to(self._find(("p",), _BOUNDARIES | {"button"}))
        if name in _ITEMS:
            self._close_to(self._find(_ITEMS[name], _SPECIAL - {"address", "div", "p"}))
        if name in _CONTEXTS and (context := self._find(_CONTEXTS[name], ())) is not None:
            self._close_to(context + 1)
        if name in ("option", "optgroup") and self._open and self._open[-1][0] == "option":
            self._close_to(len(self._open) - 1)
        translates = is_translated(tag)
        if len(self._open) < _DEEPEST:
            self._open.append((name, self.is_kept if translates is None else not translates))
            self._counts[name] += 1

    def close(self, name: str) -> None:
        if name == "table" or name in _CONTEXTS:
            self._close_to(self._find((name,), ("html", "table", "template")))
        elif name in _FORMATTING:  # the elements inside it stay open
            if (number := self._find((name,), _BOUNDARIES)) is not None:
                del self._open[number]
                self._counts[name] -= 1
        elif name in _SPECIAL:
            lists = ("ol", "ul") if name == "li" else ()
            self._close_to(self._find((name,), _BOUNDARIES.union(lists)))
        else:
            self._close_to(self._find((name,), _SPECIAL))

    def _find(self, names: Collection[str], ends: Collection[str]) -> int | None:
        """Finds the innermost open element with one of some names, up to an element in `ends`."""
        if not any(self._counts[name] for name in names):
            return None
        for number in range(len(self._open) - 1, -1, -1):
            if self._open[number][0] in names:
                return number
            if self._open[number][0] in ends:
                return None
        return None

    def _close_to(self, number: int | None) -> None:
        if number is not None:
            self._counts.subtract(name for name, _ in self._open[number:])
            del self._open[number:]


_SKIPPED_IN_DRAWINGS = re.compile(r"(?is)<(style|script)\b.*?</\1\s*>|<!--.*?-->")
_DRAWN = re.compile(r">([^<>]*[^\W\d_][^<>]*)(?=<)")


def drawn_texts(drawing: str) -> Iterator[tuple[int, int]]:
    """Finds texts in an SVG: labels, titles and descriptions."""
    hidden = [match.span() for match in _SKIPPED_IN_DRAWINGS.finditer(drawing)]
    for match in _DRAWN.finditer(drawing):
        if not any(start <= match.start(1) < end for start, end in hidden):
            yield match.span(1)
