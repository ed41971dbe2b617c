"""HTML and XHTML: translates text between tags and in some attributes; tags stay unchanged.

The text of a block, such as a paragraph or a cell, is a segment; tags of inline elements are its
spans. There is no tree: damaged markup stays damaged, byte for byte.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tformer_cli.documents.segments import (
    MARKS,
    Document,
    Encoding,
    ReadSettings,
    Segment,
    SegmentBuilder,
    Slot,
    check_pieces,
    decode_as,
    decode_file,
    unescape,
)
from tformer_cli.errors import DataError
from tformer_cli.plugins.documents.html_markup import (
    BEGINNING,
    TAG,
    KeptRegions,
    attributes,
    drawn_texts,
    is_translated,
    note_mark_at,
    template_at,
)
from tformer_cli.text.language_codes import is_same_language
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_REPEATING = (
    "b bdi bdo big cite del dfn em font i ins mark s small span strike strong sub sup time tt u"
)
_REPEATED = frozenset(_REPEATING.split())
"""Inline elements that may be split around several runs of words."""
_ONCE = frozenset(("a", "abbr", "acronym", "data", "label", "q", "rb", "rp", "rt", "ruby"))
_INLINE_VOID = frozenset(("img", "wbr"))
_VOIDS = "area base br col embed hr img input link meta param source track wbr"
_VOID = frozenset(_VOIDS.split())
_CODE = frozenset(("code", "kbd", "math", "samp", "var"))
"""Inline elements whose text is copied."""
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
"""Starts of markup other than elements, with patterns of their ends; the first match wins."""
_TEMPLATE_SCRIPT = re.compile(
    r"(?:text|application)/[\w.+-]*(?:html|template|tmpl|handlebars|mustache|underscore|jsrender)"
    r"[\w.+-]*|x-template"
)
"""Script types whose content is markup."""
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
"""Bytes searched for the declared encoding; browsers search 1024."""
_LANGUAGE = re.compile(r"""((?<![\w:-])(?:xml:)?lang\s*=\s*["'])([^"']*)""", re.IGNORECASE)
_CONTENT = re.compile(r"""((?<![\w:-])content\s*=\s*["'])([^"']*)""", re.IGNORECASE)
_FROM_RIGHT = frozenset(("ar", "arc", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"))

_Kind = Literal["text", "open", "close", "void", "protected", "block", "copied"]


@dataclass(slots=True)
class _Token:
    """A token of HTML."""

    raw: str
    kind: _Kind
    name: str = ""
    text: str = ""
    """Its visible text."""
    pair: int | None = None
    """Number of the matching tag, for a tag."""
    is_mark: bool = False
    """True for a note mark."""

    @property
    def is_tag(self) -> bool:
        """True if it starts with a tag whose attributes may have text."""
        return self.name not in ("", "script", "style") and self.kind != "close"

    @property
    def is_seen(self) -> bool:
        return self.kind in ("text", "protected") and not is_blank(self.text)


def read(data: bytes, settings: ReadSettings, *, is_xml: bool = False) -> Document:
    """Reads a page; with `is_xml`, CDATA sections are text."""
    text, encoding = _decode_page(data, settings)
    is_xml = is_xml or text.startswith("<?xml") or settings.name.endswith(".xhtml")
    return HtmlDocument(text, encoding, settings, is_xml=is_xml)


def _decode_page(data: bytes, settings: ReadSettings) -> tuple[str, Encoding]:
    """Decodes HTML as browsers do: by byte order mark, by declared encoding, or as UTF-8."""
    if data.startswith(tuple(MARKS)) or settings.encoding:
        return decode_file(data, settings)
    if b"\0" in data:
        raise DataError(f"{settings.name}: is not text; save it as HTML in UTF-8")
    match = _CHARSET.search(data[:_HEAD])
    charset = (match[1] or match[2]).decode("ascii").lower() if match is not None else "utf-8"
    # Like browsers, read pages that declare Latin-1 or ASCII as Windows-1252
    charset = (
        "cp1252" if charset in ("iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii") else charset
    )
    for name in (charset, "utf-8", "cp1252", "latin-1"):
        if (text := decode_as(data, name)) is not None:
            return text, Encoding(b"", name)
    raise AssertionError("Latin-1 has a character for each byte")


@dataclass(frozen=True, slots=True)
class _Block(Slot):
    """The segment of a block with its tokens."""

    raws: tuple[str, ...] = ()

    def with_tags(self, tags: Mapping[str, str]) -> _Block:
        """Replaces tags, but not text in comments or code that looks like one."""
        raws = tuple(tags.get(raw, raw) for raw in self.raws)
        return replace(self, segment=_with_tags(self.segment, tags), raw="".join(raws), raws=raws)


def _with_tags(segment: Segment, tags: Mapping[str, str]) -> Segment:
    def write_opening(opening: str) -> str:
        tag = opening.strip()  # blanks may have been joined to it
        return opening.replace(tag, tags.get(tag, tag)) if tag else opening

    spans = (replace(span, opening=write_opening(span.opening)) for span in segment.spans)
    return replace(segment, spans=tuple(spans))


class HtmlDocument:
    """An HTML document: its parts, and the tags whose attributes have text."""

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
        """Tags that declare a language."""
        self._escape = self._escape_text  # one bound method for all blocks: there may be millions
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
        blocks = [part.segment for part in self._parts if isinstance(part, _Block)]
        return blocks + [segment for slots in self._tags.values() for _, _, segment in slots]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        segments = iter(translated)
        # Segments of blocks come first, but writing blocks needs the translated tags
        blocks = [next(segments) for part in self._parts if isinstance(part, _Block)]
        tags = {
            raw: self._tag(raw, [next(segments) for _ in slots])
            for raw, slots in self._tags.items()
        }
        is_translated = any(segment is not None for segment in translated)
        if is_translated and self._language:
            tags |= {raw: self._relabel_tag(tags.get(raw, raw)) for raw in self._labels}
        left = iter(blocks)
        written = []
        for part in self._parts:
            if isinstance(part, _Block):
                block = next(left)
                written.append(part.with_tags(tags).write(block and _with_tags(block, tags)))
            else:
                tag = tags.get(part, part)
                written.append(self._in_language(tag) if is_translated else tag)
        whole = "".join(written)
        return self._encoding.mark + whole.encode(self._encoding.name)

    def _tag(self, raw: str, translated: Sequence[Segment | None]) -> str:
        written, place = "", 0
        for (start, end, segment), translation in zip(self._tags[raw], translated, strict=True):
            slot = Slot(segment, raw[start:end], self._in_attribute)
            written += raw[place:start] + slot.write(translation)
            place = end
        return written + raw[place:]

    def _add_label(self, token: _Token) -> None:
        """Remembers a tag that declares a language, and the language of the page."""
        if token.name in ("html", "body"):
            match = _LANGUAGE.search(token.raw)
            self._own_language = (match and match[2]) or self._own_language
        elif token.name == "meta":
            values = attributes(token.raw)
            about = values.get("http-equiv", values.get("property", values.get("name", "")))
            if about.lower() in ("content-language", "og:locale", "language", "dc.language"):
                self._labels[token.raw] = None
        else:
            opening = TAG.match(token.raw)
            if opening and _LANGUAGE.search(opening[0]):
                self._labels[token.raw] = None

    def _relabel_tag(self, tag: str) -> str:
        """Changes the language of a tag from that of the page to the target language."""
        opening = TAG.match(tag)
        end = opening.end() if opening else 0

        def label(match: re.Match[str]) -> str:
            if not (own := self._own_language) or not is_same_language(match[2], own):
                return match[0]  # a text in another language
            code = self._language.replace("-", "_" if "_" in match[2] else "-")
            return match[1] + html.escape(code)

        pattern = _CONTENT if tag[:5].lower() == "<meta" else _LANGUAGE
        return pattern.sub(label, tag[:end]) + tag[end:]

    def _in_language(self, part: str) -> str:
        """Changes the language that the page declares to the target language."""
        code = self._language
        name = _name(part) if code and part.startswith("<") else ""
        if name not in ("html", "body") or part[1] == "/":
            return part
        part = _LANGUAGE.sub(lambda match: match[1] + html.escape(code), part)
        if name == "body":
            return part
        if code.partition("-")[0] in _FROM_RIGHT and not re.search(r"\bdir\s*=", part):
            part = part[:5] + ' dir="rtl"' + part[5:]
        return part

    def _escape_text(self, text: str) -> str:
        return self._encodable(html.escape(text, quote=False))

    def _in_attribute(self, text: str) -> str:
        return self._encodable(html.escape(text))

    def _encodable(self, text: str) -> str:
        """Writes characters missing from the encoding as references."""
        name = self._encoding.name
        return text.encode(name, "xmlcharrefreplace").decode(name)

    def _add_block(self, tokens: list[_Token], context: str) -> None:
        """Adds a block; tags around its whole text stay outside the segment."""
        _pair(tokens)
        seen = [n for n, token in enumerate(tokens) if token.is_seen]
        read = "".join(token.text for token in tokens if token.kind == "text")
        if not any(map(str.isalnum, read)):
            self._parts += [token.raw for token in tokens]
            return
        first, last = seen[0], seen[-1]
        pairs = [
            (n, token.pair) for n, token in enumerate(tokens) if token.kind == "open" and token.pair
        ]
        first = min([first, *(n for n, end in pairs if n < first <= end <= last)])
        last = max([last, *(end for n, end in pairs if first <= n <= last < end)])
        self._parts += [token.raw for token in tokens[:first]]
        chosen = tokens[first : last + 1]
        builder = SegmentBuilder(context, joins_blanks=True)
        for token in chosen:
            if token.kind == "text":
                builder.text(token.text)
            elif token.kind == "protected":
                builder.protect(token.text, token.raw)
            elif token.kind == "void" or token.pair is None:
                builder.void(token.raw)
            elif token.kind == "open":
                # An element with an id must not occur twice
                repeats = token.name in _REPEATED and not re.search(r"\sid\s*=", token.raw)
                builder.open(token.raw, "repeat" if repeats else "once")
            else:
                builder.close(token.raw)
        raws = tuple(token.raw for token in chosen)
        self._parts.append(_Block(builder.build(), "".join(raws), self._escape, raws))
        self._parts += [token.raw for token in tokens[last + 1 :]]

    def _add_attributes(self, token: _Token) -> None:
        """Remembers the attribute texts of a tag; equal tags share them."""
        raw, tag = token.raw, token.name
        opening = TAG.match(raw)
        end = opening.end() if opening else 0
        values = {match[1].lower(): match for match in _VALUE.finditer(raw, 0, end)}
        texts = {
            name: unescape(match[2] or match[3] or match[4] or "") for name, match in values.items()
        }
        wanted = set(_READ_ATTRIBUTES)
        about = texts.get("name", texts.get("property", texts.get("itemprop", "")))
        if tag == "meta" and _READ_META.fullmatch(about.lower()):
            wanted.add("content")
        if tag == "input" and texts.get("type", "").lower() in _BUTTONS:
            wanted.add("value")
        found_texts = []
        for name, match in values.items():
            # Without quotes a value cannot have a second word
            if name in wanted and match[4] is None:
                found_texts.append((f"{tag} {name}", match.span(2 if match[2] is not None else 3)))
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
    """Adds an attribute text; returns True if it has letters outside templates."""
    place = done = 0
    has_letters = False
    while match := BEGINNING.search(raw, place):
        place = match.start() + 1
        template = template_at(raw, match.start())
        if template:
            text = unescape(raw[done : match.start()])
            has_letters |= any(map(str.isalpha, text))
            builder.text(text)
            builder.protect(template[0], template[0])
            done = place = match.start() + len(template[0])
    text = unescape(raw[done:])
    builder.text(text)
    return has_letters or any(map(str.isalpha, text))


def _pair(tokens: Sequence[_Token]) -> None:
    """Pairs opening and closing tags; unmatched and crossing tags stay single."""
    open_tags: list[int] = []
    counts: Counter[str] = Counter()  # spares each unmatched closing tag a search of all open tags
    for number, token in enumerate(tokens):
        if token.kind == "open":
            open_tags.append(number)
            counts[token.name] += 1
        elif token.kind == "close" and counts[token.name]:
            while token.pair is None:
                opened = tokens[open_tags[-1]]
                counts[opened.name] -= 1
                if opened.name == token.name:
                    token.pair, opened.pair = open_tags[-1], number
                open_tags.pop()


def _tokens(text: str, *, is_xml: bool = False) -> Iterator[_Token]:
    """Tokenizes HTML; merges each element that is not translated into one token."""
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
                yield _merge_kept(kept)
                kept = []
            if not (was_kept and is_end):
                yield token
        elif not was_kept:
            if is_end:  # closes a translated element inside an untranslated one
                yield token
            else:
                kept.append(token)
    if kept:
        yield _merge_kept(kept)


def _pass(token: _Token, regions: KeptRegions) -> None:
    """Updates the kept regions with a tag."""
    if not token.name:
        return
    if token.raw.startswith("</"):
        regions.close(token.name)
    elif token.kind in ("open", "block") and not _is_empty(token.raw, token.name):
        regions.open(token.name, token.raw)
    elif (opening := TAG.match(token.raw)) and is_translated(opening[0]) is False:
        token.name = ""  # its attributes are not read


def _merge_kept(tokens: Sequence[_Token]) -> _Token:
    """Merges an element that is not translated; inside a sentence its text is copied."""
    raw = "".join(token.raw for token in tokens)
    kinds = [token.kind for token in tokens]
    is_inline = (kinds[0], kinds[-1]) == ("open", "close") and not {"block", "copied"} & {*kinds}
    return _Token(raw, "protected" if is_inline else "copied", "", _visible_text(raw))


def _all_tokens(text: str, *, is_xml: bool) -> Iterator[_Token]:
    """Tokenizes HTML into text, tags and copied parts."""
    ends = _Ends(text)
    done = place = 0
    while match := BEGINNING.search(text, place):
        start = match.start()
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
            yield _Token(text[done:start], "text", text=unescape(text[done:start]))
        yield token
        done = place
    if done < len(text):
        yield _Token(text[done:], "text", text=unescape(text[done:]))


class _Ends:
    """Searches for end patterns; remembers those that do not occur any more."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._missing: set[str] = set()

    def find_after(self, place: int, pattern: str) -> int | None:
        """Finds the first end after a place; None if there is none."""
        if pattern in self._missing:
            return None
        match = re.compile(pattern, re.IGNORECASE).search(self._text, place)
        if match is None:
            self._missing.add(pattern)
            return None
        return match.end()


def _token_at(text: str, place: int, ends: _Ends) -> _Token | None:
    """Reads a token that starts with "<" or a brace; None if it is text."""
    if template := template_at(text, place):
        raw, kind = template
        if kind == "text":
            return _Token(raw, "protected", "", raw)
        return _Token(raw, "copied" if kind == "program" else "void")
    for beginning, pattern in _OTHER:
        match = beginning.match(text, place)
        if match and (end := ends.find_after(match.end(), pattern)):
            is_comment = text.startswith(("<!--", "<?"), place)
            return _Token(text[place:end], "void" if is_comment else "copied")
    if mark := note_mark_at(text, place):
        return _Token(mark, "void", is_mark=True)
    match = TAG.match(text, place)
    if match is None:
        return None
    raw, name = match[0], _name(match[0])
    is_inline = name in _REPEATED or name in _ONCE or name in _INLINE_VOID
    if raw.startswith("</"):
        return _Token(raw, "close" if is_inline else "block", name)
    if name in _WHOLE and not raw.endswith("/>") and not _holds_markup(raw, name):
        end = ends.find_after(match.end(), rf"</{name}\s*>")
        if end is not None:
            raw = text[place:end]
            if name in _CODE:
                return _Token(raw, "protected", name, _visible_text(raw))
            return _Token(raw, "void" if name in _UNSEEN else "copied", name)
    if not is_inline and name not in _UNSEEN:
        return _Token(raw, "block", name)
    return _Token(raw, "void" if _is_empty(raw, name) or name in _UNSEEN else "open", name)


def _is_empty(tag: str, name: str) -> bool:
    return name in _VOID or (tag.endswith("/>") and name != "a")


def _holds_markup(tag: str, name: str) -> bool:
    """True if a script is a template with markup."""
    kind = attributes(tag).get("type", "").strip().lower() if name == "script" else ""
    return bool(kind) and _TEMPLATE_SCRIPT.fullmatch(kind.partition(";")[0]) is not None


def _visible_text(raw: str) -> str:
    """Returns the visible text of markup."""
    return unescape(TAG.sub("", raw))


def _name(tag: str) -> str:
    match = _NAME.match(tag)
    return match[1].lower() if match else ""
