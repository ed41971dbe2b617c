"""Segments of a document: units of text to translate, with their markup.

A format finds the segments and keeps every other byte. An unchanged segment is written with its
original bytes, so a document in which nothing is translated stays identical.
"""

from __future__ import annotations

import codecs
import html
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from tformer_cli.documents.placeholders import COPIED
from tformer_cli.errors import DataError
from tformer_cli.text.lines import wide_encoding
from tformer_cli.wording import is_blank

Behavior = Literal["once", "repeat", "void", "protected"]
"""once: exactly one run of words (links, notes). repeat: may be split into several runs (bold).
void: has no text (a break, an image). protected: its text is copied."""


@dataclass(frozen=True, slots=True)
class Span:
    """Characters of a segment's text with markup around them."""

    start: int
    end: int
    """One past the last character; equal to `start` for a void span."""
    behavior: Behavior
    opening: str = ""
    """Markup before it, verbatim. In void and protected spans it replaces the characters; a
    protected span without it writes its characters."""
    closing: str = ""
    depth: int = 0
    """Number of spans around it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A unit of text to translate, with its markup."""

    text: str
    """The text as a reader sees it: entities decoded, blanks joined; may contain line ends."""
    spans: tuple[Span, ...] = ()
    """Nested or disjoint, in opening order."""
    context: str = ""
    """Its position, for the summary: "p", "cue 12"."""
    before: str = ""
    """Blanks around it, copied unchanged."""
    after: str = ""
    is_message: bool = False
    """True for a message of a program, whose syntax prose does not have."""


def with_copied(spans: Sequence[Span], copied: Span) -> list[Span]:
    """Adds a protected span inside the spans that contain it; no span may overlap it in part."""
    start, end = copied.start, copied.end
    index = next((n for n, span in enumerate(spans) if span.start >= end), len(spans))
    depth = sum(
        span.start <= start and end <= span.end and span.behavior in ("once", "repeat")
        for span in spans
    )
    return [*spans[:index], replace(copied, depth=depth), *spans[index:]]


class Document(Protocol):
    """A document after reading."""

    @property
    def segments(self) -> Sequence[Segment]: ...

    @property
    def skipped(self) -> Mapping[str, int]:
        """Counts of text left untranslated because the reader cannot place it, by kind."""

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        """Writes the document with new segments; None keeps the original bytes."""


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """Settings for reading a document."""

    name: str = "document"
    """File name, for error messages."""
    source_language: str = ""
    target_language: str = ""
    """Code for attributes that declare a language; empty: leave them unchanged."""
    keys: tuple[str, ...] = ()
    """Paths of the values to translate; none: all texts."""
    columns: tuple[str, ...] = ()
    """Columns of a table to translate, by name, number or letter."""
    has_header: bool = True
    """True if the first row of a table has the names of its columns."""
    fills_fuzzy: bool = False
    """Translate entries marked as doubtful again."""
    unwraps: bool = False
    """Join the lines of a paragraph."""
    front_matter: bool = False
    """Translate the title and description in the front matter of a Markdown page."""
    encoding: str = ""
    """Encoding of a text file, as Python names it; empty: the declared one, or UTF-8."""
    most_segments: int | None = None
    """Maximum number of segments; None: no limit."""
    most_bytes: int | None = None
    """Maximum number of bytes, also when unpacked; None: only the readers' own limits."""


Reader = Callable[[bytes, ReadSettings], Document]


_PIECES_A_SEGMENT = 10
"""Maximum number of tags and texts in a text, for each segment allowed in the document."""


class TooLargeError(DataError):
    """A document is larger than its settings allow."""


class _Room:
    """Remaining limits of the document being read."""

    def __init__(self, settings: ReadSettings) -> None:
        self._settings, self._n_segments, self._n_bytes = settings, 0, 0

    def add_segment(self) -> None:
        self._n_segments += 1
        self._check(self._n_segments, self._settings.most_segments, "segments")

    def check_pieces(self, number: int) -> None:
        most = self._settings.most_segments
        self._check(number, most and most * _PIECES_A_SEGMENT, "tags in one text")

    def check_parts(self, number: int, a_segment: int) -> None:
        most = self._settings.most_segments
        self._check(number, most and most * a_segment, "parts")

    def check_bytes(self, number: int) -> None:
        self._check(number, self._settings.most_bytes, "bytes")

    def add_unpacked(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        self._check(self._n_bytes, self._settings.most_bytes, "bytes when unpacked")

    def _check(self, number: int, most: int | None, what: str) -> None:
        if most is not None and number > most:
            raise TooLargeError(f"{self._settings.name}: has more than {most:,} {what}; divide it")


_ROOM: ContextVar[_Room] = ContextVar("room")
"""Limits of the document being read; its readers make segments in many places."""
_ENDLESS_ROOM = _Room(ReadSettings())


def read_within_limits(reader: Reader, data: bytes, settings: ReadSettings) -> Document:
    """Reads a document; stops as soon as it exceeds the limits in the settings."""
    room = _Room(settings)
    room.check_bytes(len(data))
    token = _ROOM.set(room)
    try:
        return reader(data, settings)
    finally:
        _ROOM.reset(token)


def add_unpacked(n_bytes: int) -> None:
    """Counts unpacked bytes; refuses more than the settings allow."""
    _ROOM.get(_ENDLESS_ROOM).add_unpacked(n_bytes)


def check_parts(n_parts: int, a_segment: int) -> None:
    """Refuses a document with too many parts for its segment limit, before they are built."""
    _ROOM.get(_ENDLESS_ROOM).check_parts(n_parts, a_segment)


def check_pieces(n_pieces: int) -> None:
    """Refuses a text with more tags than the settings allow."""
    _ROOM.get(_ENDLESS_ROOM).check_pieces(n_pieces)


class SegmentBuilder:
    """Builds a segment from text and markup in document order."""

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
        """True if there is nothing to translate."""
        return is_blank(self._text)

    def text(self, text: str) -> None:
        joins = self._joins_blanks or self.is_message
        # An image between two blanks keeps both; the text keeps one of them
        if self._spans and joins and self._text[-1:] in _BLANKS:
            rest = text.lstrip(_BLANKS)
            number = self._void_here()
            if rest != text and number is not None:
                void = self._spans[number]
                self._spans[number] = replace(void, opening=void.opening + " ")
                text = rest
        self._text += text

    def _void_here(self) -> int | None:
        """Finds the last void span after the text; other spans may open after it."""
        for number in range(len(self._spans) - 1, -1, -1):
            span = self._spans[number]
            if span.start < len(self._text):
                return None
            if span.behavior == "void":
                return number
        return None

    def open(self, opening: str, behavior: Behavior = "repeat") -> None:
        self._open.append(len(self._spans))
        place = len(self._text)
        self._spans.append(Span(place, place, behavior, opening, depth=self.depth - 1))

    def close(self, closing: str) -> None:
        """Closes the innermost open span."""
        number = self._open.pop()
        end = len(self._text)
        self._spans[number] = replace(self._spans[number], end=end, closing=closing)

    def void(self, opening: str) -> None:
        place = len(self._text)
        self._spans.append(Span(place, place, "void", opening, depth=self.depth))

    def protect(self, text: str, written: str = "") -> None:
        """Adds text to copy; `written` is its spelling in the document."""
        place = len(self._text)
        self._text += text
        self._spans.append(Span(place, place + len(text), "protected", written, depth=self.depth))

    def build(self) -> Segment:
        """Builds the segment; moves blanks at its ends outside and may join the others."""
        _ROOM.get(_ENDLESS_ROOM).add_segment()
        text = self._text
        start = len(text) - len(text.lstrip())
        end = max(start, len(text.rstrip()))
        if self.is_message:  # "<1/> new": the blank stays after the tag
            voids = [span.start for span in self._spans if span.start == span.end]
            start, end = min([start, *voids]), max([end, *voids])
        inner = text[start:end]
        blanks = _Blanks(inner) if self._joins_blanks else None
        inner = blanks.joined if blanks else inner

        def move(place: int) -> int:
            place = min(max(place, start), end) - start
            return blanks.move(place) if blanks else place

        before, after = text[:start], text[end:]
        if not self._spans:
            return Segment(inner, (), self.context, before, after, self.is_message)
        if self._joins_blanks and (before or after):
            before, after = self._move_blanks(start, end)
        spans = (replace(s, start=move(s.start), end=move(s.end)) for s in self._spans)
        return Segment(inner, tuple(spans), self.context, before, after, self.is_message)

    def _move_blanks(self, start: int, end: int) -> tuple[str, str]:
        """Attaches blanks between the text and an image at its end to the image.

        Returns the blanks around the whole.
        """
        before, after = self._text[:start], self._text[end:]
        for number, span in enumerate(self._spans):
            if span.behavior != "void":
                continue
            if span.start < start:
                self._spans[number] = replace(span, opening=span.opening + " ")
                before = self._text[: span.start]
                start = 0
            elif span.start > end:
                self._spans[number] = replace(span, opening=" " + span.opening)
                after = self._text[span.start :]
                end = len(self._text)
        return before, after


# A number names a component of i18next
_TAG = re.compile(
    r"<(/?)([a-zA-Z][\w:-]*+|\d+)"
    # A quoted value may contain code: href="<?= $url ?>"
    r"""(?:(?:\s+[\w:@.-]+(?:=(?:"[^"]{0,999}+"|'[^']{0,999}+'|[^\s<>"'=]+))?)++\s*/?>|(?:\s[^<>]*)?/?>)"""
)

_DEEPEST = 50
"""Maximum nesting of tags; deeper tags are not paired."""
_CODE_TAGS = {"code", "kbd", "math", "samp", "script", "style", "svg", "var"}
_VOID = {"br", "hr", "img", "input", "wbr"}


def partners(tags: Sequence[re.Match[str]]) -> dict[int, Literal["open", "close"]]:
    """Pairs opening and closing tags; the others (a voice until the end) are void.

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
            # Tags still open inside it, as in "<b>open <file></b>", are never closed
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
    """Adds a message as programs show it: its HTML tags are markup.

    `add` takes the text between tags; `written` returns a tag's spelling in the document.
    """
    builder.is_message = True
    place = 0
    # "%<city>s" has no tag
    taken = [match.span() for match in COPIED[True].finditer(text) if match.lastgroup]
    ends = [end for _, end in taken]
    # A tag may contain a placeholder
    tags = [
        tag
        for tag in _TAG.finditer(text)
        if (n := bisect_right(ends, tag.start())) == len(taken) or tag.start() <= taken[n][0]
    ]
    kinds = partners(tags)
    after_code = 0
    for number, tag in enumerate(tags):
        if number < after_code:
            continue
        name = tag[2].lower()
        if kinds.get(number) == "open" and name in _CODE_TAGS:
            ends_here = (n for n in range(number, len(tags)) if tags[n][1] and tags[n][2] == tag[2])
            end = next(ends_here, None)
            shown = _TAG.sub("", text[tag.end() : tags[end].start()]).strip() if end else ""
            if end and shown:
                add(text[place : tag.start()])
                place, after_code = tags[end].end(), end + 1
                builder.protect(shown, written(text[tag.start() : place]))
                continue
        add(text[place : tag.start()])
        if kinds.get(number) == "open":
            builder.open(written(tag[0]), "once" if tag[2].isdecimal() else "repeat")
        elif number in kinds:
            builder.close(written(tag[0]))
        elif tag[2].lower() in _VOID or tag[0].endswith("/>"):
            builder.void(written(tag[0]))
        else:  # as in "open <file>", where the tag is a placeholder
            builder.protect(tag[0], written(tag[0]))
        place = tag.end()
    add(text[place:])


_BLANKS = " \t\r\n\f"
_JOINED = re.compile(f"[{_BLANKS}]+")


class _Blanks:
    """A text with runs of blanks joined to one space, and its new character positions."""

    def __init__(self, text: str) -> None:
        self.joined = _JOINED.sub(" ", text)
        self._starts: list[int] = []
        self._lengths: list[int] = []
        self._before: list[int] = []
        n_removed = 0
        for match in _JOINED.finditer(text) if len(self.joined) < len(text) else ():
            # The first character of a run becomes the space
            if length := len(match[0]) - 1:
                self._starts.append(match.start() + 1)
                self._lengths.append(length)
                self._before.append(n_removed)
                n_removed += length

    def move(self, place: int) -> int:
        run = bisect_right(self._starts, place) - 1
        if run < 0:
            return place
        return place - self._before[run] - min(place - self._starts[run], self._lengths[run])


def walk_segment(segment: Segment) -> Iterator[str | tuple[Span, bool]]:
    """Yields text and spans in written order; True marks the end of a span."""
    place = 0
    open_spans: list[Span] = []

    def close_spans(depth: int) -> Iterator[str | tuple[Span, bool]]:
        nonlocal place
        while len(open_spans) > depth:
            yield segment.text[place : open_spans[-1].end]
            place = open_spans[-1].end
            yield open_spans.pop(), True

    for span in segment.spans:
        yield from close_spans(span.depth)
        yield segment.text[place : span.start]
        place = span.start
        yield span, False
        if span.behavior in ("void", "protected"):
            if span.opening:
                place = span.end
        else:
            open_spans.append(span)
    yield from close_spans(0)
    yield segment.text[place:]


def render_segment(segment: Segment, escape: Callable[[str], str] = str) -> str:
    """Writes a segment's text and markup, without the blanks around it."""
    return "".join(
        escape(item) if isinstance(item, str) else item[0].closing if item[1] else item[0].opening
        for item in walk_segment(segment)
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """A segment at its position in a text document."""

    segment: Segment
    raw: str
    """Its text in the document, with the blanks around it."""
    escape: Callable[[str], str] = str
    """Escapes text for the format."""

    def write(self, translated: Segment | None) -> str:
        own = self.segment
        if translated is None or (translated.text, translated.spans) == (own.text, own.spans):
            return self.raw
        blanks = self.escape(own.before), self.escape(own.after)
        return render_segment(translated, self.escape).join(blanks)


MARKS = {
    # Four-byte marks come first: they begin like the two-byte marks
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""Byte order marks and their encodings."""
LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ENDLESS = re.compile(r"&#[0-9]{1000,};?")


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of a text file."""

    mark: bytes = b""
    """Byte order mark."""
    name: str = "utf-8"
    where: str = "document"
    """File name, for error messages."""

    def encode(self, text: str) -> bytes:
        """Encodes the text, with the byte order mark."""
        try:
            return self.mark + text.encode(self.name)
        except UnicodeEncodeError as error:
            raise DataError(
                f"{self.where}: its encoding {self.name} cannot write {text[error.start]!r} of a "
                f"translation; convert it: iconv -f {self.name} -t UTF-8"
            ) from None


class TextDocument:
    """A text document: parts to copy, and slots with segments to translate."""

    def __init__(
        self,
        parts: Sequence[str | Slot],
        encoding: Encoding | None = None,
        relabel: Callable[[str], str] = str,
    ) -> None:
        """`relabel` replaces the language that the text declares by the target language."""
        self.skipped: Counter[str] = Counter()
        self._parts = parts
        self._encoding = encoding or Encoding()
        self._relabel = relabel

    @property
    def segments(self) -> list[Segment]:
        return [part.segment for part in self._parts if isinstance(part, Slot)]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        segments = iter(translated)
        texts = [
            part.write(next(segments)) if isinstance(part, Slot) else part for part in self._parts
        ]
        is_translated = any(segment is not None for segment in translated)
        whole = self._relabel("".join(texts)) if is_translated else "".join(texts)
        return self._encoding.encode(whole)


_HEAD = 4096
"""Number of bytes read to recognize an encoding without a mark."""
_UNMARKED = {"utf-16": "utf-16-le", "utf-32": "utf-32-le", "utf-8-sig": "utf-8"}
"""Names of encodings with a byte order mark, and their names without it."""


def decode_file(data: bytes, settings: ReadSettings) -> tuple[str, Encoding]:
    """Decodes a text file without its byte order mark; also returns its encoding."""
    where, named = settings.name, settings.encoding
    marks = (Encoding(mark, name, where) for mark, name in MARKS.items() if data.startswith(mark))
    encoding = next(marks, Encoding(where=where))
    if named and not (encoding.mark and named.startswith("utf")):
        named = _UNMARKED.get(named, named)
        text = decode_as(data, named)
        if text is None:
            raise DataError(f"{where}: is not text in {named}; name its encoding")
        return text, Encoding(b"", named, where)
    try:
        text = data[len(encoding.mark) :].decode(encoding.name)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError.of(
            "{}:{}: is not text in UTF-8; convert it: iconv -f WINDOWS-1252 -t UTF-8, or "
            "name its encoding: {encoding windows-1252}",
            where,
            line,
        ) from None
    if not encoding.mark and (wide := wide_encoding(data[:_HEAD])):
        raise DataError.of(
            "{}: is not text in UTF-8 but in {}; name its encoding: {encoding} {}",
            where,
            wide,
            wide,
        )
    return text, encoding


def is_same_encoding(name: str, other: str) -> bool:
    """Compares encodings; each has several names."""
    try:
        return codecs.lookup(name).name == codecs.lookup(other).name
    except LookupError:
        return False


def decode_as(data: bytes, name: str) -> str | None:
    """Decodes bytes that re-encode identically; None if they do not."""
    try:
        text = data.decode(name)
        # Some encode a text in many ways (UTF-7), some cannot replace missing characters (IDNA)
        return text if text.encode(name, "xmlcharrefreplace") == data else None
    except (LookupError, UnicodeError):
        return None


def unescape(text: str) -> str:
    """Decodes character references as browsers do."""
    # Python cannot parse that many digits; browsers also show this character
    return html.unescape(_ENDLESS.sub("\ufffd", text))
