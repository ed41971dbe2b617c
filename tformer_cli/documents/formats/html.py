"""HTML and XHTML: text between tags and in some attributes; every tag stays as it is.

The text of a block, such as a paragraph or a cell, is a segment, and the tags of elements that
stand in a sentence are spans of it. No tree is built: what is damaged stays damaged, byte for byte.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tformer_cli.documents.segments import (
    MARKS,
    Document,
    Encoding,
    ReadSettings,
    Segment,
    SegmentBuilder,
    Slot,
    decoded,
)
from tformer_cli.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_REPEATING = (
    "b bdi bdo big cite del dfn em font i ins mark s small span strike strong sub sup time tt u"
)
_REPEATED = frozenset(_REPEATING.split())
"""Elements in a sentence that may stand around several runs of words."""
_ONCE = frozenset(("a", "abbr", "acronym", "data", "label", "q", "rb", "rp", "rt", "ruby"))
_INLINE_VOID = frozenset(("img", "wbr"))
_VOIDS = "area base br col embed hr img input link meta param source track wbr"
_VOID = frozenset(_VOIDS.split())
_CODE = ("code", "kbd", "math", "samp", "var")
"""Elements in a sentence whose text is copied."""
_UNSEEN = ("script", "style", "svg", "template", "noscript", "object", "iframe", "canvas")
_COPIED = ("pre", "textarea", "xmp", "listing")
# In quotes a tag may hold > and <
_TAG = re.compile(r"""</?[a-zA-Z](?:"[^"]*"|'[^']*'|[^<>"'])*>""")
_WHOLE = re.compile(
    rf"<({'|'.join((*_CODE, *_UNSEEN, *_COPIED))})\b[^<>]*(?<!/)>.*?</\1\s*>",
    re.DOTALL | re.IGNORECASE,
)
_OTHER = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<![a-zA-Z\[][^>]*>|<\?.*?\?>|<\?[^>]*>", re.DOTALL
)
# Read as a part of the word before it, a note's number would spoil the translation of that
_NOTE = re.compile(
    r"<sup\b[^<>]*>(?:\s*<[a-z][^<>]*>)*\s*(?:[\[(]?\d{1,3}[\])]?|\[\w{1,3}\]|[*†‡]+)\s*"
    r"(?:</[a-z]+>\s*)*?</sup>",
    re.IGNORECASE,
)
_NAME = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_KEPT = re.compile(
    r"""\btranslate\s*=\s*["']?no\b|\bclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE
)
_ATTRIBUTE = re.compile(r"""\s([^\s"'<>/=]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""")
_READ_ATTRIBUTES = frozenset(
    ("alt", "aria-description", "aria-label", "label", "placeholder", "title")
)
_READ_META = re.compile(r"(?:og:|twitter:)?(?:description|title|site_name|image:alt)|keywords")
_BUTTONS = frozenset(("button", "reset", "submit"))
_CHARSET = re.compile(
    rb"""<meta\b[^>]*\bcharset\s*=\s*["']?([\w:.-]+)|<\?xml[^>]*encoding\s*=\s*["']([\w.-]+)""",
    re.IGNORECASE,
)
_HEAD = 4096
"""Bytes in which a page has to tell its encoding; browsers look at 1024."""
_LANGUAGE = re.compile(r"""(\b(?:xml:)?lang\s*=\s*["'])([^"']*)""", re.IGNORECASE)
_FROM_RIGHT = frozenset(("ar", "arc", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"))

_Kind = Literal["text", "open", "close", "void", "protected", "block", "copied"]


@dataclass(slots=True)
class _Token:
    """A piece of HTML."""

    raw: str
    kind: _Kind
    name: str = ""
    text: str = ""
    """Characters that a reader sees."""
    pair: int | None = None
    """Of a tag, the token of the other tag of its element."""

    @property
    def is_tag(self) -> bool:
        """Returns whether it is one tag, whose attributes may have text."""
        is_void = self.kind == "void" and self.name not in _UNSEEN
        return bool(self.name) and (is_void or self.kind in ("open", "block"))

    @property
    def is_seen(self) -> bool:
        return self.kind in ("text", "protected") and bool(self.text.strip())


def read(data: bytes, settings: ReadSettings) -> Document:
    text, encoding = _decoded(data, settings)
    return HtmlDocument(text, encoding, settings)


def _decoded(data: bytes, settings: ReadSettings) -> tuple[str, Encoding]:
    """Decodes HTML as a browser does: by its mark, by what it says of itself, or as UTF-8."""
    if data.startswith(MARKS):
        return decoded(data, settings)
    if b"\0" in data:
        raise DataError(f"{settings.name}: is not text; save it as HTML in UTF-8")
    found = _CHARSET.search(data[:_HEAD])
    said = (found[1] or found[2]).decode("ascii").lower() if found is not None else "utf-8"
    # Browsers, too, read Windows' characters where a page says Latin-1 or ASCII
    said = "cp1252" if said in ("iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii") else said
    for name in (said, "utf-8", "cp1252", "latin-1"):
        try:
            text = data.decode(name)
            # Some encodings write a text in many ways: what is copied would change
            if text.encode(name) == data:
                return text, Encoding(b"", name)
        except (LookupError, UnicodeError):
            continue
    raise AssertionError("Latin-1 has a character for each byte")


class HtmlDocument:
    """HTML as parts, and the tags whose attributes have text."""

    def __init__(self, text: str, encoding: Encoding, settings: ReadSettings) -> None:
        self._encoding = encoding
        self._parts: list[str | Slot] = []
        self._tags: dict[str, list[tuple[int, int, Segment]]] = {}
        self._language = settings.target_language
        block: list[_Token] = []
        context = ""
        for token in _tokens(text):
            if token.kind in ("block", "copied"):
                self._add_block(block, context)
                block = []
                self._parts.append(token.raw)
                context = token.name
            else:
                block.append(token)
            if token.is_tag and token.raw not in self._tags:
                self._add_attributes(token)
        self._add_block(block, context)

    @property
    def segments(self) -> list[Segment]:
        blocks = [one.segment for one in self._parts if isinstance(one, Slot)]
        return blocks + [segment for some in self._tags.values() for _, _, segment in some]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        given = iter(translated)
        # The blocks are given first, but are written with the tags behind them
        blocks = [next(given) for one in self._parts if isinstance(one, Slot)]
        tags = {
            raw: self._tag(raw, [next(given) for _ in some]) for raw, some in self._tags.items()
        }
        left = iter(blocks)
        written = []
        for one in self._parts:
            if isinstance(one, Slot):
                text = one.written(next(left))
                written.append(_TAG.sub(lambda m: tags.get(m[0], m[0]), text) if tags else text)
            else:
                written.append(self._in_language(tags.get(one, one)))
        whole = "".join(written)
        return self._encoding.mark + whole.encode(self._encoding.name)

    def _tag(self, raw: str, translated: Sequence[Segment | None]) -> str:
        made, place = "", 0
        for (start, end, segment), one in zip(self._tags[raw], translated, strict=True):
            slot = Slot(segment, raw[start:end], self._in_attribute)
            made += raw[place:start] + slot.written(one)
            place = end
        return made + raw[place:]

    def _in_language(self, part: str) -> str:
        """Tells the language of the translation where the page tells that of its text."""
        code = self._language
        if not code or not part.startswith("<") or _name(part) != "html" or part[1] == "/":
            return part
        part = _LANGUAGE.sub(lambda found: found[1] + code, part)
        if code.partition("-")[0] in _FROM_RIGHT and not re.search(r"\bdir\s*=", part):
            part = part[:5] + ' dir="rtl"' + part[5:]
        return part

    def _escaped(self, text: str) -> str:
        return self._encodable(html.escape(text, quote=False))

    def _in_attribute(self, text: str) -> str:
        return self._encodable(html.escape(text))

    def _encodable(self, text: str) -> str:
        """Writes what the encoding of the file lacks as references."""
        name = self._encoding.name
        return text.encode(name, "xmlcharrefreplace").decode(name)

    def _add_block(self, tokens: list[_Token], context: str) -> None:
        """Adds a block: tags around all of its text stay outside of the segment."""
        _pair(tokens)
        seen = [n for n, one in enumerate(tokens) if one.is_seen]
        read = "".join(one.text for one in tokens if one.kind == "text")
        if not any(map(str.isalnum, read)):
            self._parts += [one.raw for one in tokens]
            return
        first, last = seen[0], seen[-1]
        pairs = [(n, one.pair) for n, one in enumerate(tokens) if one.kind == "open" and one.pair]
        first = min([first, *(n for n, end in pairs if n < first <= end <= last)])
        last = max([last, *(end for n, end in pairs if first <= n <= last < end)])
        self._parts += [one.raw for one in tokens[:first]]
        chosen = tokens[first : last + 1]
        builder = SegmentBuilder(context, joins_blanks=True)
        for one in chosen:
            if one.kind == "text":
                builder.text(one.text)
            elif one.kind == "protected":
                builder.protected(one.text, one.raw)
            elif one.kind == "void" or one.pair is None:
                builder.void(one.raw)
            elif one.kind == "open":
                # An element with a name of its own must not be there twice
                repeats = one.name in _REPEATED and not re.search(r"\sid\s*=", one.raw)
                builder.open(one.raw, "repeat" if repeats else "once")
            else:
                builder.close(one.raw)
        raw = "".join(one.raw for one in chosen)
        self._parts.append(Slot(builder.build(), raw, self._escaped))
        self._parts += [one.raw for one in tokens[last + 1 :]]

    def _add_attributes(self, token: _Token) -> None:
        """Remembers the texts of a tag's attributes; equal tags have the same."""
        raw, tag = token.raw, token.name
        values = {found[1].lower(): found for found in _ATTRIBUTE.finditer(raw)}
        texts = {
            name: html.unescape(found[2] or found[3] or found[4] or "")
            for name, found in values.items()
        }
        wanted = set(_READ_ATTRIBUTES)
        if tag == "meta" and _READ_META.fullmatch(texts.get("name", texts.get("property", ""))):
            wanted.add("content")
        if tag == "input" and texts.get("type") in _BUTTONS:
            wanted.add("value")
        found_texts = []
        for name, found in values.items():
            # Without quotes there is no room for a second word
            if name in wanted and found[4] is None and any(map(str.isalpha, texts[name])):
                builder = SegmentBuilder(f"{tag} {name}", joins_blanks=True)
                builder.text(texts[name])
                start, end = found.span(2 if found[2] is not None else 3)
                found_texts.append((start, end, builder.build()))
        if found_texts:
            self._tags[raw] = found_texts


def _pair(tokens: Sequence[_Token]) -> None:
    """Pairs the tags of elements; those that cross others or lack their other tag stay single."""
    open_tags: list[int] = []
    for number, one in enumerate(tokens):
        if one.kind == "open":
            open_tags.append(number)
        elif one.kind == "close":
            names = [tokens[n].name for n in open_tags]
            if one.name in names:
                place = len(names) - 1 - names[::-1].index(one.name)
                one.pair = open_tags[place]
                tokens[open_tags[place]].pair = number
                del open_tags[place:]


def _tokens(text: str) -> Iterator[_Token]:
    """Cuts HTML into text, tags and what is copied."""
    place = 0
    while place < len(text):
        start = text.find("<", place)
        if start != place:
            end = len(text) if start < 0 else start
            yield _Token(text[place:end], "text", text=html.unescape(text[place:end]))
            place = end
            continue
        token = _token_at(text, place)
        yield token
        place += len(token.raw)


def _token_at(text: str, place: int) -> _Token:
    """Reads what begins with a <."""
    if found := _OTHER.match(text, place):
        is_comment = found[0].startswith(("<!--", "<?"))
        return _Token(found[0], "void" if is_comment else "copied")
    if found := _WHOLE.match(text, place):
        name = found[1].lower()
        if name in _CODE:
            return _Token(found[0], "protected", name, _seen(found[0]))
        return _Token(found[0], "void" if name in _UNSEEN else "copied", name)
    if found := _NOTE.match(text, place):
        return _Token(found[0], "void")
    found = _TAG.match(text, place)
    if found is None:
        return _Token("<", "text", text="<")  # one that is text
    raw, name = found[0], _name(found[0])
    is_inline = name in _REPEATED or name in _ONCE or name in _INLINE_VOID
    is_void = name in _VOID or (raw.endswith("/>") and name != "a")
    if raw.startswith("</"):
        return _Token(raw, "close" if is_inline else "block", name)
    if _KEPT.search(raw) and not is_void:
        raw = text[place : _end_of(text, found.end(), name)]
        return _Token(raw, "protected" if is_inline else "copied", name, _seen(raw))
    if not is_inline:
        return _Token(raw, "block", name)
    return _Token(raw, "void" if is_void else "open", name)


def _seen(raw: str) -> str:
    """Returns what a reader sees of markup."""
    return html.unescape(_TAG.sub("", raw))


def _name(tag: str) -> str:
    found = _NAME.match(tag)
    return found[1].lower() if found else ""


def _end_of(text: str, place: int, name: str) -> int:
    """Returns where an element ends whose tag ended at a place."""
    depth = 1
    for found in re.compile(rf"<(/?){re.escape(name)}\b[^<>]*>", re.IGNORECASE).finditer(
        text, place
    ):
        depth += -1 if found[1] else 0 if found[0].endswith("/>") else 1
        if depth == 0:
            return found.end()
    return len(text)
