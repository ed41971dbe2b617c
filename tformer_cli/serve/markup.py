"""HTML in, HTML out: the text between tags is translated, and every tag stays byte for byte.

A block (a paragraph, a cell) is translated as one text. Tags inside of a sentence are put back
where what they enclose is found, word for word, in the translation; where it is not, the text
before, in and behind them is translated part by part, so that no tag is lost.
"""

import html
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

Translate = Callable[[list[str]], Awaitable[list[str]]]
_INLINE = (
    "a abbr acronym b bdi bdo big cite data del dfn em font i img ins label mark q ruby s small "
    "span strike strong sub sup time tt u wbr"
)
INLINE = frozenset(_INLINE.split())
"""Elements that stand inside of a sentence."""
COPIED = ("code", "kbd", "math", "pre", "samp", "script", "style", "svg", "template", "var")
"""Elements that hold no text to translate."""
# In quotes a tag may hold > and <
_TAG = re.compile(r"""</?[a-zA-Z](?:"[^"]*"|'[^']*'|[^<>"'])*>""")
_COPIED = re.compile(rf"<({'|'.join(COPIED)})\b[^<>]*>.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_OTHER = re.compile(r"<!--.*?-->|<![a-zA-Z\[][^>]*>|<\?[^>]*>", re.DOTALL)
_NAME = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_KEPT = re.compile(
    r"""\btranslate\s*=\s*["']?no\b|\bclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE
)


@dataclass
class _Part:
    """Text, or tags that stand between texts."""

    text: str
    is_text: bool
    opens: int = 0
    """Elements that the tags open, less those that they close."""


@dataclass
class _Block:
    """Text of a block with the tags inside of it; or what is copied."""

    parts: list[_Part] = field(default_factory=list)

    @property
    def source(self) -> str:
        return _plain("".join(one.text for one in self.parts if one.is_text))

    @property
    def spans(self) -> list[str] | None:
        """Returns the texts that tags enclose, in order; None: some stand in others."""
        found, depth = [], 0
        for one in self.parts:
            if not one.is_text:
                depth += one.opens
                if depth < 0 or one.opens == 0:
                    return None
            elif depth:
                found.append(_plain(one.text))
        n_tags = sum(not one.is_text for one in self.parts)
        return found if depth == 0 and n_tags == 2 * len(found) else None


def _plain(text: str) -> str:
    """Returns text as a browser shows it: entities are characters, white space is one space."""
    return " ".join(html.unescape(text).split())


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


async def translated_markup(texts: Sequence[str], translate: Translate) -> list[str]:
    """Translates the text of HTML; all else stays as it is."""
    documents = [list(_blocks(text)) for text in texts]
    blocks = [one for document in documents for one in document if isinstance(one, _Block)]
    wanted = [[block.source, *(block.spans or ())] for block in blocks]
    found = iter(await translate([text for some in wanted for text in some]))
    made = [
        _placed(block, [next(found) for _ in some])
        for block, some in zip(blocks, wanted, strict=True)
    ]
    # Only now is it known which blocks have to be translated in parts
    left = [block for block, text in zip(blocks, made, strict=True) if text is None]
    parts = [one for block in left for one in block.parts if one.is_text and _plain(one.text)]
    in_parts = iter(await translate([_plain(one.text) for one in parts]) if parts else ())
    by_part = {id(part): next(in_parts) for part in parts}
    written = iter(
        _in_parts(block, by_part) if text is None else text
        for block, text in zip(blocks, made, strict=True)
    )
    return [
        "".join(next(written) if isinstance(one, _Block) else one for one in document)
        for document in documents
    ]


def _placed(block: _Block, found: list[str]) -> str | None:
    """Puts the tags of a block into its translation; None: they have no certain place."""
    whole, *spans = found
    if block.spans is None:
        return None
    end, written = 0, ""
    tags = iter(one.text for one in block.parts if not one.is_text)
    for source, translated in zip(block.spans, spans, strict=True):
        # What is not translated, such as a name or a number, is looked for as it was
        inner = next((one for one in (translated, source) if _occurs_once(one, whole)), "")
        place = whole.find(inner, end) if inner else -1
        if place < 0:
            return None
        written += _escaped(whole[end:place]) + next(tags) + _escaped(inner) + next(tags)
        end = place + len(inner)
    first, last = block.parts[0], block.parts[-1]
    before = _space(first.text, start=True) if first.is_text else ""
    behind = _space(last.text, start=False) if last.is_text else ""
    return before + written + _escaped(whole[end:]) + behind


def _occurs_once(inner: str, whole: str) -> bool:
    return bool(inner) and len(re.findall(rf"(?<!\w){re.escape(inner)}(?!\w)", whole)) == 1


def _in_parts(block: _Block, translated: dict[int, str]) -> str:
    return "".join(
        _space(one.text, start=True) + _escaped(translated[id(one)]) + _space(one.text, start=False)
        if id(one) in translated
        else one.text
        for one in block.parts
    )


def _space(text: str, *, start: bool) -> str:
    """Returns the white space that a text begins or ends with."""
    stripped = text.lstrip() if start else text.rstrip()
    return text[: len(text) - len(stripped)] if start else text[len(stripped) :]


def _blocks(text: str) -> Iterator[str | _Block]:
    """Cuts HTML into blocks of text, and what is copied between them."""
    parts: list[_Part] = []
    for piece, kind in _pieces(text):
        if kind == "inline":
            opens = 0 if _is_void(piece) else -1 if piece.startswith("</") else 1
            if parts and not parts[-1].is_text and (parts[-1].opens > 0) == (opens > 0):
                parts[-1].text += piece
                parts[-1].opens += opens
            else:
                parts.append(_Part(piece, is_text=False, opens=opens))
        elif kind == "text":
            parts.append(_Part(piece, is_text=True))
        else:
            yield from _of_parts(parts)
            parts = []
            yield piece
    yield from _of_parts(parts)


def _of_parts(parts: list[_Part]) -> Iterator[str | _Block]:
    """Yields a block without the tags around all of its text."""
    filled = [n for n, one in enumerate(parts) if one.is_text and one.text.strip()]
    if not filled:
        yield from (one.text for one in parts)
        return
    first, last = filled[0], filled[-1] + 1
    # Of two elements side by side the outer tags belong to what is between them
    if not _is_balanced(parts[first:last]):
        first, last = 0, len(parts)
    yield from (one.text for one in parts[:first])
    yield _Block(parts[first:last])
    yield from (one.text for one in parts[last:])


def _is_balanced(parts: list[_Part]) -> bool:
    depths = list(accumulate(one.opens for one in parts))
    return depths[-1] == 0 and min(depths) >= 0


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yields what HTML is made of, each with its kind: text, inline, block or copied."""
    place = 0
    while place < len(text):
        start = text.find("<", place)
        if start != place:
            end = len(text) if start < 0 else start
            yield text[place:end], "text"
            place = end
            continue
        if found := _COPIED.match(text, place) or _OTHER.match(text, place):
            yield found[0], "copied"
        elif found := _TAG.match(text, place):
            if not found[0].startswith("</") and _KEPT.search(found[0]) and not _is_void(found[0]):
                end = _end_of(text, found.end(), _name(found[0]))
                yield text[place:end], "copied"
                place = end
                continue
            yield found[0], "inline" if _name(found[0]) in INLINE else "block"
        else:  # a < that is text
            yield "<", "text"
            place += 1
            continue
        place = found.end()


def _name(tag: str) -> str:
    found = _NAME.match(tag)
    return found[1].lower() if found else ""


def _is_void(tag: str) -> bool:
    return tag.endswith("/>") or _name(tag) in ("img", "wbr", "br", "hr", "input", "meta", "link")


def _end_of(text: str, place: int, name: str) -> int:
    """Returns where an element ends whose tag ended at a place."""
    depth = 1
    for found in re.finditer(rf"<(/?){re.escape(name)}\b[^<>]*>", text[place:], re.IGNORECASE):
        depth += -1 if found[1] else 0 if _is_void(found[0]) else 1
        if depth == 0:
            return place + found.end()
    return len(text)
