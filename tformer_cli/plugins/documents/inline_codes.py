"""Inline codes of XLIFF and TMX: pairs of codes, and markup written as text.

Programs write tags as elements (`<x id="START_LINK"/>`), as escaped text (`&lt;b>`) or in CDATA
sections. All become spans and are written back in their original form.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tformer_cli.documents.messages import BLOCK_TAG
from tformer_cli.documents.segments import Behavior, SegmentBuilder, add_message
from tformer_cli.plugins.documents.xml_text import (
    Element,
    InlineReader,
    Item,
    Piece,
    Source,
    decode_text,
    join_items,
    pair,
)
from tformer_cli.wording import is_blank

_VOID = frozenset(["x", "bx", "ex", "bpt", "ept", "ph", "it", "sc", "ec", "cp", "sm", "em", "ut"])
"""Native codes of the original program, and halves of them."""
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
"""The side of a pair, and attributes that may name the pair; the first one present counts."""
_SIDES = {"open": "start", "begin": "start", "close": "end", "end": "end"}
_NAMED = re.compile(r"(START|CLOSE)_(\w+?)(?:_\d+)?")
"""Names of template tags in Angular."""
_TAG = re.compile(r"\s*<(/?)([a-zA-Z][\w:-]*)(?:\s[^<>]*)?>\s*")
_PART_OF_TAGS = re.compile(r"</?[a-zA-Z]")
_LINE_BREAK = re.compile(r"\s*<br\b[^<>]*>\s*|\n", re.IGNORECASE)
_CDATA = ("<![CDATA[", "]]>")
_CHARACTER = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);|.", re.DOTALL)
_FIRST_PLACEHOLDER = 0xF0000
"""Private-use characters that represent elements while the text around them is read."""


class _Character(NamedTuple):
    """A character of a text, or an element in it, with its position in the file."""

    start: int
    end: int
    in_cdata: bool
    piece: Piece | None = None


class CodeReader:
    """Reads a source text with its codes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._inline = InlineReader(source, self._behavior, halves=self._half)
        self._data: dict[str, str] = {}
        """The original codes of XLIFF 2, listed before the segments of a unit."""

    def keep_data(self, unit: Element) -> None:
        named = (element for element in unit.walk() if element.name == "data")
        attribute, content = self._source.attribute, self._source.content
        self._data = {attribute(data, "id") or "": content(data) for data in named}

    def pieces(self, element: Element) -> list[Piece]:
        pieces = self._add_tags(self._inline.single_pieces(element))
        return list(_join_marked_text(_join_empty_pairs(pair(pieces))))

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
        """Returns the key of a half of a pair, from its name and ids or from its tag."""
        attribute = self._source.attribute
        if element.name in _HALVES:
            side, names = _HALVES[element.name]
        elif element.name == "it":
            side, names = _SIDES.get(attribute(element, "pos") or "", ""), ("rid", "x", "i", "id")
        else:
            return self._half_by_tag(element)
        ids = (attribute(element, name) for name in names)
        return f"{side}{element.name[-1]} {next((name for name in ids if name is not None), None)}"

    def _half_by_tag(self, element: Element) -> str:
        attribute = self._source.attribute
        for name in ("id", "equiv"):
            if named := _NAMED.fullmatch(attribute(element, name) or ""):
                return f"{'start' if named[1] == 'START' else 'end'} {named[2]}"
        text = (
            attribute(element, "equiv-text")
            or attribute(element, "disp")
            or self._data.get(attribute(element, "dataRef") or "")
            or self._source.content(element)
        )
        if _LINE_BREAK.fullmatch(text) or attribute(element, "ctype") == "lb":
            return "break"
        tag = _TAG.fullmatch(text)
        if tag is None and _PART_OF_TAGS.search(text):
            return "end of several"  # it has no partner but keeps its position among others
        if tag is None or text.rstrip().endswith("/>"):
            return ""
        return f"{'end' if tag[1] else 'start'} <{tag[2].lower()}>"

    def _add_tags(self, pieces: list[Piece]) -> list[Piece]:
        """Finds message markup in the text between elements."""
        if all("<" not in piece.text for piece in pieces if piece.kind == "text"):
            return pieces
        characters: list[_Character] = []
        text = ""
        for number, piece in enumerate(pieces):
            if piece.kind == "text":
                read = list(_characters(piece))
                characters += (place for _, place in read)
                text += "".join(character for character, _ in read)
            else:
                characters.append(_Character(piece.start, piece.end, False, piece))
                text += chr(_FIRST_PLACEHOLDER + number)
        if len(text) != len(characters):  # a reference to several characters
            return pieces
        builder = _MessageBuilder(self._source, text, characters)
        try:
            add_message(builder, text, builder.text, builder.take_tag)
        except ValueError:
            return pieces
        return builder.pieces if builder.is_complete else pieces


def _characters(piece: Piece) -> Iterator[tuple[str, _Character]]:
    """Yields the characters of a text with their positions."""
    in_cdata = piece.raw.startswith(_CDATA[0])
    if in_cdata:
        start = piece.start + len(_CDATA[0])
        for place, character in enumerate(piece.text, start):
            yield character, _Character(place, place + 1, True)
        return
    for match in _CHARACTER.finditer(piece.raw):
        start, end = piece.start + match.start(), piece.start + match.end()
        yield decode_text(match[0]), _Character(start, end, False)


class _MessageBuilder(SegmentBuilder):
    """Builds pieces of the file from the markup that `add_message` finds."""

    def __init__(self, source: Source, text: str, characters: Sequence[_Character]) -> None:
        super().__init__()
        self.pieces: list[Piece] = []
        self._file = source.text
        self._message, self._characters = text, characters
        self._place = self._n_pairs = 0
        self._pairs: list[int] = []
        self._tags: dict[str, tuple[int, int]] = {}

    @property
    def is_complete(self) -> bool:
        return self._place == len(self._message)

    def take_tag(self, tag: str) -> str:
        """Takes a tag and returns a name for its position."""
        start, end = self._take(tag)
        name = f"{start}-{end}"
        self._tags[name] = start, end
        return name

    def text(self, text: str) -> None:
        start, end = self._take(text)
        first = start
        for number in range(start, end + 1):
            is_end = number == end or self._characters[number].piece is not None
            if not is_end and self._characters[number].in_cdata == self._characters[first].in_cdata:
                continue
            if first < number:
                self.pieces.append(self._piece("text", first, number))
            piece = self._characters[number].piece if number < end else None
            if piece is not None:
                self.pieces.append(piece)
            first = number + (piece is not None)

    def open(self, opening: str, behavior: Behavior = "repeat") -> None:
        self._n_pairs += 1
        self._pairs.append(self._n_pairs)
        key = f"start text {self._n_pairs}"
        self.pieces.append(self._tag_piece("void", opening, behavior, key))

    def close(self, closing: str) -> None:
        key = f"end text {self._pairs.pop()}"
        self.pieces.append(self._tag_piece("void", closing, key=key))

    def void(self, opening: str) -> None:
        self.pieces.append(self._tag_piece("void", opening))

    def protect(self, text: str, written: str = "") -> None:
        if written not in self._tags:
            written = self.take_tag(text)
        self.pieces.append(self._tag_piece("protected", written))

    def _take(self, text: str) -> tuple[int, int]:
        """Takes the next characters of the message."""
        start, end = self._place, self._place + len(text)
        if self._message[start:end] != text:
            raise ValueError(text)
        self._place = end
        return start, end

    def _tag_piece(self, kind: str, name: str, behavior: Behavior = "once", key: str = "") -> Piece:
        if name not in self._tags:
            raise ValueError(name)
        piece = self._piece(kind, *self._tags[name])
        piece.behavior, piece.key = behavior, key
        if kind == "void":
            is_break = _LINE_BREAK.fullmatch(piece.text) is not None
            end = self._tags[name][1]
            after = self._message[end : end + 1]
            parts_words = not piece.text.startswith("</") or after.isalnum()
            piece.breaks = parts_words and BLOCK_TAG.match(piece.text) is not None
            piece.key, piece.text = "break" if is_break else key, ""
        return piece

    def _piece(self, kind: str, first: int, end: int) -> Piece:
        characters = self._characters[first:end]
        start, stop = characters[0].start, characters[-1].end
        raw = self._file[start:stop]
        if len({place.in_cdata for place in characters if place.piece is None}) > 1:
            raise ValueError(raw)
        if characters[0].in_cdata:
            raw = raw.join(_CDATA)
        return Piece(kind, raw, start, stop, self._message[first:end])  # type: ignore[arg-type]


def _join_empty_pairs(pieces: Sequence[Piece]) -> list[Piece]:
    """Merges pairs that contain only codes into one code."""
    starts: dict[str, int] = {}
    first = list(range(len(pieces)))
    """For each piece, the first piece of the pair it ends; otherwise itself."""
    for number, piece in enumerate(pieces):
        if piece.key == "break":  # it separates two words, but not a word and a mark
            after = pieces[number + 1].text if number + 1 < len(pieces) else ""
            piece.breaks, piece.key = after[:1].isalnum(), ""
        if not _is_void(piece):
            starts.clear()
        elif piece.key[:5] == "start":
            starts[piece.key[5:]] = number
        elif piece.key[:3] == "end":
            first[number] = starts.pop(piece.key[3:], number)
    new_pieces: list[Piece] = []
    end = len(pieces)
    while end:
        start = last = end - 1
        while start <= last:  # crossing pairs become one code, too
            start, last = min(start, first[last]), last - 1
        inner, end = pieces[start:end], start
        code = inner[0]
        if len(inner) > 1:
            raw = "".join(piece.raw for piece in inner)
            breaks = any(piece.breaks for piece in inner)
            code = Piece("void", raw, code.start, inner[-1].end, breaks=breaks)
        new_pieces.append(code)
    return new_pieces[::-1]


def _is_void(piece: Piece) -> bool:
    return piece.kind == "void" or (piece.kind == "text" and is_blank(piece.text))


def _join_marked_text(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Merges text between the halves of a mark that excludes it from translation."""
    left = iter(pieces)
    for piece in left:
        if piece.kind == "open" and re.match(r"<(?:\w+:)?sm\b.*\stranslate\s*=\s*.no\b", piece.raw):
            inner = [piece]
            while inner[-1].kind != "close" or inner[-1].key[3:] != piece.key[5:]:
                inner.append(next(left))
            raw, text = "".join(part.raw for part in inner), "".join(part.text for part in inner)
            yield Piece("protected", raw, piece.start, inner[-1].end, text)
        else:
            yield piece


def write_codes(items: Iterator[Item], escape: Callable[[str], str]) -> str:
    """Writes text and codes; halves of crossing pairs keep their order."""
    written = list(items)
    places = [
        number
        for number, item in enumerate(written)
        if not isinstance(item, str)
        and item[0].kind == "void"
        and item[0].key.startswith(("start", "end"))
    ]
    halves = [written[number] for number in places]
    halves.sort(key=lambda item: item[0].start if isinstance(item[0], Piece) else 0)
    for number, half in zip(places, halves, strict=True):
        written[number] = half
    return join_items(iter(written), escape).replace(_CDATA[1] + _CDATA[0], "")


def escape_in_cdata(text: str) -> str:
    """Writes text as a CDATA section, splitting its end mark."""
    end, start = _CDATA[1], _CDATA[0]
    return text.replace(end, f"]]{end}&gt;{start}").join(_CDATA) if text else ""


def is_in_cdata(pieces: Sequence[Piece]) -> bool:
    return any(
        piece.kind == "text" and piece.raw.startswith(_CDATA[0]) and not is_blank(piece.text)
        for piece in pieces
    )
