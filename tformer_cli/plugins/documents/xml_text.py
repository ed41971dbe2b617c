"""Changes the text of some XML elements and copies every other character.

An XML writer would change quotes, entities and white space. Instead, `parse_xml` builds a light
tree of positions in the source, a `Unit` marks what a segment replaces, and `XmlDocument` splices.
"""

import re
import sys
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html.entities import html5
from types import MappingProxyType
from typing import Literal
from xml.parsers import expat

from tformer_cli.documents.segments import (
    MARKS,
    Behavior,
    Segment,
    SegmentBuilder,
    check_pieces,
    decode_as,
    walk_segment,
)
from tformer_cli.errors import DataError
from tformer_cli.wording import is_blank

DEEPEST = 200
"""Maximum nesting of elements; deeper files are refused, because readers recurse."""
_TOKEN = re.compile(
    r"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<(?:[^<>"']|"[^"]*"|'[^']*')*>""", re.DOTALL
)
_DECLARED = re.compile(r"""<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)""")
_NAMESPACE = re.compile(r"""\sxmlns(?::([^\s=]+))?\s*=\s*["']([^"']*)["']""")
_ATTRIBUTE = re.compile(r"""\s([^\s=/>"']+)\s*=\s*("[^"]*"|'[^']*')""")
_NAME = re.compile(r"[^\s/>]+")
_REFERENCE = re.compile(r"&(?:#0*+([0-9]{1,7})|#[xX]0*+([0-9a-fA-F]{1,6})|(\w+));")


class Tree:
    """Positions of all elements of a source, in order; in arrays, because there may be millions.

    `names` are indices into `spellings`; `ends_at` is the index of the first element after each.
    """

    __slots__ = ("ends", "ends_at", "inner_ends", "inners", "names", "spellings", "starts")

    def __init__(self) -> None:
        self.spellings: list[str] = []
        self.names, self.starts, self.inners = array("I"), array("I"), array("I")
        self.inner_ends, self.ends, self.ends_at = array("I"), array("I"), array("I")

    def add(self, name: int, start: int, inner: int) -> int:
        """Adds an empty element and returns its number."""
        number = len(self.names)
        self.names.append(name)
        self.starts.append(start)
        for places in (self.inners, self.inner_ends, self.ends):
            places.append(inner)
        self.ends_at.append(number + 1)
        return number

    def close(self, number: int, inner_end: int, end: int) -> None:
        self.inner_ends[number], self.ends[number] = inner_end, end
        self.ends_at[number] = len(self.names)

    def element(self, number: int) -> "Element":
        return Element(
            self.spellings[self.names[number]],
            self.starts[number],
            self.inners[number],
            self.inner_ends[number],
            self.ends[number],
            number,
            self,
        )


@dataclass(slots=True)
class Element:
    """Positions of an element in the source."""

    name: str
    """Name with the prefix of the format's table, whatever prefix the file uses; "#" for comments
    and processing instructions, "#cdata" for CDATA sections."""
    start: int
    inner: int
    """End of the opening tag."""
    inner_end: int
    end: int
    number: int
    tree: Tree = field(repr=False)

    @property
    def children(self) -> "Iterator[Element]":
        number, ends_at = self.number + 1, self.tree.ends_at
        while number < ends_at[self.number]:
            yield self.tree.element(number)
            number = ends_at[number]

    def walk(self) -> "Iterator[Element]":
        """Yields all descendants in document order."""
        return map(self.tree.element, range(self.number + 1, self.tree.ends_at[self.number]))


@dataclass(slots=True)
class Source:
    """An XML file."""

    text: str
    mark: bytes
    encoding: str
    root: Element

    def tag(self, element: Element) -> str:
        return self.text[element.start : element.inner]

    def raw(self, element: Element) -> str:
        return self.text[element.start : element.end]

    def inside(self, element: Element) -> str:
        return self.text[element.inner : element.inner_end]

    def attribute(self, element: Element, name: str) -> str | None:
        place = self.value_place(element, name)
        return decode_text(self.text[slice(*place)]) if place else None

    def value_place(self, element: Element, name: str) -> tuple[int, int] | None:
        """Finds the start and end of an attribute's value."""
        # Scan attribute by attribute: a value may contain text that looks like another attribute
        for match in _ATTRIBUTE.finditer(self.text, element.start, element.inner):
            if match[1] == name:
                return match.start(2) + 1, match.end(2) - 1
        return None

    def content(self, element: Element) -> str:
        """Returns the text of an element and its descendants."""
        raw = _TOKEN.sub(
            lambda match: match[0] if match[0][:3] == "<![" else "", self.inside(element)
        )
        return decode_text(raw)

    def encode(self, text: str) -> bytes:
        # characters missing from the encoding become references
        return self.mark + text.encode(self.encoding, "xmlcharrefreplace")


def parse_xml(data: bytes, where: str, namespaces: Mapping[str, str]) -> Source:
    """Parses XML; `namespaces` maps namespace URIs to the prefixes that the caller uses."""
    _check(data, where)
    mark, encoding = next(
        ((mark, name) for mark, name in MARKS.items() if data.startswith(mark)), (b"", "")
    )
    if not encoding:
        declared = _DECLARED.match(data[:200].decode("latin-1"))
        encoding = declared[1] if declared else "utf-8"
    text = decode_as(data[len(mark) :], encoding)
    if text is None:
        raise DataError(
            f"{where}: is not in the encoding {encoding}, which it declares; convert it to UTF-8"
        )
    return Source(text, mark, encoding, _tree(text, where, namespaces))


def _check(data: bytes, where: str) -> None:
    """Refuses malformed XML, and entity definitions, which can expand without limit."""
    parser = expat.ParserCreate()

    def doctype(_name: str, _system: str | None, _public: str | None, has_subset: int) -> None:
        if has_subset:
            raise DataError(f"{where}: defines its own entities (in a DTD), which is not allowed")

    # TMX and NCX usually have a DOCTYPE that names a DTD; expat does not open it
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise DataError(
            f"{where}: is damaged or not XML (line {error.lineno}: "
            f"{expat.errors.messages.get(error.code, 'unknown error')})"
        ) from None
    except (ValueError, LookupError) as error:  # encodings that expat does not know
        raise DataError(f"{where}: cannot be read ({error}); convert it to UTF-8") from None


def _tree(text: str, where: str, namespaces: Mapping[str, str]) -> Element:
    prefixes: dict[str, str] = {}
    for declared in _NAMESPACE.finditer(text):
        prefix, address = declared[1] or "", declared[2]
        if address in namespaces:
            prefixes.setdefault(prefix, namespaces[address])
    tree = Tree()
    numbers: dict[str, int] = {}

    def number_of(raw: str) -> int:
        """Returns the number of a name, spelled as in the format's table."""
        if raw not in numbers:
            prefix, _, local = raw.rpartition(":")
            prefix = prefixes.get(prefix, prefix)
            numbers[raw] = len(tree.spellings)
            tree.spellings.append(f"{prefix}:{local}" if prefix else local)
        return numbers[raw]

    around = [tree.add(number_of(""), 0, 0)]
    for match in _TOKEN.finditer(text):
        start, inner = match.span()
        second = text[start + 1]
        if second in "!?":
            tree.add(number_of("#cdata" if text.startswith("<![", start) else "#"), start, inner)
        elif second == "/":
            tree.close(around.pop(), start, inner)
        else:
            raw = _NAME.match(text, start + 1)[0]  # type: ignore[index]  # expat has checked it
            element = tree.add(number_of(raw), start, inner)
            if text[inner - 2] != "/":
                around.append(element)
                if len(around) > DEEPEST:
                    raise DataError(f"{where}: has elements nested more than {DEEPEST} deep")
    tree.close(around[0], len(text), len(text))
    return tree.element(0)


def decode_text(raw: str) -> str:
    """Decodes character references and CDATA sections."""
    if "&" not in raw and "<" not in raw:
        return raw

    def decode(match: re.Match[str]) -> str:
        if match[3]:
            return html5.get(match[3] + ";", match[0])
        number = int(match[1]) if match[1] else int(match[2], 16)
        # Subtitles are not validated: a number may not be a character
        return chr(number) if number <= sys.maxunicode else match[0]

    pieces = re.split(r"(<!\[CDATA\[.*?\]\]>)", raw, flags=re.DOTALL)
    return "".join(
        piece[9:-3] if piece.startswith("<![CDATA[") else _REFERENCE.sub(decode, piece)
        for piece in pieces
    )


def _escape_plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;")


def escape_like(raw: str) -> Callable[[str], str]:
    """Returns an escape function that uses references for the same characters as `raw`."""
    if "&" not in raw:  # one function per paragraph would take more memory than the text
        return _escape_plain
    written = {"&": "&amp;", "<": "&lt;"}
    for match in _REFERENCE.finditer(raw):
        character = decode_text(match[0])
        if len(character) == 1 and not character.isalnum() and character != " ":
            written[character] = match[0]
    written["]]>"] = "]]&gt;"
    pattern = re.compile("|".join(map(re.escape, sorted(written, key=len, reverse=True))))
    return lambda text: pattern.sub(lambda match: written[match[0]], text)


Level = Literal["paragraph", "run", "inside"]


@dataclass(slots=True)
class Piece:
    """A part of a paragraph's content, in file order."""

    kind: Literal["text", "open", "close", "void", "protected"]
    raw: str
    start: int
    end: int
    text: str = ""
    behavior: Behavior = "once"
    level: Level = "paragraph"
    """Its level in formats with runs: next to runs, around their text, or inside them."""
    breaks: bool = False
    """True if it separates words, as a line break does."""
    key: str = ""
    """For runs: equal keys look the same. For voids: the name and id of a half of a pair."""


Item = str | tuple[Piece, str]
"""Text, or markup with its written form."""
Render = Callable[[Iterator[Item], Callable[[str], str]], str]


_NO_PIECES: Mapping[str, Sequence[Piece]] = MappingProxyType({})


@dataclass(slots=True, kw_only=True)
class Unit:
    """A region of the source that a segment replaces."""

    start: int
    end: int
    segment: Segment
    escape: Callable[[str], str]
    lead: Sequence[Piece] = ()
    """Pieces before the segment in the region."""
    tail: Sequence[Piece] = ()
    pieces: Mapping[str, Sequence[Piece]] = field(default_factory=lambda: _NO_PIECES)
    """The pieces of spans, by their opening markup."""
    around: tuple[str, str] = ("", "")
    fills: bool = False
    """True if the region holds a translation, so that an unchanged segment is written, too."""
    render: Render | None = None
    """Writes text and markup; None to join them."""
    group: int = -1
    """Number of its group, whose units are written together or not at all; -1 for none."""
    copied: str = ""
    """Text to write if only other units of the group are translated."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change other than a translation, made if anything is translated."""

    start: int
    end: int
    text: str


def build_unit(
    pieces: Sequence[Piece],
    context: str,
    *,
    joins_blanks: bool = False,
    region: tuple[int, int] | None = None,
    render: Render | None = None,
) -> Unit | None:
    """Builds a unit from a paragraph's pieces; None if there is no text.

    Markup at its ends stays outside the segment, because a segment without spans needs no
    alignment.
    """
    if all(is_blank(piece.text) for piece in pieces if piece.kind == "text"):
        return None
    first, last = peel_markup(pieces)
    builder = SegmentBuilder(context, joins_blanks=joins_blanks)
    known: dict[str, list[Piece]] = defaultdict(list)
    written = ""
    for piece in pieces[first:last]:
        if piece.breaks and written and not written[-1].isspace():
            builder.text(" ")  # keeps two words apart; `drop_spaces` removes it again
            written = " "
        written = piece.text or written
        if piece.kind == "text":
            builder.text(piece.text)
        elif piece.kind == "close":
            builder.close(piece.raw)
        else:
            known[piece.raw].append(piece)
            if piece.kind == "open":
                builder.open(piece.raw, piece.behavior)
            elif piece.kind == "void":
                builder.void(piece.raw)
            else:
                builder.protect(piece.text, piece.raw)
    start, end = region or (pieces[first].start, pieces[last - 1].end)
    return Unit(
        start=start,
        end=end,
        segment=builder.build(),
        escape=escape_like("".join(piece.raw for piece in pieces if piece.kind == "text")),
        lead=tuple(pieces[:first]) if region else (),
        tail=tuple(pieces[last:]) if region else (),
        pieces=known or _NO_PIECES,
        render=render,
    )


def peel_markup(pieces: Sequence[Piece]) -> tuple[int, int]:
    """Returns the range of pieces without the markup at both ends."""
    first, last = 0, len(pieces)
    closings = _closings(pieces)
    while True:
        if _is_void(pieces[first]):
            first += 1
        elif _is_void(pieces[last - 1]):
            last -= 1
        elif closings.get(first) == last - 1:
            first, last = first + 1, last - 1
        else:
            return first, last


def _is_void(piece: Piece) -> bool:
    return piece.kind == "void" or (piece.kind == "text" and is_blank(piece.text))


def _closings(pieces: Sequence[Piece]) -> dict[int, int]:
    """Maps each opening piece to its closing piece."""
    closings: dict[int, int] = {}
    opened: list[int] = []
    for number, piece in enumerate(pieces):
        if piece.kind == "open":
            opened.append(number)
        elif piece.kind == "close" and opened:
            closings[opened.pop()] = number
    return closings


def list_pieces(pieces: Iterator[Piece]) -> list[Piece]:
    """Lists the pieces of a paragraph, within the limits of the settings."""
    kept: list[Piece] = []
    for piece in pieces:
        kept.append(piece)
        check_pieces(len(kept))
    return kept


def pair(pieces: list[Piece]) -> list[Piece]:
    """Turns halves that belong together (start and end of a bookmark) into spans.

    Voids are placed one by one, so that the end could come before the start. Pairs that cross an
    element or another pair, and pairs without text, stay two voids.
    """
    new_pieces = list(pieces)
    opened: list[tuple[str, int, int]] = []
    """Keys (empty for elements), piece numbers, and number of texts before them."""
    places: dict[str, list[int]] = defaultdict(list)
    n_texts = 0
    for number, piece in enumerate(pieces):
        key = ""
        if piece.kind == "open" or piece.key[:5] == "start":
            key = piece.key[5:] if piece.kind == "void" else ""
            places[key].append(len(opened))
            opened.append((key, number, n_texts))
        elif piece.kind == "close" or (piece.key[:3] == "end" and places[piece.key[3:]]):
            key = piece.key[3:] if piece.kind == "void" else ""
            place = (places[key] or [0])[-1]
            if key and places[""] and place < places[""][-1]:  # contains or crosses the element
                continue
            start, n_before = opened[place][1:] if opened else (0, n_texts)
            for inner, _, _ in opened[place:]:
                places[inner].pop()
            del opened[place:]
            if key and n_texts > n_before:
                new_pieces[start] = replace(new_pieces[start], kind="open")
                new_pieces[number] = replace(piece, kind="close")
        n_texts += not is_blank(piece.text)
    return new_pieces


class InlineReader:
    """Reads elements with mixed content."""

    def __init__(
        self,
        source: Source,
        behavior: Callable[[Element], Behavior],
        breaks: frozenset[str] = frozenset(),
        halves: Callable[[Element], str] = lambda _element: "",
    ) -> None:
        self._source = source
        self._behavior = behavior
        self._breaks = breaks
        self._halves = halves

    def pieces(self, element: Element) -> list[Piece]:
        return pair(self.single_pieces(element))

    def single_pieces(self, element: Element) -> list[Piece]:
        """Reads pieces without pairing halves."""
        return list_pieces(self._read(element))

    def _read(self, element: Element) -> Iterator[Piece]:
        source, place = self._source, element.inner
        for child in element.children:
            if child.start > place:
                yield self._text(place, child.start)
            place = child.end
            behavior = "void" if child.name == "#" else self._behavior(child)
            if child.name == "#cdata":
                yield self._text(child.start, child.end)
            elif behavior == "void" or is_blank(source.content(child)):
                breaks = child.name in self._breaks
                yield Piece(
                    "void",
                    source.raw(child),
                    child.start,
                    child.end,
                    breaks=breaks,
                    key=self._halves(child),
                )
            elif behavior == "protected":
                text = " ".join(source.content(child).split())
                yield Piece("protected", source.raw(child), child.start, child.end, text)
            else:
                yield Piece("open", source.tag(child), child.start, child.inner, behavior=behavior)
                yield from self._read(child)
                raw = source.text[child.inner_end : child.end]
                yield Piece("close", raw, child.inner_end, child.end)
        if element.inner_end > place:
            yield self._text(place, element.inner_end)

    def _text(self, start: int, end: int) -> Piece:
        raw = self._source.text[start:end]
        return Piece("text", raw, start, end, decode_text(raw))


def drop_spaces(items: Iterator[Item]) -> Iterator[Item]:
    """Drops spaces next to markup that already separates words: a line break or a tab."""
    text, after_break = "", False
    for item in items:
        if isinstance(item, str):
            if after_break and not text:
                item = item.removeprefix(" ")
            text += item
            continue
        shorter = text.removesuffix(" ") if item[0].breaks else text
        yield shorter
        yield item
        after_break = item[0].breaks and shorter == text
        text = ""
    yield text


def join_items(items: Iterator[Item], escape: Callable[[str], str]) -> str:
    """Joins text and markup in order."""
    return "".join(
        escape(item) if isinstance(item, str) else item[1] for item in drop_spaces(items)
    )


class XmlDocument:
    """An XML document, or an XML part of a document."""

    def __init__(
        self,
        data: bytes,
        source: Source,
        regions: Sequence[Unit | Edit],
        relabel: Callable[[str], str] = str,
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._data = data
        self._source = source
        # By start; a unit comes before the units inside it (a footnote in a sentence)
        self._regions = sorted(regions, key=lambda region: (region.start, -region.end))
        self._starts = [region.start for region in self._regions]
        self._relabel = relabel
        self._translated: list[Segment | None] = []
        self._groups: set[int] = set()

    @property
    def segments(self) -> list[Segment]:
        return [region.segment for region in self._regions if isinstance(region, Unit)]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        if all(segment is None for segment in translated):
            return self._data
        segments = iter(translated)
        self._translated = [
            next(segments) if isinstance(region, Unit) else None for region in self._regions
        ]
        self._groups = {
            region.group
            for region, segment in zip(self._regions, self._translated, strict=True)
            if isinstance(region, Unit) and segment is not None
        } - {-1}
        text = self._write_range(0, len(self._source.text), 0)
        return self._source.encode(self._relabel(text))

    def _write_range(self, start: int, end: int, number: int) -> str:
        """Writes a range of the source; `number` is the first region in it."""
        written: list[str] = []
        place = start
        while number < len(self._regions) and self._starts[number] < end:
            region = self._regions[number]
            if region.start >= place:  # the others were written with the region around them
                written += self._source.text[place : region.start], self._write_region(number)
                place = region.end
            number += 1
        written.append(self._source.text[place:end])
        return "".join(written)

    def _write_region(self, number: int) -> str:
        unit = self._regions[number]
        if isinstance(unit, Edit):
            return unit.text
        new, own = self._translated[number], unit.segment
        if new is None and unit.group in self._groups:
            return unit.around[0] + unit.copied + unit.around[1]
        if new is None or (not unit.fills and (new.text, new.spans) == (own.text, own.spans)):
            return self._write_range(unit.start, unit.end, number + 1)
        content = (unit.render or join_items)(self._items(number, unit, new), unit.escape)
        return unit.around[0] + content + unit.around[1]

    def _items(self, number: int, unit: Unit, translation: Segment) -> Iterator[Item]:
        left = {raw: list(pieces) for raw, pieces in unit.pieces.items()}
        inner = number + 1
        yield from (self._item(piece, inner) for piece in unit.lead)
        yield unit.segment.before
        for item in walk_segment(translation):
            if isinstance(item, str):
                yield item
                continue
            span, is_end = item
            raw = span.opening.strip()  # blanks may have been joined to it
            pieces = left.get(span.opening) or left.get(raw)
            if is_end:
                yield (
                    Piece("close", "", 0, 0, level=pieces[0].level if pieces else "inside"),
                    span.closing,
                )
            elif pieces:
                # each void element is used once: their contents may differ
                piece = pieces.pop(0) if len(pieces) > 1 and span.behavior == "void" else pieces[0]
                around = ("", "") if piece.raw == span.opening else span.opening.split(raw)
                yield around[0]
                yield self._item(piece, inner)
                yield around[-1]
            elif span.opening:
                yield Piece("void", span.opening, 0, 0, level="inside"), span.opening
        yield unit.segment.after
        yield from (self._item(piece, inner) for piece in unit.tail)

    def _item(self, piece: Piece, number: int) -> Item:
        if piece.kind == "text":
            return piece.text
        if piece.kind == "close" or piece.level == "run":
            return piece, piece.raw
        number = bisect_left(self._starts, piece.start, number)
        if number == len(self._starts) or self._starts[number] >= piece.end:
            return piece, piece.raw
        return piece, self._write_range(piece.start, piece.end, number)
