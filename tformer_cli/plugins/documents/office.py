"""Word, PowerPoint and OpenDocument: reads the XML parts with text in a zip archive.

A `Dialect`, a table of element names, describes each format. Microsoft's paragraphs contain runs,
each with the properties of its characters; OpenDocument mixes text and elements.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from tformer_cli.documents.segments import (
    Behavior,
    Document,
    ReadSettings,
    SegmentBuilder,
    TooLargeError,
)
from tformer_cli.errors import DataError
from tformer_cli.plugins.documents import html, text
from tformer_cli.plugins.documents.archives import Archive, ArchiveDocument
from tformer_cli.plugins.documents.packages import Part, package_parts
from tformer_cli.plugins.documents.xml_text import (
    Element,
    InlineReader,
    Item,
    Piece,
    Source,
    Unit,
    XmlDocument,
    build_unit,
    decode_text,
    drop_spaces,
    escape_like,
    list_pieces,
    pair,
    parse_xml,
)
from tformer_cli.wording import is_blank

_MICROSOFT = {"wordprocessingml": "w", "drawingml": "a", "presentationml": "p"}
_DRAWING = {"chart": "c", "picture": "pic", "wordprocessingDrawing": "wp"}
_OASIS = "urn:oasis:names:tc:opendocument:xmlns"
NAMESPACES = {
    **{
        f"http://schemas.openxmlformats.org/{name}/2006/main": prefix
        for name, prefix in _MICROSOFT.items()
    },
    **{f"http://purl.oclc.org/ooxml/{name}/main": prefix for name, prefix in _MICROSOFT.items()},
    **{
        f"http://schemas.openxmlformats.org/drawingml/2006/{name}": prefix
        for name, prefix in _DRAWING.items()
    },
    **{f"http://purl.oclc.org/ooxml/drawingml/{name}": prefix for name, prefix in _DRAWING.items()},
    "http://schemas.openxmlformats.org/package/2006/metadata/core-properties": "cp",
    "http://schemas.microsoft.com/office/drawing/2014/chartex": "cx",
    "http://purl.org/dc/elements/1.1/": "dc",
    "urn:schemas-microsoft-com:vml": "v",
    **{
        f"{_OASIS}:{name}:1.0": name
        for name in ("text", "table", "presentation", "office", "meta", "form")
    },
    f"{_OASIS}:svg-compatible:1.0": "svg",
    f"{_OASIS}:manifest:1.0": "manifest",
}
"""Prefixes by namespace URI; files may choose others."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The elements of a format and their roles."""

    paragraphs: frozenset[str]
    plain: frozenset[str]
    """Elements that contain only text."""
    skipped: frozenset[str]
    """Elements without translatable text: deletions, numbers."""
    described: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Attributes with text, mostly alternative texts of pictures."""
    prompts: frozenset[str] = frozenset()
    """Elements that mark a shape of a master as a prompt, which slides never show."""
    runs: frozenset[str] = frozenset()
    """Elements for runs of characters with equal properties; none if paragraphs have the text."""
    texts: frozenset[str] = frozenset()
    """Elements with the text of a run."""
    characters: Mapping[str, str] = field(default_factory=dict)
    """Elements that represent characters, such as a non-breaking hyphen."""
    containers: Mapping[str, str] = field(default_factory=dict)
    """Elements around runs, with the child that contains the runs; "" for the element itself."""
    behaviors: Mapping[str, Behavior] = field(default_factory=dict)
    """Behavior of inline elements; others are copied with their text."""
    fields: frozenset[str] = frozenset()
    """Elements whose text a program computes."""
    dropped: frozenset[str] = frozenset()
    """Internal notes of the program that a translation invalidates."""
    breaks: frozenset[str] = frozenset()
    halves: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Paired elements: "start" or "end", and the attribute that identifies the pair."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Patterns of language declarations, and the part of the code that each contains."""

    def half(self, source: Source, element: Element) -> str:
        if element.name not in self.halves:
            return ""
        side, attribute = self.halves[element.name]
        kind = re.sub(r"(Range)?(Start|End)$|-(start|end)$", "", element.name)
        return f"{side}{kind} {source.attribute(element, attribute)}"


_PROPERTIES = ("dc:title", "dc:subject", "dc:description")
OPEN_XML = Dialect(
    paragraphs=frozenset({"w:p", "a:p"}),
    plain=frozenset({"c:v", "p:text", "cx:v", *_PROPERTIES, "cp:keywords"}),
    skipped=frozenset(
        {"w:del", "w:moveFrom", "w:pPr", "w:rPr", "a:pPr", "a:rPr", "c:numCache", "c:numLit"}
        | {"cx:numDim"}
    ),
    described={
        # Word writes the same text in two of them, and programs differ in which they read
        **dict.fromkeys(("wp:docPr", "pic:cNvPr", "p:cNvPr"), ("descr", "title")),
        **dict.fromkeys(("w:tblCaption", "w:tblDescription"), ("w:val",)),
        **dict.fromkeys(("w:listEntry", "w:helpText", "w:statusText"), ("w:val",)),
        "w:listItem": ("w:displayText",),
        "w:hyperlink": ("w:tooltip",),
        "v:textpath": ("string",),
        "v:shape": ("alt",),
    },
    prompts=frozenset({"p:ph"}),
    runs=frozenset({"w:r", "a:r"}),
    texts=frozenset({"w:t", "a:t"}),
    characters={"w:noBreakHyphen": "-", "w:softHyphen": ""},
    containers={
        **dict.fromkeys(("w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml"), ""),
        "w:bdo": "",
        "w:dir": "",
        "w:sdt": "w:sdtContent",
    },
    fields=frozenset({"w:fldSimple", "a:fld"}),
    dropped=frozenset({"w:proofErr", "w:lastRenderedPageBreak"}),
    breaks=frozenset({"w:br", "w:cr", "w:tab", "w:ptab", "a:br"}),
    halves={
        f"w:{name}{side}": (side.lower(), "w:id")
        for name in ("bookmark", "commentRange", "perm")
        for side in ("Start", "End")
    },
    labels={
        r"""(<\w+:(?:lang|themeFontLang)\b[^>]*?\s\w+:val=["'])[\w-]+""": "code",
        r"""(<a:(?:rPr|defRPr|endParaRPr)\b[^>]*?\slang=["'])[\w-]+""": "code",
    },
)
OPEN_DOCUMENT = Dialect(
    paragraphs=frozenset({"text:p", "text:h"}),
    plain=frozenset(
        {"svg:title", "svg:desc", "presentation:footer-decl", "presentation:header-decl"}
        | {"text:index-title-template", *_PROPERTIES, "meta:keyword"}
    ),
    skipped=frozenset({"text:tracked-changes"}),
    described={
        f"form:{name}": ("form:label",)
        for name in ("button", "checkbox", "radio", "fixed-text", "frame")
    },
    behaviors={
        **dict.fromkeys(("text:span", "text:meta"), "repeat"),
        **dict.fromkeys(("text:a", "text:ruby", "text:ruby-base"), "once"),
        **dict.fromkeys(("text:note", "office:annotation", "text:ruby-text"), "void"),
    },
    breaks=frozenset({"text:line-break", "text:tab", "text:s"}),
    halves={
        f"text:{name}-{side}": (side, attribute)
        for name, attribute in (
            *(("bookmark", "text:name"), ("reference-mark", "text:name")),
            ("change", "text:change-id"),
        )
        for side in ("start", "end")
    },
    labels={
        r"""(\sfo:language=["'])(?!zxx|none)[\w-]+""": "language",
        r"""(\sfo:country=["'])(?!zxx|none)[\w-]+""": "country",
    },
)
_WITH_TEXT = (
    "main header footer footnotes endnotes comments slide notesslide chart chartshapes chartex "
    "diagramdata diagramdrawing core-properties"
)
_MASTERS = ("slidemaster", "slidelayout", "notesmaster", "handoutmaster")
_SHAPES = ("p:sp", "p:pic", "p:graphicFrame")
_OPEN_XML_PARTS = frozenset((*_WITH_TEXT.split(), *_MASTERS))
_CHUNK = "embedded document (altChunk)"
_NOT_READ = {
    "afchunk": _CHUNK,
    "package": "embedded document",
    "oleobject": "embedded object",
    "control": "form control",
    "subdocument": "subdocument",
    "glossary": "collection of building blocks",
}
"""Kinds of parts that may have text, with descriptions."""
_OFFICE = "application/vnd.openxmlformats-officedocument."
_HEAD = 2000
"""Bytes searched for the first element of an XML file."""
_OPEN_DOCUMENT_PARTS = re.compile(r"(^|/)(content|styles)\.xml$|^meta\.xml$")
_OPEN_DOCUMENT_OBJECT = "application/vnd.sun.star.oleobject"


def read_open_xml(data: bytes, settings: ReadSettings) -> Document:
    """Reads .docx and .pptx."""
    return _open_xml(data, settings, is_inner=False)


def _open_xml(data: bytes, settings: ReadSettings, *, is_inner: bool) -> ArchiveDocument:
    """Reads a Microsoft document and the documents in it, one level deep."""
    archive = Archive(data, settings.name)
    parts = package_parts(archive)
    mains = [part for part in parts if "main" in part.kinds and "afchunk" not in part.kinds]
    if not mains:
        raise archive.error("has no main part; it is damaged or has another format")
    if all("spreadsheetml" in part.content_type for part in mains):
        raise archive.error("is a spreadsheet; rename it to .xlsx")
    document = _Parts(archive, OPEN_XML, settings)
    for part in parts:
        known = [kind for kind in part.kinds if kind in _OPEN_XML_PARTS]
        other = [_NOT_READ[kind] for kind in part.kinds if kind in _NOT_READ]
        # Check before the content type: an inserted document has that of a main part
        if _CHUNK in other and not is_inner and (chunk := _chunk(archive, part, settings)):
            document.parts[part.name] = chunk
        elif other and (_CHUNK in other or not known):
            document.skipped[other[0]] += 1
        elif known:
            document.add(part.name, has_prompts=known[0] in _MASTERS)
        elif "styles" in part.kinds or "settings" in part.kinds:
            document.labelled.append(part.name)
    return document.whole()


def _chunk(archive: Archive, part: Part, settings: ReadSettings) -> Document | None:
    """Reads a document that Word inserts into another on opening; None without a reader."""
    kind = part.content_type
    data, where = archive.read(part.name), replace(settings, name=f"{settings.name}: {part.name}")
    try:
        if kind in ("text/html", "application/xhtml+xml"):
            return html.read(data, where)
        if kind == "text/plain":
            return text.read(data, where)
        if kind.startswith(f"{_OFFICE}wordprocessingml."):
            return _open_xml(data, where, is_inner=True)
    except TooLargeError:
        raise
    except DataError:  # skips only this part, which is counted
        pass
    return None


def read_open_document(data: bytes, settings: ReadSettings) -> Document:
    """Reads .odt, .odp and their flat XML forms."""
    if not data.startswith(b"PK") and b"office:document" in data[:_HEAD]:
        source = parse_xml(data, settings.name, NAMESPACES)
        return XmlDocument(data, source, _PartReader(source, OPEN_DOCUMENT).units())
    archive = Archive(data, settings.name)
    archive.read("content.xml")
    manifest = archive.read("META-INF/manifest.xml")
    if b"encryption-data" in manifest:
        raise archive.error("has a password; save it without one")
    document = _Parts(archive, OPEN_DOCUMENT, settings)
    for name in archive.members:
        if _OPEN_DOCUMENT_PARTS.search(name):
            document.add(name)
    document.skipped["embedded object"] += manifest.count(_OPEN_DOCUMENT_OBJECT.encode())
    return document.whole()


class _Parts:
    """Collects the readable parts of an archive."""

    def __init__(self, archive: Archive, dialect: Dialect, settings: ReadSettings) -> None:
        self.parts: dict[str, Document] = {}
        self.labelled: list[str] = []
        """Parts that only declare the language."""
        self.skipped: Counter[str] = Counter()
        self._archive, self._dialect, self._settings = archive, dialect, settings

    def add(self, name: str, *, has_prompts: bool = False) -> None:
        data = self._archive.read(name)
        source = parse_xml(data, f"{self._settings.name}: {name}", NAMESPACES)
        reader = _PartReader(source, self._dialect, has_prompts=has_prompts)
        units = reader.units()
        if not (units or has_prompts) and reader.has_text():
            self.skipped["text outside of paragraphs"] += 1
        self.parts[name] = XmlDocument(data, source, units)
        self.skipped += reader.skipped
        self.labelled.append(name)

    def whole(self) -> ArchiveDocument:
        code = self._settings.target_language.replace("_", "-")
        relabel = _make_relabel(self._dialect, code)
        document = ArchiveDocument(
            self._archive, self.parts, dict.fromkeys(self.labelled, relabel) if code else {}
        )
        document.skipped += self.skipped
        return document


def _make_relabel(dialect: Dialect, code: str) -> Callable[[bytes], bytes]:
    language, _, country = code.partition("-")
    values = {"code": code, "language": language, "country": country or "none"}

    def relabel(data: bytes) -> bytes:
        for pattern, value in dialect.labels.items():
            data = re.sub(pattern.encode(), rb"\g<1>" + values[value].encode(), data)
        return data

    return relabel


class _PartReader:
    """Finds the paragraphs of a part, including those nested in footnotes and text boxes."""

    def __init__(self, source: Source, dialect: Dialect, *, has_prompts: bool = False) -> None:
        self._source = source
        self._dialect = dialect
        self._has_prompts = has_prompts
        self._inline = InlineReader(
            source, self._behavior, dialect.breaks, lambda element: dialect.half(source, element)
        )
        self.skipped: Counter[str] = Counter()
        self._runs = RunReader(source, dialect, self.skipped)

    def units(self) -> list[Unit]:
        return list(self._find_units(self._source.root))

    def _find_units(self, element: Element) -> Iterator[Unit]:
        for child in element.children:
            if child.name in self._dialect.skipped or self._is_prompt(child):
                continue
            if child.name in self._dialect.described:
                yield from self._descriptions(child)
            if child.name in self._dialect.paragraphs | self._dialect.plain:
                unit = self._unit(child)
                if unit:
                    yield unit
            yield from self._find_units(child)

    def has_text(self) -> bool:
        """True if there is text outside paragraphs."""
        counted: Counter[str] = Counter()
        RunReader(self._source, self._dialect, counted).count(self._source.root)
        return bool(counted)

    def _is_prompt(self, element: Element) -> bool:
        return (
            self._has_prompts
            and element.name in _SHAPES
            and any(inner.name in self._dialect.prompts for inner in element.walk())
        )

    def _descriptions(self, element: Element) -> Iterator[Unit]:
        for name in self._dialect.described[element.name]:
            place = self._source.value_place(element, name)
            raw = self._source.text[slice(*place)] if place else ""
            builder = SegmentBuilder(f"{element.name} {name}")
            builder.text(decode_text(raw))
            if place and not builder.is_blank:
                start, end = place
                yield Unit(start=start, end=end, segment=builder.build(), escape=_in_quotes(raw))

    def _unit(self, paragraph: Element) -> Unit | None:
        if self._dialect.runs and paragraph.name in self._dialect.paragraphs:
            return self._runs.unit(paragraph)
        pieces = self._inline.pieces(paragraph)
        return build_unit(pieces, paragraph.name, joins_blanks=True)

    def _behavior(self, element: Element) -> Behavior:
        known = self._dialect.behaviors.get(element.name)
        if known:
            return known
        # A text box has its own paragraphs; the rest are fields
        units = self._dialect.paragraphs | self._dialect.plain
        return "void" if any(inner.name in units for inner in element.walk()) else "protected"


def _in_quotes(raw: str) -> Callable[[str], str]:
    escape = escape_like(raw)
    return lambda text: escape(text).replace('"', "&quot;").replace("'", "&apos;")


_NOT_SEEN = re.compile(
    r"""</?\w+:rPr\s*/?>|<\w+:(lang|noProof|rsid\w*)\b[^>]*>|\s(lang|altLang|dirty|err|smtClean|noProof)=("[^"]*"|'[^']*')"""
)
"""Invisible properties, for which programs split words into runs."""


_SPACED = ("w:p", "x:si", "x:is")
"""Paragraphs in which blanks at the ends of a text are dropped unless marked to keep."""


class RunReader:
    """Reads a paragraph of runs; joins neighbors that look the same."""

    def __init__(
        self, source: Source, dialect: Dialect, skipped: Counter[str] | None = None
    ) -> None:
        self._source = source
        self._dialect = dialect
        self._skipped = Counter[str]() if skipped is None else skipped
        self._writers: dict[tuple[tuple[str, str], str, str], RunWriter] = {}

    def unit(self, paragraph: Element) -> Unit | None:
        pieces = self._fields(list_pieces(self._read(paragraph)))
        # Markup at the ends stays outside the region and therefore unchanged
        while pieces and pieces[0].kind == "void":
            del pieces[0]
        while pieces and pieces[-1].kind == "void":
            del pieces[-1]
        if not pieces:
            return None
        region = pieces[0].start, pieces[-1].end
        pieces, base = self._merge_runs(pair(pieces))
        # DrawingML has no such attribute
        space = ' xml:space="preserve"' if paragraph.name in _SPACED else ""
        looks = base, self._text_name(paragraph), space
        render = self._writers.setdefault(looks, RunWriter(*looks))
        return build_unit(pieces, paragraph.name, region=region, render=render)

    def _text_name(self, paragraph: Element) -> str:
        """Returns the file's own name for the text element of a run."""
        texts = (element for element in paragraph.walk() if element.name in self._dialect.texts)
        element = next(texts, paragraph)
        name: str = re.match(r"[^\s/>]+", self._source.text[element.start + 1 : element.inner])[0]  # type: ignore[index]
        return f"{name[:-1]}t"  # of a paragraph, w:p or a:p, with only special characters

    def _read(self, element: Element) -> Iterator[Piece]:
        for child in element.children:
            if child.name in self._dialect.runs:
                yield from self._run(child)
            elif child.name in self._dialect.containers:
                yield from self._container(child)
            elif child.name in self._dialect.fields:
                yield self._copy_piece(child.start, child.end, self._texts(child))
            elif child.name not in self._dialect.dropped:
                self.count(child)
                yield self._void(child, key=self._dialect.half(self._source, child))

    def count(self, element: Element) -> None:
        """Counts an element whose text cannot be placed in the paragraph."""
        dialect, place = self._dialect, 0
        if element.name in dialect.skipped:
            return
        for inner in chain((element,), element.walk()):
            if inner.start < place:  # in a text box or a deletion
                continue
            if inner.name in dialect.paragraphs | dialect.skipped:
                place = inner.end
            elif inner.name in dialect.texts and not is_blank(self._source.content(inner)):
                self._skipped[f"text in {element.name}"] += 1
                return

    def _void(self, element: Element, **more: str) -> Piece:
        breaks = element.name in self._dialect.breaks
        raw = self._source.raw(element)
        return replace(Piece("void", raw, element.start, element.end, breaks=breaks), **more)  # type: ignore[arg-type]

    def _copy_piece(self, start: int, end: int, text: str) -> Piece:
        raw = self._source.text[start:end]
        text = " ".join(text.split())
        return Piece("protected" if text else "void", raw, start, end, text)

    def _texts(self, element: Element) -> str:
        texts = (inner for inner in element.walk() if inner.name in self._dialect.texts)
        return "".join(map(self._source.content, texts))

    def _container(self, element: Element) -> Iterator[Piece]:
        holder_name = self._dialect.containers[element.name]
        holders = [child for child in element.children if child.name == holder_name]
        holder = element if not holder_name else holders[0] if holders else None
        inside = list(self._read(holder)) if holder else []
        if holder is None or all(is_blank(piece.text) for piece in inside):
            yield self._void(element)
            return
        text = self._source.text
        yield Piece("open", text[element.start : holder.inner], element.start, holder.inner)
        yield from inside
        end = holder.inner_end
        yield Piece("close", text[end : element.end], end, element.end)

    def _run(self, run: Element) -> Iterator[Piece]:
        source, dialect = self._source, self._dialect
        properties = "".join(
            source.raw(child) for child in run.children if child.name[1:] == ":rPr"
        )
        content = [
            child
            for child in run.children
            if child.name[1:] != ":rPr" and child.name not in dialect.dropped
        ]
        text = "".join(
            source.content(child) if child.name in dialect.texts else dialect.characters[child.name]
            for child in content
            if child.name in dialect.texts or child.name in dialect.characters
        )
        if not content:
            return
        codes = [child for child in content if child.name in ("w:fldChar", "w:instrText")]
        if codes or not text:
            kind = source.attribute(codes[0], "w:fldCharType") or "code" if codes else ""
            breaks = all(child.name in dialect.breaks for child in content)
            raw = source.raw(run)
            for child in content:
                self.count(child)
            yield Piece("void", raw, run.start, run.end, breaks=breaks, key=kind)
            return
        behavior: Behavior = "once" if "hlinkClick" in properties else "repeat"
        # Blanks adopt the look of their neighbors
        key = "" if is_blank(text) else _NOT_SEEN.sub("", properties) + " "
        opening = source.tag(run) + properties
        yield Piece("open", opening, run.start, run.inner, behavior=behavior, level="run", key=key)
        for child in content:
            if child.name in dialect.texts:
                yield from self._text_pieces(child)
            elif child.name in dialect.characters:
                character = dialect.characters[child.name]
                yield Piece("text", "", child.start, child.end, character, level="inside")
            else:
                self.count(child)
                yield replace(self._void(child), level="inside")
        raw = source.text[run.inner_end : run.end]
        yield Piece("close", raw, run.inner_end, run.end, level="run", key=key)

    def _text_pieces(self, holder: Element) -> Iterator[Piece]:
        """Yields the text of an element and the codes in it."""
        raw, decoded = self._source.inside(holder), self._source.content(holder)
        yield Piece("text", raw, holder.inner, holder.inner_end, decoded, level="inside")

    def _fields(self, pieces: list[Piece]) -> list[Piece]:
        """Merges each field that starts and ends in this paragraph into one piece.

        The displayed text (a page number) is copied, except for links.
        """
        parts: list[Piece] = []
        begins: list[int] = []
        for piece in pieces:
            parts.append(piece)
            if piece.key == "begin":
                begins.append(len(parts) - 1)
            elif piece.key == "end" and begins:
                place = begins.pop()
                if sum({"open": 1, "close": -1}.get(inner.kind, 0) for inner in parts[place:]) == 0:
                    parts[place:] = self._field(parts[place:])
        return parts

    def _field(self, pieces: list[Piece]) -> list[Piece]:
        start, end = pieces[0].start, pieces[-1].end
        parts = [number for number, piece in enumerate(pieces) if piece.key == "separate"]
        middle = parts[-1] if parts else len(pieces) - 1
        shown = pieces[middle + 1 : -1]
        code = "".join(piece.raw for piece in pieces[:middle])
        if re.search(r"instrText[^>]*>\s*HYPERLINK\b", code) and any(piece.text for piece in shown):
            raw = self._source.text[start : pieces[middle].end]
            opening = Piece("open", raw, start, pieces[middle].end)
            return [opening, *shown, replace(pieces[-1], kind="close", key="")]
        return [self._copy_piece(start, end, "".join(piece.text for piece in shown))]

    def _merge_runs(self, pieces: list[Piece]) -> tuple[list[Piece], tuple[str, str]]:
        """Joins runs that look the same; the most common look needs no span.

        Also returns the opening and closing markup of runs with that look.
        """
        new_pieces: list[Piece] = []
        counts: Counter[str] = Counter()
        openings: dict[str, Piece] = {}
        key, ending, links = "", "</w:r>", 0
        for piece in pieces:
            if piece.kind != "text" and piece.level == "paragraph":
                links += {"open": 1, "close": -1}.get(piece.kind, 0)
            if piece.kind == "open" and piece.level == "run":
                last = new_pieces[-1] if new_pieces else piece
                if last.kind == "close" and last.level == "run" and piece.key in ("", last.key):
                    new_pieces.pop()
                    continue
                key = piece.key
                openings.setdefault(key, piece)
            elif piece.kind == "close" and piece.level == "run":
                ending = piece.raw
                piece = replace(piece, key=key)
            elif piece.kind == "text":
                # The look of links is the base only if everything is a link
                is_link = links or openings[key].behavior == "once"
                counts[key] += 0 if is_link else len(piece.text)
            new_pieces.append(piece)
        base = max(counts, key=lambda key: (key != "", counts[key])) if counts else ""
        opening = openings[base].raw if base in openings else ""
        of_base = ("", base)
        kept = [
            piece for piece in new_pieces if not (piece.level == "run" and piece.key in of_base)
        ]
        return kept, (opening, ending)


class RunWriter:
    """Writes text and markup as runs; opens a run only for text."""

    __slots__ = ("_base", "_ending", "_name", "_space")

    def __init__(self, base: tuple[str, str], name: str, space: str) -> None:
        self._base, self._ending = base
        self._name = name
        self._space = space

    def __call__(self, items: Iterator[Item], escape: Callable[[str], str]) -> str:
        written: list[str] = []
        looks = [self._base]
        run: str | None = None
        text = ""

        def end_text() -> None:
            nonlocal text
            if text:
                space = self._space if text != text.strip() else ""
                written.append(f"<{self._name}{space}>{escape(text)}</{self._name}>")
            text = ""

        def change_run(wanted: str | None) -> None:
            nonlocal run
            if wanted != run:
                end_text()
                if run is not None:
                    written.append(self._ending)
                if wanted is not None:
                    written.append(wanted)
                run = wanted

        for item in drop_spaces(items):
            if isinstance(item, str):
                if item:
                    change_run(looks[-1])
                    text += item
                continue
            piece, raw = item
            if piece.level == "run":
                looks = looks[:-1] if piece.kind == "close" else [*looks, raw]
                continue
            if piece.level == "inside":
                change_run(looks[-1])
                end_text()
            else:
                change_run(None)
            written.append(raw)
        change_run(None)
        return "".join(written)
