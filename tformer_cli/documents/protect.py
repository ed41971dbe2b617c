"""Texts that a translation has to copy: placeholders, addresses, code, numbers, emoji.

The model reads it with the sentence, which is better for the words around it than a gap would be.
What it does not copy is put where it wrote something else for it, or between the neighbors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tformer_cli.documents.projection import Link, Range, project
from tformer_cli.documents.segments import Segment, Span, with_copied

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Not "20th", "1990s", "3 p.m.": their letters are translated, and often the number with them
_UNIT = r"(?:[kMGTP]i?B|[kMG]?[Hh]z|[kMm]?[WVA]|[kcmµn]?m|[kmµ]?g|[mcd]?[lL]|ms|px|pt|°[CF]?|%)"
_NUMBER = (
    r"(?<![\w.,])\d(?:[\d.,:/'’\u00a0\u202f-]*\d)(?:\s?" + _UNIT + r"(?![\w])|(?![\w]))"
    r"(?!\s?[ap]\.?m\b)"
)
_PICTURES = (
    r"[\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
    r"[\u200d\u20e3\ufe0f\u2600-\u27bf\U0001f000-\U0001faff\U000e0020-\U000e007f]*"
)
_COPIED = re.compile(
    "|".join(
        (
            r"`[^`\n]+`",
            r"\b(?:https?|ftps?|file)://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]}]|\bwww\.[\w-]+\.[^\s<>\"'`]*[\w/]",
            r"(?:\bmailto:)?\b[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+",
            r"\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}|[$#]?\{[\w.!:#,\[\]-]*\}|\$[A-Za-z_]\w*",
            r"%\([^()\s]*\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]",
            r"(?<![\d%])%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh?|ll?|L|z|j|t)?[diouxXeEfFgGcrsap@](?!\w)",
            r"(?<![\d%])%L?\d{1,2}(?!\w)",
            r"(?<![\w/])(?:~?/[\w.-]*\w){2,}/?|\b[A-Z]:\\[^\s<>\"'`]+",
            r"(?<![\w-])--[a-zA-Z][\w-]*|(?<!\w)[@#][A-Za-z_]\w*",
            r"(?<![\w.])v?\d+(?:\.\d+){2,}(?![\w])",
            rf"(?P<number>{_NUMBER})",
            _PICTURES,
        )
    )
)
_ANY_NUMBER = re.compile(r"\d[\d.,:/'’\u00a0\u202f -]*\d|\d")
_ELIDED = re.compile(r"['’]\w+")


def protected(segment: Segment) -> Segment:
    """Adds a span around each text that has to be copied."""
    spans: Sequence[Span] = segment.spans
    for start, end in _found(segment):
        spans = with_copied(spans, Span(start, end, "protected"))
    return segment if spans is segment.spans else replace(segment, spans=tuple(spans))


def _found(segment: Segment) -> Iterator[Range]:
    """Finds texts that are neither copied already nor cut by markup."""
    spans = segment.spans
    kept = [one for one in spans if one.behavior == "protected"]
    edges = {place for one in spans for place in (one.start, one.end)}
    for match in _COPIED.finditer(segment.text):
        start, end = match.span()
        is_copied = any(one.start < end and start < one.end for one in kept)
        if not is_copied and not any(start < place < end for place in edges):
            yield start, end


@dataclass(frozen=True)
class Restored:
    """A translation that has all that had to be copied."""

    text: str
    links: Sequence[Link]
    fixed: Mapping[int, Range]
    """Characters of each protected span, by its number."""
    n_restored: int
    """Spans that the model did not copy."""


def restored(source: Segment, text: str, links: Sequence[Link]) -> Restored:
    """Puts what a translation lacks of its protected spans into it."""
    wanted = {
        number: source.text[span.start : span.end]
        for number, span in enumerate(source.spans)
        if span.behavior == "protected" and source.text[span.start : span.end].strip()
    }
    if not wanted:
        return Restored(text, links, {}, 0)
    found = _copied(wanted, text)
    missing = [number for number in wanted if number not in found]
    if not missing:
        return Restored(text, links, found, 0)
    # The places of what was written instead are those of a link's words
    order = [*wanted]
    flat = replace(
        source, spans=tuple(replace(source.spans[n], opening=str(n), depth=0) for n in order)
    )
    fixed = {order.index(n): place for n, place in found.items()}
    places = project(flat, text, links, fixed, takes_free=False).spans
    for span in reversed(places):
        number = int(span.opening)
        if number not in missing:
            continue
        if span.start == span.end and (elided := _ELIDED.match(text, max(0, span.start - 1))):
            span = replace(span, start=elided.end(), end=elided.end())
        copied = _with_blanks(source, number, wanted[number], text, span)
        start = span.start + copied.index(wanted[number])
        text = text[: span.start] + copied + text[span.end :]
        more = len(copied) - (span.end - span.start)
        links = [
            one if a < span.end else Link((a + more, b + more), one.source)
            for one in links
            for a, b in (one.target,)
            if b <= span.start or a >= span.end
        ]
        found = {
            n: (a + more, b + more) if a >= span.end else (a, b) for n, (a, b) in found.items()
        }
        found[number] = (start, start + len(wanted[number]))
    return Restored(text, links, found, len(missing))


def _copied(wanted: Mapping[int, str], text: str) -> dict[int, Range]:
    """Finds the protected spans that a translation has, each once; numbers in any notation."""
    found: dict[int, Range] = {}
    taken: list[Range] = []
    # A short one may be a part of a long one
    for number, copied in sorted(wanted.items(), key=lambda one: (-len(one[1]), one[0])):
        places = [match.span() for match in _whole(copied).finditer(text)]
        if not places and _ANY_NUMBER.fullmatch(copied):
            notation = _notation(copied)
            places = [
                match.span()
                for match in _ANY_NUMBER.finditer(text)
                if _notation(match[0]) == notation
            ]
        for start, end in places:
            if not any(a < end and start < b for a, b in taken):
                found[number] = (start, end)
                taken.append((start, end))
                break
    return found


def _notation(number: str) -> tuple[str, int]:
    """Returns the digits of a number, and how many kinds of marks stand between them."""
    return re.sub(r"\D", "", number), len(set(re.sub(r"\d", "", number)))


def _whole(copied: str) -> re.Pattern[str]:
    """Makes a pattern for a text that is no part of a word or number."""
    before = r"(?<!\w)" if copied[0].isalnum() else ""
    behind = r"(?!\w)" if copied[-1].isalnum() else ""
    return re.compile(before + re.escape(copied) + behind)


def _with_blanks(source: Segment, number: int, copied: str, text: str, place: Span) -> str:
    """Adds spaces where a text had them and would now stand at a word."""
    span = source.spans[number]
    before, behind = text[: place.start][-1:], text[place.end :][:1]
    if not source.text[: span.start][-1:].strip() and before and not before.isspace():
        copied = " " + copied
    if not source.text[span.end :][:1].strip() and behind.isalnum():
        copied += " "
    return copied
