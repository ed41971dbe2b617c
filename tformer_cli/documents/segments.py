"""Segments of a document: text that is translated as one, and the markup in it.

A format finds the segments and keeps every other byte. A segment that comes back as it was is
written by its original bytes, so that a document which nobody translates stays what it was.
"""

from __future__ import annotations

import codecs
import html
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, Protocol

from tformer_cli.documents.placeholders import COPIED
from tformer_cli.errors import DataError
from tformer_cli.wording import is_blank

Behavior = Literal["once", "repeat", "void", "protected"]
"""once: exactly one run of words (links, notes). repeat: may be split into several runs (bold).
void: has no text (a break, an image). protected: its text is copied."""


@dataclass(frozen=True, slots=True)
class Span:
    """Characters of a segment's text with markup around them."""

    start: int
    end: int
    """The character behind the last; of a void span the same as the start."""
    behavior: Behavior
    opening: str = ""
    """Markup before it, verbatim. Void and protected: written instead of the characters; a
    protected span without it writes its characters."""
    closing: str = ""
    depth: int = 0
    """Number of spans around it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Text that is translated as one, with the markup in it."""

    text: str
    """As a reader sees it: entities decoded, blanks of markup joined; it may have line ends."""
    spans: tuple[Span, ...] = ()
    """Nested or disjoint, in the order in which they open."""
    context: str = ""
    """Where it stands, for the summary: "p", "cue 12"."""
    before: str = ""
    """Blanks around it, which are copied."""
    after: str = ""
    is_message: bool = False
    """True for a text of a program: it may have syntax that prose has not."""


def with_copied(spans: Sequence[Span], copied: Span) -> list[Span]:
    """Adds a protected span, within those that have all of its text; no span may have a part."""
    start, end = copied.start, copied.end
    index = next((n for n, one in enumerate(spans) if one.start >= end), len(spans))
    depth = sum(
        one.start <= start and end <= one.end and one.behavior in ("once", "repeat")
        for one in spans
    )
    return [*spans[:index], replace(copied, depth=depth), *spans[index:]]


class Document(Protocol):
    """A document that was read."""

    @property
    def segments(self) -> Sequence[Segment]: ...

    @property
    def skipped(self) -> Mapping[str, int]:
        """Text that stays as it is because the reader cannot place it: kinds, and how often."""

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        """Writes the document with other segments; None: it stays, byte for byte."""


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """Settings that a format may ask for besides the bytes."""

    name: str = "document"
    """The file, for errors."""
    source_language: str = ""
    target_language: str = ""
    """Code for attributes that tell a language; empty: they stay."""
    keys: tuple[str, ...] = ()
    """Paths of the values to translate; none: all texts."""
    fills_fuzzy: bool = False
    """Translates again what is marked as doubtful."""
    unwraps: bool = False
    """Joins the lines of a paragraph."""


Reader = Callable[[bytes, ReadSettings], Document]


class SegmentBuilder:
    """Collects text and markup in the order of a document, and makes a segment of them."""

    def __init__(self, context: str = "", *, joins_blanks: bool = False) -> None:
        self.context = context
        self.is_message = False
        self._joins_blanks = joins_blanks
        self._text = ""
        self._spans: list[Span] = []
        self._open: list[int] = []

    @property
    def depth(self) -> int:
        return len(self._open)

    @property
    def is_blank(self) -> bool:
        """Returns whether there is nothing to translate."""
        return is_blank(self._text)

    def text(self, text: str) -> None:
        joins = self._joins_blanks or self.is_message
        last = self._spans[-1] if self._spans and joins else None
        # An image between two blanks keeps both, of which the text has one
        if last is not None and (last.behavior, last.start) == ("void", len(self._text)):
            rest = text.lstrip(_BLANKS)
            if rest != text and self._text[-1:] in _BLANKS:
                self._spans[-1] = replace(last, opening=last.opening + " ")
                text = rest
        self._text += text

    def open(self, opening: str, behavior: Behavior = "repeat") -> None:
        self._open.append(len(self._spans))
        place = len(self._text)
        self._spans.append(Span(place, place, behavior, opening, depth=self.depth - 1))

    def close(self, closing: str) -> None:
        """Closes the span that was opened last."""
        number = self._open.pop()
        end = len(self._text)
        self._spans[number] = replace(self._spans[number], end=end, closing=closing)

    def void(self, opening: str) -> None:
        place = len(self._text)
        self._spans.append(Span(place, place, "void", opening, depth=self.depth))

    def protected(self, text: str, written: str = "") -> None:
        """Adds text that is copied; `written`: what the document has in its place."""
        place = len(self._text)
        self._text += text
        self._spans.append(Span(place, place + len(text), "protected", written, depth=self.depth))

    def build(self) -> Segment:
        """Makes the segment: blanks at its ends stand outside, and those in it may be joined."""
        text = self._text
        start = len(text) - len(text.lstrip())
        end = max(start, len(text.rstrip()))
        if self.is_message:  # "<1/> new": the blank stays behind the tag
            voids = [span.start for span in self._spans if span.behavior == "void"]
            start, end = min([start, *voids]), max([end, *voids])
        inner = text[start:end]
        places: Sequence[int] = range(end - start + 1)
        if self._joins_blanks:
            inner, places = _joined_blanks(inner)

        def moved(place: int) -> int:
            return places[min(max(place, start), end) - start]

        spans = (replace(s, start=moved(s.start), end=moved(s.end)) for s in self._spans)
        around = text[:start], text[end:]
        return Segment(inner, tuple(spans), self.context, *around, self.is_message)


# A number names a component of i18next
_TAG = re.compile(r"<(/?)([a-zA-Z][\w:-]*+|\d+)(?:\s[^<>]*)?/?>")

_DEEPEST = 50
"""Tags in each other; what is deeper has no partner."""
_VOID = {"br", "hr", "img", "input", "wbr"}


def partners(tags: Sequence[re.Match[str]]) -> dict[int, Literal["open", "close"]]:
    """Finds the tags that are opened and closed; others (a voice until the end) are void.

    Groups 1 and 2 of a match are the slash of a closing tag and the name.
    """
    kinds: dict[int, Literal["open", "close"]] = {}
    opened: list[tuple[int, str]] = []
    numbers_open = Counter[str]()
    for number, tag in enumerate(tags):
        name = tag[2] and tag[2].lower()
        if name and not tag[1]:
            is_open = not tag[0].endswith("/>") and name not in _VOID
            if is_open and len(opened) < _DEEPEST:
                opened.append((number, name))
                numbers_open[name] += 1
        elif name and numbers_open[name]:
            # What is still open in it, as in "<b>open <file></b>", is closed by nothing
            while True:
                opener, inner = opened.pop()
                numbers_open[inner] -= 1
                if inner == name:
                    break
            kinds[opener], kinds[number] = "open", "close"
    return kinds


def add_message(
    builder: SegmentBuilder,
    text: str,
    add: Callable[[str], None],
    written: Callable[[str], str] = str,
) -> None:
    """Adds a message, whose tags of HTML are markup, as programs show it.

    `add` takes the text between, and `written` gives what the document has for a tag.
    """
    builder.is_message = True
    place = 0
    # "%<city>s" has no tag
    taken = [found.span() for found in COPIED[True].finditer(text) if found.lastgroup]
    ends = [end for _, end in taken]
    tags = [
        tag
        for tag in _TAG.finditer(text)
        if (n := bisect_right(ends, tag.start())) == len(taken) or tag.end() <= taken[n][0]
    ]
    kinds = partners(tags)
    for number, tag in enumerate(tags):
        add(text[place : tag.start()])
        if kinds.get(number) == "open":
            builder.open(written(tag[0]), "once" if tag[2].isdecimal() else "repeat")
        elif number in kinds:
            builder.close(written(tag[0]))
        elif tag[2].lower() in _VOID or tag[0].endswith("/>"):
            builder.void(written(tag[0]))
        else:  # as in "open <file>", where a word stands for another
            builder.protected(tag[0], written(tag[0]))
        place = tag.end()
    add(text[place:])


_BLANKS = " \t\r\n\f"
_JOINED = re.compile(f"[{_BLANKS}]+")


def _joined_blanks(text: str) -> tuple[str, Sequence[int]]:
    """Makes one space of each run of blanks; also returns where each character went."""
    # The first character of a run stays, as a space
    stays = [True] * len(text)
    for found in _JOINED.finditer(text):
        stays[found.start() + 1 : found.end()] = [False] * (len(found[0]) - 1)
    return _JOINED.sub(" ", text), list(accumulate(stays, initial=0))


def walked(segment: Segment) -> Iterator[str | tuple[Span, bool]]:
    """Yields text and spans in the order in which they are written; True: the span ends here."""
    place = 0
    open_spans: list[Span] = []

    def closed(depth: int) -> Iterator[str | tuple[Span, bool]]:
        nonlocal place
        while len(open_spans) > depth:
            yield segment.text[place : open_spans[-1].end]
            place = open_spans[-1].end
            yield open_spans.pop(), True

    for span in segment.spans:
        yield from closed(span.depth)
        yield segment.text[place : span.start]
        place = span.start
        yield span, False
        if span.behavior in ("void", "protected"):
            if span.opening:
                place = span.end
        else:
            open_spans.append(span)
    yield from closed(0)
    yield segment.text[place:]


def rendered(segment: Segment, escape: Callable[[str], str] = str) -> str:
    """Writes text and markup of a segment, without the blanks around it."""
    return "".join(
        escape(one) if isinstance(one, str) else one[0].closing if one[1] else one[0].opening
        for one in walked(segment)
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """A segment in the text of a document."""

    segment: Segment
    raw: str
    """Its text in the document, blanks around included."""
    escape: Callable[[str], str] = str
    """Writes characters of text as the format has to."""

    def written(self, translated: Segment | None) -> str:
        one = self.segment
        if translated is None or (translated.text, translated.spans) == (one.text, one.spans):
            return self.raw
        blanks = self.escape(one.before), self.escape(one.after)
        return rendered(translated, self.escape).join(blanks)


MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""Byte order marks, and the encodings of what follows them."""
LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ENDLESS = re.compile(r"&#[0-9]{1000,};?")


@dataclass(frozen=True, slots=True)
class Encoding:
    """The bytes of a file of text."""

    mark: bytes = b""
    """Byte order mark."""
    name: str = "utf-8"


class TextDocument:
    """A document that is text: what is copied, and slots of what is translated."""

    def __init__(self, parts: Sequence[str | Slot], encoding: Encoding | None = None) -> None:
        self.skipped: Counter[str] = Counter()
        self._parts = parts
        self._encoding = encoding or Encoding()

    @property
    def segments(self) -> list[Segment]:
        return [one.segment for one in self._parts if isinstance(one, Slot)]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        given = iter(translated)
        texts = [one.written(next(given)) if isinstance(one, Slot) else one for one in self._parts]
        return self._encoding.mark + "".join(texts).encode(self._encoding.name)


def decoded(data: bytes, settings: ReadSettings) -> tuple[str, Encoding]:
    """Decodes a file of text without its byte order mark; also returns how to encode it again."""
    marks = (Encoding(mark, name) for mark, name in MARKS.items() if data.startswith(mark))
    encoding = next(marks, Encoding())
    try:
        return data[len(encoding.mark) :].decode(encoding.name), encoding
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{settings.name}:{line}: is not text in UTF-8; convert it: iconv -f WINDOWS-1252 -t "
            "UTF-8"
        ) from None


def decoded_as(data: bytes, name: str) -> str | None:
    """Decodes what an encoding can write again, byte for byte; None: it is not in it."""
    try:
        text = data.decode(name)
        # Some write a text in many ways (UTF-7), and some cannot replace what they lack (IDNA)
        return text if text.encode(name, "xmlcharrefreplace") == data else None
    except (LookupError, UnicodeError):
        return None


def unescaped(text: str) -> str:
    """Decodes references as browsers do."""
    # Python makes no number of so many digits; browsers show this character, too
    return html.unescape(_ENDLESS.sub("\ufffd", text))
