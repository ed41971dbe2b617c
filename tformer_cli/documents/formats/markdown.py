"""Markdown: the text of paragraphs, headings, list items and cells; code and targets of links stay.

CommonMark with tables, read by markdown-it: its blocks tell the lines of a text, and its inline
tokens, walked beside the text, what of it is markup. HTML blocks are read as pages are.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from tformer_cli.documents.formats.html import HtmlDocument
from tformer_cli.documents.segments import (
    Document,
    Encoding,
    ReadSettings,
    Segment,
    SegmentBuilder,
    Slot,
    check_parts,
    decoded,
)
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_LINE_END = re.compile(r" *\n")
_FRONT = re.compile(r"(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_HIDDEN = "\ue000"
_NOTE_START = re.compile(r"^( {0,3})\[(?=\^[^\]\s]+\]:)", re.MULTILINE)
"""Text of a note, which would be a target of links; its bracket is hidden from the parser."""
_NOTE = re.compile(rf"([\[{_HIDDEN}]\^[^\]\s]+\]:?|^\[[ xX]\](?= ))")
"""Notes and boxes of task lists, which plain CommonMark takes for text."""
# An underscore within a word marks nothing
_SPECIAL = re.compile(r"[\\*`\[\]|]|(?<!\w)_|_(?!\w)|<(?=[a-zA-Z/!?])|&(?=#?\w+;)")
_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*)")


class _OtherMarkup(Exception):  # noqa: N818 - within this file
    """The tokens of a text do not lead through it; it is read without them."""


def read(data: bytes, settings: ReadSettings) -> Document:
    text, encoding = decoded(data, settings)
    # The parser takes a kilobyte for each line and each mark, and stops for nobody
    check_parts(sum(map(text.count, "\n*_[<`\\&")), a_segment=20)
    return MarkdownDocument(text, encoding, settings)


class MarkdownDocument:
    """Markdown as parts: what is copied, texts, and blocks of HTML."""

    def __init__(self, text: str, encoding: Encoding, settings: ReadSettings) -> None:
        from markdown_it import MarkdownIt

        self.skipped: Counter[str] = Counter()
        self._encoding = encoding
        self._parts: list[str | Slot | HtmlDocument] = []
        found = _FRONT.match(text)
        front = found.end() if found is not None else 0
        parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
        lines = [front]
        lines += [front + one.end() for one in _LINE.finditer(text[front:])]
        done, kind = 0, "p"
        shown = text[:front] + _NOTE_START.sub(rf"\1{_HIDDEN}", text[front:])
        for token in parser.parse(shown[front:]):
            if token.type.endswith("_open"):
                kind = token.tag
            if token.map is None:
                continue
            start, end = lines[token.map[0]], lines[min(token.map[1], len(lines) - 1)]
            if token.type == "html_block":
                self._parts += [
                    text[done:start],
                    HtmlDocument(text[start:end], Encoding(), settings),
                ]
                done = end
            elif token.type == "inline" and not is_blank(token.content):
                places = _places(shown, token, lines, max(done, start))
                if places is None:
                    continue
                self._parts.append(text[done : places[0][0]])
                done = places[-1][1]
                slot = _slot(text, token, places, kind)
                self._parts.append(slot or text[places[0][0] : done])
        self._parts.append(text[done:])

    @property
    def segments(self) -> list[Segment]:
        found: list[Segment] = []
        for one in self._parts:
            if isinstance(one, Slot):
                found.append(one.segment)
            elif isinstance(one, HtmlDocument):
                found += one.segments
        return found

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        written, place = "", 0
        for one in self._parts:
            if isinstance(one, Slot):
                written += one.written(translated[place])
                place += 1
            elif isinstance(one, HtmlDocument):
                end = place + len(one.segments)
                written += one.write(translated[place:end]).decode()
                place = end
            else:
                written += one
        return self._encoding.mark + written.encode(self._encoding.name)


def _places(
    text: str, token: Token, lines: Sequence[int], start: int
) -> list[tuple[int, int]] | None:
    """Finds the lines of a text in the document; None: they are written otherwise."""
    found: list[tuple[int, int]] = []
    first = token.map[0] if token.map else 0
    for number, line in enumerate(token.content.split("\n"), first):
        if number + 1 >= len(lines):
            return None
        # Marks of quotes and lists stand before it
        place = text.find(line, max(start, lines[number]), lines[number + 1])
        if place < 0:
            return None
        found.append((place, place + len(line)))
        start = place + len(line)
    return found


def _slot(text: str, token: Token, places: Sequence[tuple[int, int]], kind: str) -> Slot | None:
    """Makes the slot of a text; None: there is nothing to read."""
    between = [text[a[1] : b[0]] for a, b in pairwise(places)]
    try:
        builder = _Walk(token.content, between, kind).built(token.children or [])
    except _OtherMarkup:
        builder = SegmentBuilder(kind, joins_blanks=True)
        builder.text(token.content.replace(_HIDDEN, "["))
    if builder.is_blank:
        return None
    return Slot(builder.build(), text[places[0][0] : places[-1][1]], _escaped)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


class _Walk:
    """A walk through a text beside its tokens."""

    def __init__(self, content: str, between: Sequence[str], kind: str) -> None:
        self._content, self._between = content, between
        self._place = self._line = 0
        self._builder = SegmentBuilder(kind, joins_blanks=True)
        self._open: list[str] = []

    def built(self, tokens: Sequence[Token]) -> SegmentBuilder:
        closed = _closed_tags(tokens)
        for number, token in enumerate(tokens):
            self._token(token, is_paired=number in closed)
        if self._place != len(self._content) or self._builder.depth:
            raise _OtherMarkup
        return self._builder

    def _take(self, raw: str) -> str:
        if not self._content.startswith(raw, self._place):
            raise _OtherMarkup
        self._place += len(raw)
        return raw

    def _token(self, token: Token, *, is_paired: bool) -> None:
        builder, kind = self._builder, token.type
        if kind == "text":
            for n, piece in enumerate(_NOTE.split(self._take(token.content))):
                if n % 2:
                    note = piece.replace(_HIDDEN, "[")
                    builder.protected(note, note)
                else:
                    builder.text(piece)
        elif kind == "text_special":
            self._take(token.markup)
            builder.text(token.content)
        elif kind == "softbreak":
            self._newline()
            builder.text(" ")
        elif kind == "hardbreak":
            start = self._place
            self._place = self._content.index("\n", start)
            # Words on both sides stay two; more blanks before the end of a line change nothing
            builder.text(" ")
            builder.void(self._content[start : self._place] + self._newline())
        elif kind == "code_inline":
            ticks = self._take(token.markup)
            end = re.compile(rf"(?<!`){ticks}(?!`)").search(self._content, self._place)
            if end is None:
                raise _OtherMarkup
            raw = ticks + self._content[self._place : end.end()]
            self._place = end.end()
            builder.protected(token.content, raw.replace("\n", " "))
        elif kind == "image":
            start = self._place
            self._take("![")
            self._place = _bracket_end(self._content, start + 1)
            builder.void(self._content[start : self._target_end()])
            self._place = self._target_end()
        elif kind in ("link_open", "link_close"):
            self._link(token, opens=kind == "link_open")
        elif kind == "html_inline":
            raw = self._take(token.content)
            if not is_paired:
                builder.void(raw)
            elif raw.startswith("</"):
                builder.close(raw)
            else:
                builder.open(raw, "once")
        elif kind.endswith("_open"):
            builder.open(self._take(token.markup))
        elif kind.endswith("_close"):
            builder.close(self._take(token.markup))
        else:
            raise _OtherMarkup

    def _newline(self) -> str:
        """Passes the end of a line, and blanks before it; returns it as the document has it."""
        found = _LINE_END.match(self._content, self._place)
        if found is None:
            raise _OtherMarkup
        self._place = found.end()
        self._line += 1
        return self._between[self._line - 1]

    def _link(self, token: Token, *, opens: bool) -> None:
        if opens:
            is_address = token.markup == "autolink"
            self._builder.open(self._take("<" if is_address else "["), "once")
        elif token.markup == "autolink":
            self._builder.close(self._take(">"))
        else:
            start = self._place
            self._take("]")
            self._place = self._target_end()
            self._builder.close(self._content[start : self._place])

    def _target_end(self) -> int:
        """Finds the end of the target that follows the text of a link."""
        text, place = self._content, self._place
        if text.startswith("[", place):
            return _bracket_end(text, place)
        if not text.startswith("(", place):
            return place
        depth, quote = 0, ""
        for n in range(place, len(text)):
            one = text[n]
            if text[n - 1] == "\\":
                continue
            if quote:
                quote = "" if one == quote else quote
            elif one in "\"'<" and text[n - 1] in " \n(":
                quote = ">" if one == "<" else one
            else:
                depth += (one == "(") - (one == ")")
            if depth == 0:
                return n + 1
        raise _OtherMarkup


def _bracket_end(text: str, place: int) -> int:
    """Returns where brackets that open at a place have closed."""
    depth = 0
    for n in range(place, len(text)):
        if text[n - 1] != "\\":
            depth += (text[n] == "[") - (text[n] == "]")
        if depth == 0:
            return n + 1
    raise _OtherMarkup


def _closed_tags(tokens: Sequence[Token]) -> set[int]:
    """Finds the tags of HTML in a text that open and close an element within the same markup."""
    found: set[int] = set()
    open_tags: list[tuple[str, int, int]] = []
    for number, token in enumerate(tokens):
        match = _TAG.match(token.content) if token.type == "html_inline" else None
        if match is None:
            continue
        if not match[1]:
            open_tags.append((match[2], token.level, number))
        elif open_tags and open_tags[-1][:2] == (match[2], token.level):
            found |= {open_tags.pop()[2], number}
    return found
