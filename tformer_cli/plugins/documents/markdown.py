"""Markdown: translates paragraphs, headings, list items and cells; code and link targets stay.

A text is read as pieces of markup and words, with their positions in the document. The output is
parsed again: a text whose markup would change is escaped more, and stays untranslated if that
fails. HTML blocks are read like pages.
"""

from __future__ import annotations

import json
import re
import string
import sys
from bisect import bisect_left, bisect_right
from collections import ChainMap, Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from markdown_it.common.utils import unescapeAll

from tformer_cli.documents.segments import (
    Behavior,
    Document,
    Encoding,
    ReadSettings,
    Segment,
    SegmentBuilder,
    Slot,
    check_parts,
    decode_file,
    walk_segment,
)
from tformer_cli.plugins.documents.html import HtmlDocument
from tformer_cli.plugins.documents.markdown_syntax import DEEPEST, DEFINITIONS, parser
from tformer_cli.plugins.documents.xml_text import Piece, peel_markup
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from markdown_it.token import Token

_FRONT = re.compile(
    r"(---|\+\+\+)[ \t]*\n.*?^(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
_FRONT_KEYS = "title|description|subtitle|summary|excerpt|linkTitle|sidebar_label|pagination_label"
_FRONT_VALUE = re.compile(
    rf"^(?:{_FRONT_KEYS})[ \t]*(?P<mark>[:=])[ \t]*(?:(?:"
    r'"(?P<double>(?:[^"\\\n]|\\.)*)"|\'(?P<single>(?:[^\'\n]|\'\')*)\''
    r"|(?P<plain>[^\s\"'>|&*!%@`#\[\]{},?-](?:[^\n#:]|(?<!\s)#|:(?!\s))*?))"
    r"[ \t]*(?:#.*)?$"
    r"|(?P<folded>[>|])[-+]?[ \t]*\n(?P<lines>(?:[ \t]+\S.*\n|[ \t]*\n(?=[ \t]+\S))+))",
    re.MULTILINE,
)
# An underscore inside a word is not markup
_SPECIAL = re.compile(r"[\\*`\[\]|]|(?<![^\W_])_|_(?![^\W_])|<(?=[a-zA-Z/!?])|&(?=#?\w+;)|!$")
# Extensions: formulas, mentions of people, issue numbers, emoji
_OWN = re.compile(rf"{_SPECIAL.pattern}|[$@]|#(?=\d)|:(?=\w+:)")
_DIALECT_MARKS = re.compile(r"[$~^={}:+%\[\]]")
_PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]")
_NUMBER = re.compile(r"\d{1,9}(?=[.)](?:\s|$))")
_BREAK = re.compile(r"(?: {2,}|\\)\r?\n")
_LINE_BREAK = re.compile(r"<br\b", re.IGNORECASE)
_CONTINUED = re.compile(r"\r?\n[ \t>]*")
_TAG = re.compile(r"<(/?)([a-zA-Z][\w.:-]*|(?=>))")
_COPIED = frozenset(("code", "kbd", "samp", "var", "math", "script", "style", "svg"))
_TITLE = re.compile(
    r"""(?<=\s)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\))\s*\)?\s*\Z"""
)
_FRAMES = {
    "p": ("", ""),
    "th": ("| ", " |\n|---|"),
    "td": ("| ", " |\n|---|"),
    "dt": ("", "\n: x"),
    "image alt": ("![", "](x)"),
    "note": ("^[", "]"),
}
"""The frame of a text: the parts before and after it."""
_DIRECTIVE = re.compile(
    r"\{(?:admonition|attention|card|caution|danger|details|dropdown|epigraph|error|exercise|figure"
    r"|glossary|grid-item|hint|important|list-table|margin|note|seealso|sidebar|tab-item|table|tip"
    r"|topic|warning)\}"
)
"""MyST fences that contain prose."""
_MOST_CHANGES = 30
"""Maximum number of texts that break blocks; with more, the document stays untranslated."""
_UNPLACED = "text with markup that is not known"
_UNWRITTEN = "text whose translation would change the markup"


def read(data: bytes, settings: ReadSettings) -> Document:
    text, encoding = decode_file(data, settings)
    # The parser needs a kilobyte per line and mark, and has no limit of its own
    check_parts(sum(map(text.count, "\n*_[<`\\&")), a_segment=20)
    return MarkdownDocument(text, encoding, settings)


@dataclass(slots=True)
class _Piece(Piece):
    """A piece of a text or of its markup."""

    markup: str = ""
    """Its form in a translation, if it differs from the document."""
    inner: tuple[_Part, ...] = ()
    """Its parts, if some are text, such as the text of an image."""


@dataclass(slots=True)
class _Text:
    """The text of a block, or of an image."""

    pieces: list[_Piece]
    context: str
    raw: str
    frame: tuple[str, str]
    escaped: set[str] = field(default_factory=set)
    """Characters that the document escapes with a backslash."""
    references: dict[str, str] = field(default_factory=dict)
    """Characters with another spelling in the document."""
    labels: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Ends of links whose text is their label: the original form and the label."""
    first: int = 0
    last: int = 0
    own: Segment | None = None

    def build(self) -> None:
        """Builds the segment; markup at the ends of the text stays outside it."""
        if all(is_blank(piece.text) for piece in self.pieces if piece.kind == "text"):
            return
        self.first, self.last = peel_markup(self.pieces)
        builder = SegmentBuilder(self.context, joins_blanks=True)
        for piece in self.pieces[self.first : self.last]:
            if piece.kind == "text":
                builder.text(piece.text)
            elif piece.kind == "protected":
                builder.protect(piece.text, piece.markup)
            elif piece.kind == "void":
                builder.void(piece.markup)
            elif piece.kind == "open":
                builder.open(piece.markup, piece.behavior)
            else:
                builder.close(piece.markup)
        self.own = builder.build()

    def items(self, translation: Segment) -> Iterator[tuple[str, str]]:
        """Yields the pieces of a translation, with their kinds."""
        for piece in self.pieces[: self.first]:
            yield ("raw", piece.raw) if piece.kind == "text" else (piece.kind, piece.markup)
        own = self.own or translation
        yield "blank", own.before
        for part in walk_segment(translation):
            if isinstance(part, str):
                yield "text", part
            else:
                span, is_end = part
                if span.behavior in ("void", "protected"):
                    yield ("void" if span.opening else "text"), span.opening
                else:
                    yield ("close", span.closing) if is_end else ("open", span.opening)
        yield "blank", own.after
        for piece in self.pieces[self.last :]:
            yield ("raw", piece.raw) if piece.kind == "text" else (piece.kind, piece.markup)


_Part = str | Slot | _Text | HtmlDocument


@dataclass(frozen=True, slots=True)
class _Value(Slot):
    """The value of a key in front matter."""

    style: str = "plain"
    indent: str = ""

    def write(self, translated: Segment | None) -> str:
        if translated is None or translated.text == self.segment.text:
            return self.raw
        text = translated.text
        if self.style == "lines":
            block = "".join(f"{self.indent}{line}\n" if line else "\n" for line in text.split("\n"))
            return block.replace("\n", "\r\n") if "\r\n" in self.raw else block
        if self.style == "single" and "'" not in text:
            return f"'{text}'"
        is_plain = self.style == "plain" and _read_yaml(text) == text
        return text if is_plain else json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class _Block:
    """An HTML block in a container; its lines start with the container's marks."""

    page: HtmlDocument
    raw: str
    mark: str

    def write(self, translated: Sequence[Segment | None]) -> str:
        own = self.page.segments
        if all(new is None or new == old for new, old in zip(translated, own, strict=True)):
            return self.raw
        text = self.page.write(translated).decode()
        end = "\r\n" if "\r\n" in self.raw else "\n"
        return text.replace("\n", end + self.mark)


class MarkdownDocument:
    """A Markdown document: copied parts, texts, and HTML blocks."""

    def __init__(self, text: str, encoding: Encoding, settings: ReadSettings) -> None:
        self._unread: Counter[str] = Counter()
        self._unwritten: Counter[str] = Counter()
        self._encoding, self._settings = encoding, settings
        self._parser = parser(is_mdx=_is_mdx(settings))
        self._document = text
        self._ends = [
            place - number
            for number, place in enumerate(match.start() for match in re.finditer("\r\n", text))
        ]
        self._parts: list[_Part | _Block] = []
        self._inner: dict[str, tuple[_Part, ...]] = {}
        self._frames: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        plain = re.sub("\r\n?", "\n", text)
        match = _FRONT.match(plain)
        self._front = match.end() if match is not None else 0
        self._done = 0
        if settings.front_matter:
            self._add_front(plain[: self._front])
        env: dict[str, Any] = {}
        tokens = self._parser.parse(plain[self._front :], env)
        self._references = env.get("references", {})
        self._blocks = _list_blocks(tokens)
        self._lines = [0]
        self._body = plain[self._front :]
        self._lines += [match.end() for match in re.finditer("\n", self._body)]
        self._lines.append(len(self._body))
        for number, token in enumerate(tokens):
            self._add(token, tokens[number - 1])
        if any(token.level >= DEEPEST - 1 for token in tokens):
            self._unread["block within too many others"] += 1
        self._parts.append(self._raw(self._done, len(plain)))
        for part in self._parts:
            self._add_inner(part)
            if isinstance(part, HtmlDocument):
                self._unread.update(part.skipped)

    def _add_inner(self, part: _Part | _Block) -> None:
        """Remembers texts inside markup, innermost first; equal markup shares them."""
        for piece in part.pieces if isinstance(part, _Text) else ():
            for inner in piece.inner:
                self._add_inner(inner)
            if any(not isinstance(inner, str) for inner in piece.inner):
                self._inner.setdefault(piece.markup, piece.inner)

    @property
    def skipped(self) -> Mapping[str, int]:
        return self._unread + self._unwritten

    def _raw(self, start: int, end: int) -> str:
        """Returns the original text of a range given in positions with plain line ends."""
        ends = self._ends
        if ends:
            start, end = start + bisect_left(ends, start), end + bisect_left(ends, end)
        return self._document[start:end]

    def _put(self, start: int, end: int, part: _Part | _Block) -> None:
        self._parts += [self._raw(self._done, start), part]
        self._done = end

    def _add_front(self, front: str) -> None:
        for match in _FRONT_VALUE.finditer(front):
            style = next(name for name in ("double", "single", "lines", "plain") if match[name])
            start, end = match.span(style)
            if style in ("double", "single"):
                start, end = start - 1, end + 1
            raw = front[start:end]
            text, indent = _read_yaml(raw), ""
            if style == "lines":
                indent = raw[: len(raw) - len(raw.lstrip(" \t"))]
                text = "\n".join(line.strip() for line in raw.removesuffix("\n").split("\n"))
                if match["folded"] == ">":
                    text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
            if not isinstance(text, str) or (style == "plain" and match["mark"] == "="):
                continue
            segment = Segment(text, context="front matter")
            self._put(start, end, _Value(segment, self._raw(start, end), str, style, indent))

    def _add(self, token: Token, before: Token) -> None:
        front = self._front
        if token.type == "html_block":
            self._add_html(token)
        elif token.type == "fence" and _DIRECTIVE.match(token.info):
            self._unread["directive in a code fence"] += 1
        elif token.type == "definition" and token.meta["title"]:
            start, end = (self._lines[n] for n in token.map or (0, 0))
            title = _find_title(self._body[start:end], token.meta["title"])
            if title is not None:
                self._put(front + start + title[0], front + start + title[1], title[2])
        elif token.type == "line_open":
            if token.info:
                self._unread[token.info] += 1
            start, end = token.meta["tags"] or (0, 0)
            if start < end and "{" not in self._body[start:end]:
                self._put(
                    front + start, front + end, _read_page(self._body[start:end], self._settings)
                )
        elif token.type == "inline" and token.content:
            frame = token.meta.get("frame") or _FRAMES.get(before.tag)
            if frame is None:
                is_line = before.markup in ("=", "-")
                frame = ("", "\n===") if is_line else (before.markup + " ", "")
            places = token.meta["places"]
            text = places and self._read_text(token, places, before.tag, frame)
            if not text:
                self._unread[_UNPLACED] += 1
                return
            start, end = (front + _place_of(places, n) for n in (0, len(token.content)))
            self._put(start, end, text)

    def _add_html(self, token: Token) -> None:
        first, last = token.map or (0, 0)
        marks = []
        contents = token.content.split("\n")
        for number, content in zip(range(first, last), contents, strict=False):
            line = self._body[self._lines[number] : self._lines[number + 1]].removesuffix("\n")
            if not line.endswith(content):
                self._unread["HTML block"] += 1
                return
            marks.append(line[: len(line) - len(content)])
        start = self._front + self._lines[first] + len(marks[0])
        end = self._front + self._lines[last]
        if any(marks):
            end -= self._body.endswith("\n", 0, self._lines[last])
            page = HtmlDocument("\n".join(contents[: len(marks)]), Encoding(), self._settings)
            # A line without text may lack the blank after a mark
            of_text = [mark for mark, line in zip(marks, contents, strict=False) if line.strip()]
            mark = (of_text[1:] or marks[1:] or [""])[0]
            self._put(start, end, _Block(page, self._raw(start, end), mark))
        else:
            self._add_page(start, token.content)

    def _add_page(self, place: int, content: str) -> None:
        """Adds HTML, without the link definitions in it."""
        edges = [edge for match in DEFINITIONS.finditer(content) for edge in match.span()]
        for start, end in zip([0, *edges[1::2]], [*edges[::2], len(content)], strict=True):
            raw = self._raw(place + start, place + end)
            if raw:
                page = HtmlDocument(raw, Encoding(), self._settings)
                self._put(place + start, place + end, page)

    def _read_text(
        self, token: Token, places: Sequence[tuple[int, int]], context: str, frame: tuple[str, str]
    ) -> _Text | None:
        """Reads the text of a token; None if its children do not cover it."""
        front = self._front
        is_cell = context in ("th", "td")

        def raw(start: int, end: int) -> str:
            return self._raw(front + _place_of(places, start), front + _place_of(places, end))

        reader = _Reader(token.content, raw, self._settings, is_cell=is_cell)
        return reader.read(token.children or [], context, frame)

    @property
    def _all_parts(self) -> Iterator[_Part | _Block]:
        yield from self._parts
        for parts in self._inner.values():
            yield from parts

    @property
    def segments(self) -> list[Segment]:
        return [segment for part in self._all_parts for segment in _segments_of(part)]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        segments = list(translated)
        self._unwritten.clear()
        written = self._write_parts(segments)
        for _ in range(_MOST_CHANGES):
            if written == self._document or self._is_kept(written):
                break
            # Bisect for the first text that breaks the blocks around it; it stays untranslated
            good, bad = 0, len(segments)
            while bad - good > 1:
                middle = (good + bad) // 2
                first_segments = segments[:middle] + [None] * (len(segments) - middle)
                good, bad = (
                    (middle, bad)
                    if self._is_kept(self._write_parts(first_segments))
                    else (good, middle)
                )
            segments[good] = None
            self._unwritten.clear()
            written = self._write_parts(segments)
            self._unwritten[_UNWRITTEN] += sum(
                new is None and old is not None
                for new, old in zip(segments, translated, strict=True)
            )
        else:
            self._unwritten[_UNWRITTEN] += len(segments)
            written = self._document
        return self._encoding.encode(written)

    def _is_kept(self, written: str) -> bool:
        plain = re.sub("\r\n?", "\n", written)
        match = _FRONT.match(plain)
        body = plain[match.end() if match is not None else 0 :]
        return _list_blocks(self._parser.parse(body)) == self._blocks

    def _write_parts(self, segments: Sequence[Segment | None]) -> str:
        left = iter(segments)
        parts = [(part, [next(left) for _ in _segments_of(part)]) for part in self._parts]
        names: dict[str, str] = {}
        for raw, inner_parts in self._inner.items():
            inner = [(part, [next(left) for _ in _segments_of(part)]) for part in inner_parts]
            page = "".join(self._write_part(part, own, names) for part, own in inner)
            if page != "".join(
                self._write_part(part, [None] * len(own), {}) for part, own in inner
            ):
                names[raw] = page
        return "".join(self._write_part(part, own, names) for part, own in parts)

    def _write_part(
        self,
        part: _Part | _Block,
        segments: Sequence[Segment | None],
        names: Mapping[str, str],
    ) -> str:
        if isinstance(part, str):
            return part
        if isinstance(part, _Text):
            return self._write_text(part, segments[0] if segments else None, names)
        if isinstance(part, HtmlDocument):
            return part.write(segments).decode()
        return part.write(segments[0]) if isinstance(part, Slot) else part.write(segments)

    def _write_text(self, text: _Text, new: Segment | None, names: Mapping[str, str]) -> str:
        if new is not None and _is_changed(text, [new]):
            items = [item for item in text.items(new) if item[1]]
            meant = _list_meaning(items)
            for escape in _ESCAPES:
                shown = _write_items(text, items, escape, {})
                if self._meaning_of(text, shown) == meant:
                    return _write_items(text, items, escape, names)
            self._unwritten[_UNWRITTEN] += 1
        if not names:
            return text.raw
        return "".join(names.get(piece.markup, piece.raw) for piece in text.pieces)

    def _meaning_of(self, text: _Text, written: str) -> list[tuple[str, str]] | None:
        """Parses the output for a text; None if it is no longer a single text."""
        before, after = text.frame
        env = {"references": ChainMap({}, self._references)}
        # The lines of a title have no marks before them, but may need indentation
        plain = written if text.context == "title" else _CONTINUED.sub("\n", written)
        tokens = self._parser.parse(before + plain + after, env)
        if text.frame not in self._frames:
            self._frames[text.frame] = _list_blocks(self._parser.parse(before + "x" + after))
        if _list_blocks(tokens) != self._frames[text.frame]:
            return None
        token = next((token for token in tokens if token.type == "inline"), None)
        if token is None or not token.meta["places"]:
            return None
        if text.context in ("image alt", "note"):
            children = token.children or []
            if len(children) != 1 or children[0].type not in ("image", "note"):
                return None
            token = children[0]

        is_cell = text.context in ("th", "td")

        def raw(start: int, end: int) -> str:
            own = token.content[start:end]
            return own.replace("|", "\\|") if is_cell else own

        reader = _Reader(token.content, raw, self._settings, is_cell=is_cell)
        own_text = reader.read(token.children or [], text.context, text.frame)
        if own_text is None:
            return None
        return _list_meaning(
            [
                (piece.kind, piece.text if piece.kind == "text" else piece.markup)
                for piece in own_text.pieces
            ]
        )


class _Reader:
    """Reads the tokens of a text as pieces."""

    def __init__(
        self, content: str, raw: Callable[[int, int], str], settings: ReadSettings, *, is_cell: bool
    ) -> None:
        self._content, self._raw, self._settings = content, raw, settings
        self._is_cell = is_cell
        self._open: list[_Piece] = []

    def read(self, tokens: Sequence[Token], context: str, frame: tuple[str, str]) -> _Text | None:
        text = _Text([], context, self._raw(0, len(self._content)), frame)
        text.escaped |= {"|"} if self._is_cell else set()
        text.escaped |= {"<", "{"} if _is_mdx(self._settings) else set()
        place = done = 0
        for number, token in enumerate(tokens):
            start, end = token.meta["at"]
            if start < done or not is_blank(self._content[done:start]):
                return None
            done = end
            is_half = token.type == "text" and not token.content and start < end
            if is_half and number + 1 < len(tokens) and tokens[number + 1].type.endswith("_open"):
                continue  # the first character of a two-character mark
            own = self._raw(place, end)
            place = end
            if is_half and text.pieces and text.pieces[-1].kind == "close":
                text.pieces[-1].raw += own
                text.pieces[-1].markup += own
            elif start < end:
                self._add(text, token, own)
        if self._open or place < len(self._content):
            return None
        _pair_tags(text.pieces)
        text.pieces = _merge_closed(text.pieces)
        text.build()
        return text

    def _add(self, text: _Text, token: Token, own: str) -> None:
        kind, pieces = token.type, text.pieces
        start, end = token.meta["at"]
        inner = self._content[start:end]
        if kind in ("text", "softbreak"):
            pieces.append(_Piece("text", own, 0, 0, token.content or " "))
        elif kind == "text_special":
            if token.content in " \t\r\n\f":
                pieces += _Piece("text", "", 0, 0, " "), _Piece("void", own, 0, 0, markup=own)
                return
            if token.info == "escape":
                text.escaped.add(token.content)
            elif len(token.content) == 1 and not token.content.isalnum() and token.content != "&":
                text.references[token.content] = token.markup
            pieces.append(_Piece("text", own, 0, 0, token.content))
        elif kind == "hardbreak":
            # Keeps two words apart; extra blanks at the end of a line have no effect
            pieces += _Piece("text", "", 0, 0, " "), _Piece("void", own, 0, 0, markup=own)
        elif kind == "image":
            pieces.append(
                _Piece("void", own, 0, 0, markup=own, inner=self._cut_image(token, inner))
            )
        elif kind == "note":
            note = self._read_inner(token, "note")
            pieces.append(_Piece("void", own, 0, 0, markup=own, inner=("^[", note, "]")))
        elif kind == "html_inline":
            if _LINE_BREAK.match(own):
                pieces.append(_Piece("text", "", 0, 0, " "))  # keeps two words apart
            parts = (own,) if "{" in own or "\n" in own else (_read_page(own, self._settings),)
            pieces.append(_Piece("void", own, 0, 0, markup=own, inner=parts, key="tag"))
        elif kind == "link_open" and token.markup == "autolink":
            pieces.append(_Piece("protected", own, 0, 0, inner[1:-1], markup=own))
        elif kind.endswith("_open"):
            is_once = kind == "link_open" or token.info == "once"
            behavior: Behavior = "once" if is_once else "repeat"
            piece = _Piece("open", own, start, end, behavior=behavior, markup=own)
            piece.key = str(token.attrs.get("title", ""))
            self._open.append(piece)
            pieces.append(piece)
        elif kind.endswith("_close"):
            piece = _Piece("close", own, start, end, markup=_CONTINUED.sub(" ", own))
            opened = self._open.pop()
            if kind == "link_close":
                self._add_link_end(text, piece, opened, inner)
            pieces.append(piece)
        elif token.info == "void":
            pieces.append(_Piece("void", own, 0, 0, markup=own))
        else:
            shown = token.content if kind == "code_inline" else token.meta.get("shown", inner)
            shown = " ".join(shown.split())
            line = _CONTINUED.sub(" ", own)
            kept: Literal["protected", "void"] = "protected" if shown else "void"
            pieces.append(_Piece(kept, own, 0, 0, shown, markup=line))

    def _add_link_end(self, text: _Text, piece: _Piece, opened: _Piece, inner: str) -> None:
        if inner in ("]", "][]"):
            label = self._content[opened.end : piece.start]
            piece.markup = f"][{self._in_row(label)}]"
            text.labels[piece.markup] = (piece.raw, label)
        else:
            piece.inner = self._cut_target(inner, opened.key)

    def _in_row(self, text: str) -> str:
        text = " ".join(text.split("\n"))
        return text.replace("|", "\\|") if self._is_cell else text

    def _cut_target(self, target: str, title: str) -> tuple[_Part, ...]:
        """Splits the end of a link into copied parts and its title."""
        target = self._in_row(target)
        title_range = _find_title(target, title, is_cell=self._is_cell) if title else None
        if title_range is None or not target.startswith("]("):
            return (target,)
        return target[: title_range[0]], title_range[2], target[title_range[1] :]

    def _cut_image(self, token: Token, inner: str) -> tuple[_Part, ...]:
        content = token.content
        target = inner[2 + len(content) :]
        if target in ("]", "][]"):
            parts: tuple[_Part, ...] = (f"][{self._in_row(content)}]",)
        else:
            parts = self._cut_target(target, str(token.attrs.get("title", "")))
        return ("![", self._read_inner(token, "image alt"), *parts)

    def _read_inner(self, token: Token, context: str) -> _Text | str:
        """Reads the text of a token inside this text."""
        content = token.content

        def raw(start: int, end: int) -> str:
            return self._in_row(content[start:end])

        reader = _Reader(content, raw, self._settings, is_cell=self._is_cell)
        text = reader.read(token.children or [], context, _FRAMES[context])
        return self._in_row(content) if text is None or text.own is None else text


def _is_mdx(settings: ReadSettings) -> bool:
    return settings.name.lower().endswith(".mdx")


def _read_yaml(value: str) -> object:
    """Parses a YAML value; None if it is not a complete value."""
    import yaml

    try:
        data = yaml.safe_load(f"value: {value}")
    except yaml.YAMLError:
        return None
    return data.get("value") if isinstance(data, dict) and len(data) == 1 else None


def _place_of(places: Sequence[tuple[int, int]], place: int) -> int:
    """Maps a position in a text to the document."""
    start, moved = places[max(0, bisect_right(places, (place, sys.maxsize)) - 1)]
    return moved + place - start


def _list_blocks(tokens: Sequence[Token]) -> list[tuple[Any, ...]]:
    """Lists the properties of blocks that a translation must not change."""
    return [
        (
            token.type,
            token.tag,
            token.nesting,
            token.hidden,
            token.markup,
            "" if token.type in ("inline", "html_block") else token.content,
            token.meta.get("url"),
        )
        for token in tokens
    ]


def _segments_of(part: _Part | _Block) -> Sequence[Segment]:
    if isinstance(part, Slot):
        return [part.segment]
    if isinstance(part, _Text):
        return [part.own] if part.own is not None else []
    if isinstance(part, str):
        return []
    return part.page.segments if isinstance(part, _Block) else part.segments


def _is_changed(part: _Part | _Block, segments: Sequence[Segment | None]) -> bool:
    return any(
        new is not None and (new.text, new.spans) != (own.text, own.spans)
        for new, own in zip(segments, _segments_of(part), strict=True)
    )


def _read_page(raw: str, settings: ReadSettings) -> HtmlDocument:
    return HtmlDocument(raw, Encoding(), replace(settings, target_language=""))


def _find_title(raw: str, title: str, *, is_cell: bool = False) -> tuple[int, int, Slot] | None:
    """Finds the title at the end of a link; None if it is written in another form."""
    match = _TITLE.search(raw)
    if match is None or unescapeAll(match[1][1:-1]) != title or is_blank(title):
        return None
    mark = match[1][-1]
    special = re.compile(
        r"\\(?=[!-/:-@\[-`{-~]|$)|&(?=#?\w+;)|"
        + re.escape(mark)
        + ("|\\(" if mark == ")" else "")
        + ("|\\|" if is_cell else "")
    )
    builder = SegmentBuilder("link title", joins_blanks=True)
    builder.text(title)
    start, end = match.start(1) + 1, match.end(1) - 1
    slot = Slot(builder.build(), raw[start:end], lambda text: special.sub(r"\\\g<0>", text))
    return start, end, slot


def _pair_tags(pieces: Sequence[_Piece]) -> None:
    """Pairs opening and closing HTML tags inside the same markup."""
    around: list[tuple[str, _Piece]] = []
    for piece in pieces:
        match = _TAG.match(piece.markup) if piece.key == "tag" else None
        if piece.kind == "open" or (match and not match[1]):
            around.append((match[2] if match else "", piece))
        elif piece.kind == "close":
            while around.pop()[1].kind != "open":
                pass
        elif match and around and around[-1][1].key == "tag" and around[-1][0] == match[2]:
            opened = around.pop()[1]
            opened.kind, opened.behavior, piece.kind = "open", "once", "close"


def _merge_closed(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Merges elements whose text is not prose, and marks around nothing, into one piece."""
    new_pieces: list[_Piece] = []
    opened: list[int] = []
    for piece in pieces:
        new_pieces.append(piece)
        if piece.kind == "open":
            opened.append(len(new_pieces) - 1)
        if piece.kind != "close":
            continue
        members = new_pieces[(start := opened.pop()) :]
        tag = _TAG.match(members[0].markup) if members[0].key == "tag" else None
        shown = "".join(member.text for member in members)
        if is_blank(shown) or (tag is not None and tag[2].lower() in _COPIED):
            parts = [member.inner or (member.markup or member.raw,) for member in members]
            whole = _Piece("void" if is_blank(shown) else "protected", "", 0, 0, shown.strip())
            whole.raw = "".join(member.raw for member in members)
            whole.markup = "".join(member.markup or member.raw for member in members)
            whole.inner = tuple(part for inner in parts for part in inner)
            new_pieces[start:] = [whole]
    return new_pieces


@dataclass(frozen=True, slots=True)
class _Escape:
    """A rule for characters to escape beyond those that the document escapes itself."""

    special: re.Pattern[str] | None = None
    at_start: bool = False
    """Escape the first character of a line, which might start a block."""
    as_reference: bool = False
    """Write letters there, and letters next to marks, as references."""


_ESCAPES = (
    _Escape(),
    _Escape(at_start=True),
    _Escape(_SPECIAL),
    _Escape(_SPECIAL, at_start=True),
    _Escape(_DIALECT_MARKS, at_start=True),
    _Escape(_PUNCTUATION, at_start=True),
    _Escape(_SPECIAL, at_start=True, as_reference=True),
)
"""The first rule that keeps the meaning wins."""


def _write_items(
    text: _Text, items: Sequence[tuple[str, str]], escape: _Escape, names: Mapping[str, str]
) -> str:
    """Writes the pieces of a translation."""
    written, starts_line, last = "", True, ""
    opened: list[int] = []
    for number, (kind, raw) in enumerate(items):
        if kind in ("text", "blank"):
            shown, starts_line = starts_line, starts_line and is_blank(raw)
            raw = _escape_text(text, raw, escape, starts_line=shown)
            if escape.as_reference and kind == "text":
                if last == "close" and raw[0].isalpha():
                    raw = f"&#{ord(raw[0])};{raw[1:]}"
                if items[number + 1 : number + 2] and items[number + 1][0] == "open":
                    raw = raw[:-1] + f"&#{ord(raw[-1])};" if raw[-1].isalpha() else raw
            written += raw
        elif kind == "close" and raw in text.labels:
            end, label = text.labels[raw]
            written += end if written[opened.pop() :] == label else raw
        else:
            if kind == "close":
                opened.pop()
            name = raw.rstrip(" ")
            starts_line = bool(_BREAK.match(raw)) or (starts_line and is_blank(raw))
            starts_line |= kind == "raw" and "\n" in raw
            written = written.rstrip(" ") if _BREAK.match(raw) else written
            is_after = last in ("close", "void", "protected") and kind != "close"
            if is_after and raw[0] in "`*_~=+" and written.endswith(raw[0]):
                written += " "  # otherwise two marks would become plain text
            written += names[name] + raw[len(name) :] if name in names else names.get(raw, raw)
            if kind == "open":
                opened.append(len(written))
        last = kind
    return written


def _escape_text(text: _Text, written: str, escape: _Escape, *, starts_line: bool) -> str:
    def escape_some(words: str) -> str:
        places = {match.start() for match in _OWN.finditer(words) if match[0] in text.escaped}
        if "{" in text.escaped:  # MDX, where braces and angle brackets are always syntax
            places |= {match.start() for match in re.finditer("[<{]", words)}
        if escape.special is not None:
            places |= {match.start() for match in escape.special.finditer(words)}
        cuts = [0, *sorted(places), len(words)]
        return "\\".join(words[start:end] for start, end in pairwise(cuts)) if places else words

    first = ""
    if starts_line and escape.at_start and written:
        match = _NUMBER.match(written)
        if match is not None:
            first, written = match[0] + "\\" + written[match.end()], written[match.end() + 1 :]
        elif written[0] in string.punctuation:
            first, written = "\\" + written[0], written[1:]
        elif escape.as_reference:
            first, written = f"&#{ord(written[0])};", written[1:]
    if not text.references:
        return first + escape_some(written)
    pieces = re.split(f"([{re.escape(''.join(text.references))}])", written)
    return first + "".join(text.references.get(part) or escape_some(part) for part in pieces)


def _list_meaning(items: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Lists text and markup, without blanks and line marks."""
    meaning: list[tuple[str, str]] = []
    for kind, raw in items:
        if kind in ("text", "blank"):
            shown = "".join(raw.split())
            if meaning and meaning[-1][0] == "text":
                meaning[-1] = ("text", meaning[-1][1] + shown)
            elif shown:
                meaning.append(("text", shown))
        elif kind != "raw":
            meaning.append(("markup", _CONTINUED.sub("\n", raw).strip(" ")))
    return meaning
