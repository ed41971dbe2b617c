"""HTML and XHTML: text between tags and in some attributes; every tag stays as it is.

The text of a block, such as a paragraph or a cell, is a segment, and the tags of elements that
stand in a sentence are spans of it. No tree is built: what is damaged stays damaged, byte for byte.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tformer_cli.documents.formats.html_markup import (
    BEGINNING,
    TAG,
    KeptRegions,
    attributes,
    drawn_texts,
    is_translated,
    note_mark_at,
    template_at,
)
from tformer_cli.documents.segments import (
    MARKS,
    Document,
    Encoding,
    ReadSettings,
    Segment,
    SegmentBuilder,
    Slot,
    check_pieces,
    decoded,
    decoded_as,
    unescaped,
)
from tformer_cli.errors import DataError
from tformer_cli.text.language_codes import is_same_language
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_REPEATING = (
    "b bdi bdo big cite del dfn em font i ins mark s small span strike strong sub sup time tt u"
)
_REPEATED = frozenset(_REPEATING.split())
"""Elements in a sentence that may stand around several runs of words."""
_ONCE = frozenset(("a", "abbr", "acronym", "data", "label", "q", "rb", "rp", "rt", "ruby"))
_INLINE_VOID = frozenset(("img", "wbr"))
_VOIDS = "area base br col embed hr img input link meta param source track wbr"
_VOID = frozenset(_VOIDS.split())
_CODE = frozenset(("code", "kbd", "math", "samp", "var"))
"""Elements in a sentence whose text is copied."""
_UNSEEN = frozenset(("script", "style", "svg", "iframe"))
_COPIED = frozenset(("pre", "textarea", "xmp", "listing"))
_WHOLE = _CODE | _UNSEEN | _COPIED
_OTHER = (
    (re.compile("<!--"), "-->"),
    (re.compile(r"<!\[CDATA\["), "]]>"),
    (re.compile(r"<![a-zA-Z\[]"), ">"),
    (re.compile(r"<\?"), r"\?>"),
    (re.compile(r"<\?"), ">"),
)
"""Beginnings of what is no element, and patterns of their ends; the first that has one is read."""
_TEMPLATE_SCRIPT = re.compile(
    r"(?:text|application)/[\w.+-]*(?:html|template|tmpl|handlebars|mustache|underscore|jsrender)"
    r"[\w.+-]*|x-template"
)
"""Types of scripts that hold markup."""
_NAME = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_VALUE = re.compile(r"""\s([^\s"'<>/=]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""")
_SPOKEN = ("description", "label", "placeholder", "roledescription", "valuetext")
_READ_ATTRIBUTES = frozenset(
    ("alt", "label", "placeholder", "title", *(f"aria-{name}" for name in _SPOKEN))
)
_READ_META = re.compile(
    r"(?:(?:og|twitter|dc|dcterms)[:.])?(?:description|title|site_name|image:alt|subject)|keywords"
    r"|application-name|apple-mobile-web-app-title"
)
_BUTTONS = frozenset(("button", "reset", "submit"))
_CHARSET = re.compile(
    rb"""<meta\b[^>]*\bcharset\s*=\s*["']?([\w:.-]+)|<\?xml[^>]*encoding\s*=\s*["']([\w.-]+)""",
    re.IGNORECASE,
)
_HEAD = 4096
"""Bytes in which a page has to tell its encoding; browsers look at 1024."""
_LANGUAGE = re.compile(r"""((?<![\w:-])(?:xml:)?lang\s*=\s*["'])([^"']*)""", re.IGNORECASE)
_CONTENT = re.compile(r"""((?<![\w:-])content\s*=\s*["'])([^"']*)""", re.IGNORECASE)
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
    is_mark: bool = False
    """True for the mark of a note."""

    @property
    def is_tag(self) -> bool:
        """Returns whether it begins with a tag whose attributes may have text."""
        return self.name not in ("", "script", "style") and self.kind != "close"

    @property
    def is_seen(self) -> bool:
        return self.kind in ("text", "protected") and not is_blank(self.text)


def read(data: bytes, settings: ReadSettings, *, is_xml: bool = False) -> Document:
    """Reads a page; `is_xml`: sections of characters (CDATA) are text in it."""
    text, encoding = _decoded(data, settings)
    is_xml = is_xml or text.startswith("<?xml") or settings.name.endswith(".xhtml")
    return HtmlDocument(text, encoding, settings, is_xml=is_xml)


def _decoded(data: bytes, settings: ReadSettings) -> tuple[str, Encoding]:
    """Decodes HTML as a browser does: by its mark, by what it says of itself, or as UTF-8."""
    if data.startswith(tuple(MARKS)) or settings.encoding:
        return decoded(data, settings)
    if b"\0" in data:
        raise DataError(f"{settings.name}: is not text; save it as HTML in UTF-8")
    found = _CHARSET.search(data[:_HEAD])
    said = (found[1] or found[2]).decode("ascii").lower() if found is not None else "utf-8"
    # Browsers, too, read Windows' characters where a page says Latin-1 or ASCII
    said = "cp1252" if said in ("iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii") else said
    for name in (said, "utf-8", "cp1252", "latin-1"):
        if (text := decoded_as(data, name)) is not None:
            return text, Encoding(b"", name)
    raise AssertionError("Latin-1 has a character for each byte")


@dataclass(frozen=True, slots=True)
class _Block(Slot):
    """The segment of a block, with its tokens."""

    raws: tuple[str, ...] = ()

    def with_tags(self, tags: Mapping[str, str]) -> _Block:
        """Writes other tags; what looks like one in a comment or in code is none."""
        raws = tuple(tags.get(one, one) for one in self.raws)
        return replace(self, segment=_with_tags(self.segment, tags), raw="".join(raws), raws=raws)


def _with_tags(segment: Segment, tags: Mapping[str, str]) -> Segment:
    def written(opening: str) -> str:
        tag = opening.strip()  # blanks may have been joined to it
        return opening.replace(tag, tags.get(tag, tag)) if tag else opening

    spans = (replace(one, opening=written(one.opening)) for one in segment.spans)
    return replace(segment, spans=tuple(spans))


class HtmlDocument:
    """HTML as parts, and the tags whose attributes have text."""

    def __init__(
        self, text: str, encoding: Encoding, settings: ReadSettings, *, is_xml: bool = False
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._encoding = encoding
        self._parts: list[str | _Block] = []
        self._tags: dict[str, list[tuple[int, int, Segment]]] = {}
        self._language = settings.target_language
        self._own_language = settings.source_language
        self._labels: dict[str, None] = {}
        """Tags of elements, besides those of the page, that tell a language."""
        self._escape = self._escaped  # the same for all blocks: there may be millions
        block: list[_Token] = []
        context = ""
        for token in _tokens(text, is_xml=is_xml):
            if token.kind in ("block", "copied"):
                self._add_block(block, context)
                block = []
                self._parts.append(token.raw)
                context = token.name
            else:
                block.append(token)
                check_pieces(len(block))
            if token.is_tag and token.raw not in self._tags:
                self._add_attributes(token)
            if token.is_tag and (token.name == "meta" or _LANGUAGE.search(token.raw)):
                self._add_label(token)
        self._add_block(block, context)

    @property
    def segments(self) -> list[Segment]:
        blocks = [one.segment for one in self._parts if isinstance(one, _Block)]
        return blocks + [segment for some in self._tags.values() for _, _, segment in some]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        given = iter(translated)
        # The blocks are given first, but are written with the tags behind them
        blocks = [next(given) for one in self._parts if isinstance(one, _Block)]
        tags = {
            raw: self._tag(raw, [next(given) for _ in some]) for raw, some in self._tags.items()
        }
        is_translated = any(one is not None for one in translated)
        if is_translated and self._language:
            tags |= {raw: self._relabeled(tags.get(raw, raw)) for raw in self._labels}
        left = iter(blocks)
        written = []
        for one in self._parts:
            if isinstance(one, _Block):
                block = next(left)
                written.append(one.with_tags(tags).written(block and _with_tags(block, tags)))
            else:
                tag = tags.get(one, one)
                written.append(self._in_language(tag) if is_translated else tag)
        whole = "".join(written)
        return self._encoding.mark + whole.encode(self._encoding.name)

    def _tag(self, raw: str, translated: Sequence[Segment | None]) -> str:
        made, place = "", 0
        for (start, end, segment), one in zip(self._tags[raw], translated, strict=True):
            slot = Slot(segment, raw[start:end], self._in_attribute)
            made += raw[place:start] + slot.written(one)
            place = end
        return made + raw[place:]

    def _add_label(self, token: _Token) -> None:
        """Remembers a tag that tells a language, and that of the page."""
        if token.name in ("html", "body"):
            found = _LANGUAGE.search(token.raw)
            self._own_language = (found and found[2]) or self._own_language
        elif token.name == "meta":
            values = attributes(token.raw)
            about = values.get("http-equiv", values.get("property", values.get("name", "")))
            if about.lower() in ("content-language", "og:locale", "language", "dc.language"):
                self._labels[token.raw] = None
        else:
            opening = TAG.match(token.raw)
            if opening and _LANGUAGE.search(opening[0]):
                self._labels[token.raw] = None

    def _relabeled(self, tag: str) -> str:
        """Tells the language of the translation where a tag tells that of the page."""
        opening = TAG.match(tag)
        end = opening.end() if opening else 0

        def label(found: re.Match[str]) -> str:
            if not (own := self._own_language) or not is_same_language(found[2], own):
                return found[0]  # of a text in another language
            code = self._language.replace("-", "_" if "_" in found[2] else "-")
            return found[1] + html.escape(code)

        pattern = _CONTENT if tag[:5].lower() == "<meta" else _LANGUAGE
        return pattern.sub(label, tag[:end]) + tag[end:]

    def _in_language(self, part: str) -> str:
        """Tells the language of the translation where the page tells that of its text."""
        code = self._language
        name = _name(part) if code and part.startswith("<") else ""
        if name not in ("html", "body") or part[1] == "/":
            return part
        part = _LANGUAGE.sub(lambda found: found[1] + html.escape(code), part)
        if name == "body":
            return part
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
        raws = tuple(one.raw for one in chosen)
        self._parts.append(_Block(builder.build(), "".join(raws), self._escape, raws))
        self._parts += [one.raw for one in tokens[last + 1 :]]

    def _add_attributes(self, token: _Token) -> None:
        """Remembers the texts of a tag's attributes; equal tags have the same."""
        raw, tag = token.raw, token.name
        opening = TAG.match(raw)
        end = opening.end() if opening else 0
        values = {found[1].lower(): found for found in _VALUE.finditer(raw, 0, end)}
        texts = {
            name: unescaped(found[2] or found[3] or found[4] or "")
            for name, found in values.items()
        }
        wanted = set(_READ_ATTRIBUTES)
        about = texts.get("name", texts.get("property", texts.get("itemprop", "")))
        if tag == "meta" and _READ_META.fullmatch(about.lower()):
            wanted.add("content")
        if tag == "input" and texts.get("type", "").lower() in _BUTTONS:
            wanted.add("value")
        found_texts = []
        for name, found in values.items():
            # Without quotes there is no room for a second word
            if name in wanted and found[4] is None:
                found_texts.append((f"{tag} {name}", found.span(2 if found[2] is not None else 3)))
        if tag == "svg":
            found_texts += (("svg", place) for place in drawn_texts(raw))
        places = []
        for context, (start, end) in found_texts:
            builder = SegmentBuilder(context, joins_blanks=True)
            if _add_text(builder, raw[start:end]):
                places.append((start, end, builder.build()))
        if places:
            self._tags[raw] = places


def _add_text(builder: SegmentBuilder, raw: str) -> bool:
    """Adds a text of an attribute, and returns whether it has letters outside of templates."""
    place = done = 0
    has_letters = False
    while found := BEGINNING.search(raw, place):
        place = found.start() + 1
        template = template_at(raw, found.start())
        if template:
            text = unescaped(raw[done : found.start()])
            has_letters |= any(map(str.isalpha, text))
            builder.text(text)
            builder.protected(template[0], template[0])
            done = place = found.start() + len(template[0])
    text = unescaped(raw[done:])
    builder.text(text)
    return has_letters or any(map(str.isalpha, text))


def _pair(tokens: Sequence[_Token]) -> None:
    """Pairs the tags of elements; those that cross others or lack their other tag stay single."""
    open_tags: list[int] = []
    counts: Counter[str] = Counter()  # or each closing tag without another would search them all
    for number, one in enumerate(tokens):
        if one.kind == "open":
            open_tags.append(number)
            counts[one.name] += 1
        elif one.kind == "close" and counts[one.name]:
            while one.pair is None:
                opened = tokens[open_tags[-1]]
                counts[opened.name] -= 1
                if opened.name == one.name:
                    one.pair, opened.pair = open_tags[-1], number
                open_tags.pop()


def _tokens(text: str, *, is_xml: bool = False) -> Iterator[_Token]:
    """Cuts HTML into text, tags and what is copied, of which elements are kept as they are."""
    if "translate" not in text.lower() and "material-" not in text:
        yield from _all_tokens(text, is_xml=is_xml)
        return
    regions = KeptRegions()
    kept: list[_Token] = []
    for token in _all_tokens(text, is_xml=is_xml):
        was_kept = regions.is_kept
        _pass(token, regions)
        is_end = token.raw.startswith("</")
        if was_kept and (regions.is_kept or is_end):
            kept.append(token)
        if not regions.is_kept:
            if kept:
                yield _kept(kept)
                kept = []
            if not (was_kept and is_end):
                yield token
        elif not was_kept:
            if is_end:  # of an element that is translated, in one that is not
                yield token
            else:
                kept.append(token)
    if kept:
        yield _kept(kept)


def _pass(token: _Token, regions: KeptRegions) -> None:
    """Lets a tag change the region that the page is in."""
    if not token.name:
        return
    if token.raw.startswith("</"):
        regions.close(token.name)
    elif token.kind in ("open", "block") and not _is_empty(token.raw, token.name):
        regions.open(token.name, token.raw)
    elif (opening := TAG.match(token.raw)) and is_translated(opening[0]) is False:
        token.name = ""  # its attributes are not read


def _kept(tokens: Sequence[_Token]) -> _Token:
    """Makes one token of an element that is not translated; in a sentence its text is copied."""
    raw = "".join(token.raw for token in tokens)
    kinds = [token.kind for token in tokens]
    is_inline = (kinds[0], kinds[-1]) == ("open", "close") and not {"block", "copied"} & {*kinds}
    return _Token(raw, "protected" if is_inline else "copied", "", _seen(raw))


def _all_tokens(text: str, *, is_xml: bool) -> Iterator[_Token]:
    """Cuts HTML into text, tags and what is copied."""
    ends = _Ends(text)
    done = place = 0
    while found := BEGINNING.search(text, place):
        start = found.start()
        token = _token_at(text, start, ends)
        if token is None:
            place = start + 1
            continue
        place = start + len(token.raw)
        if is_xml and token.raw.startswith("<![CDATA["):
            token.kind, token.text = "text", token.raw[9:-3]
        around = text[max(done, start - 1) : start] + text[place : place + 1]
        if token.is_mark and around in ("[]", "()"):  # they belong to the mark
            start, place = start - 1, place + 1
            token.raw = text[start:place]
        if done < start:
            yield _Token(text[done:start], "text", text=unescaped(text[done:start]))
        yield token
        done = place
    if done < len(text):
        yield _Token(text[done:], "text", text=unescaped(text[done:]))


class _Ends:
    """The ends in a text; one that does not come any more is not looked for again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._missing: set[str] = set()

    def behind(self, place: int, pattern: str) -> int | None:
        """Finds the first end behind a place; None: there is none."""
        if pattern in self._missing:
            return None
        found = re.compile(pattern, re.IGNORECASE).search(self._text, place)
        if found is None:
            self._missing.add(pattern)
            return None
        return found.end()


def _token_at(text: str, place: int, ends: _Ends) -> _Token | None:
    """Reads what begins with a < or in braces; None: it is text."""
    if template := template_at(text, place):
        raw, kind = template
        if kind == "text":
            return _Token(raw, "protected", "", raw)
        return _Token(raw, "copied" if kind == "program" else "void")
    for beginning, pattern in _OTHER:
        found = beginning.match(text, place)
        if found and (end := ends.behind(found.end(), pattern)):
            is_comment = text.startswith(("<!--", "<?"), place)
            return _Token(text[place:end], "void" if is_comment else "copied")
    if mark := note_mark_at(text, place):
        return _Token(mark, "void", is_mark=True)
    found = TAG.match(text, place)
    if found is None:
        return None
    raw, name = found[0], _name(found[0])
    is_inline = name in _REPEATED or name in _ONCE or name in _INLINE_VOID
    if raw.startswith("</"):
        return _Token(raw, "close" if is_inline else "block", name)
    if name in _WHOLE and not raw.endswith("/>") and not _holds_markup(raw, name):
        end = ends.behind(found.end(), rf"</{name}\s*>")
        if end is not None:
            raw = text[place:end]
            if name in _CODE:
                return _Token(raw, "protected", name, _seen(raw))
            return _Token(raw, "void" if name in _UNSEEN else "copied", name)
    if not is_inline and name not in _UNSEEN:
        return _Token(raw, "block", name)
    return _Token(raw, "void" if _is_empty(raw, name) or name in _UNSEEN else "open", name)


def _is_empty(tag: str, name: str) -> bool:
    return name in _VOID or (tag.endswith("/>") and name != "a")


def _holds_markup(tag: str, name: str) -> bool:
    """Returns whether a script is a template of markup."""
    kind = attributes(tag).get("type", "").strip().lower() if name == "script" else ""
    return bool(kind) and _TEMPLATE_SCRIPT.fullmatch(kind.partition(";")[0]) is not None


def _seen(raw: str) -> str:
    """Returns what a reader sees of markup."""
    return unescaped(TAG.sub("", raw))


def _name(tag: str) -> str:
    found = _NAME.match(tag)
    return found[1].lower() if found else ""
