"""Translations of programs, .po: empty messages are filled and marked as fuzzy.

A segment is a source text (msgid). What has a translation stays; all other bytes are copied.
"""

import gettext
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tformer_cli.documents.segments import (
    LINE,
    Document,
    Encoding,
    ReadSettings,
    Segment,
    SegmentBuilder,
    add_message,
    decoded,
    decoded_as,
    is_same_encoding,
    rendered,
)
from tformer_cli.errors import DataError

_KEYWORD = re.compile(r'\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*"(.*)"\s*$')
_STRING = re.compile(r'\s*"(.*)"\s*$')
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {character: f"\\{name}" for name, character in _ESCAPED.items()}
_WRITTEN |= {'"': r"\"", "\\": r"\\"}
_FLAGS = re.compile(r"^#,[ \t]*")
_CHARSET = re.compile(rb"charset=([\w.-]+)")
_PLURALS = re.compile(r"^Plural-Forms:.*?plural\s*=\s*([^;\n]+)", re.MULTILINE)
_WRAPPED = re.compile(r"(?<=[^\s.!?:;])\n(?=[^\W\d_A-Z])")
"""A line end within a sentence: the next line begins with a small letter."""
_WIDTH = 77


@dataclass(slots=True)
class _Field:
    """A keyword with its strings."""

    keyword: str
    start: int
    end: int
    strings: list[str]

    @property
    def value(self) -> str:
        return _ESCAPE.sub(_unescaped, "".join(self.strings))


@dataclass(slots=True)
class _Entry:
    """A message."""

    fields: list[_Field] = field(default_factory=list)
    comments: list[tuple[int, str]] = field(default_factory=list)
    """Each with its place."""
    targets: list[_Field] = field(default_factory=list)

    def value(self, keyword: str) -> str:
        return next((one.value for one in self.fields if one.keyword == keyword), "")

    @property
    def is_fuzzy(self) -> bool:
        return any(_FLAGS.match(line) and "fuzzy" in line for _, line in self.comments)


def _unescaped(found: re.Match[str]) -> str:
    name = found[1]
    if name[0] == "x" and len(name) > 1:
        return chr(int(name[1:], 16))
    return chr(int(name, 8)) if name[0] in "01234567" else _ESCAPED.get(name, name)


def _quoted(text: str) -> str:
    return '"' + "".join(_WRITTEN.get(one, one) for one in text) + '"'


def read(data: bytes, settings: ReadSettings) -> Document:
    charset = _CHARSET.search(data[:10_000])
    name = charset[1].decode() if charset else "utf-8"
    is_declared = charset is not None and name != "CHARSET"
    if settings.encoding and is_declared and not is_same_encoding(name, settings.encoding):
        raise DataError(
            f"{settings.name}: declares the encoding {name[:20]}; omit --encoding, or change the "
            "header"
        )
    if not is_declared or name.lower().replace("-", "") in ("utf8", "ascii"):
        text, encoding = decoded(data, settings)
    else:
        found, encoding = decoded_as(data, name), Encoding(name=name, where=settings.name)
        if found is None:
            raise DataError(
                f"{settings.name}: is not in {name[:20]}, which it declares; convert it: "
                "msgconv -t UTF-8"
            )
        text = found
    return PoDocument(text, encoding, list(_entries(text, settings)), settings)


def _entries(text: str, settings: ReadSettings) -> Iterator[_Entry]:
    entry, place = _Entry(), 0
    for number, found in enumerate(LINE.finditer(text), 1):
        line, place = found[0], found.start()
        keyword = _KEYWORD.match(line)
        starts = line.startswith("#") or (keyword and keyword[1] in ("msgctxt", "msgid"))
        if starts and entry.targets:
            yield entry
            entry = _Entry()
        if line.startswith("#"):
            entry.comments.append((place, line))
        elif keyword:
            entry.fields.append(_Field(keyword[1], place, found.end(), [keyword[2]]))
            if keyword[1].startswith("msgstr"):
                entry.targets.append(entry.fields[-1])
        elif (string := _STRING.match(line)) and entry.fields:
            entry.fields[-1].strings.append(string[1])
            entry.fields[-1].end = found.end()
        elif line.strip():
            raise DataError(
                f"{settings.name}:{number}: is not a line of a .po file; check it with msgfmt -c"
            )
    if entry.targets:
        yield entry


@dataclass(frozen=True, slots=True)
class _Filling:
    """A source text and the fields that its translation is for."""

    entry: _Entry
    source: _Field
    segment: Segment
    targets: list[_Field]


class PoDocument:
    """A file of messages, with a segment for each source text that has no translation."""

    def __init__(
        self, text: str, encoding: Encoding, entries: Sequence[_Entry], settings: ReadSettings
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._text = text
        self._encoding = encoding
        self._name = settings.name
        self._line_end = "\r\n" if "\r\n" in text else "\n"
        header = next((one.value("msgstr") for one in entries if not one.value("msgid")), "")
        of_one = _form_of_one(header)
        self._fillings = [
            filling
            for entry in entries
            if entry.value("msgid") and (settings.fills_fuzzy or not entry.is_fuzzy)
            for filling in _fillings(entry, of_one)
        ]

    @property
    def segments(self) -> list[Segment]:
        return [filling.segment for filling in self._fillings]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        edits: dict[tuple[int, int], str] = {}
        for filling, given in zip(self._fillings, translated, strict=True):
            if given is None:
                continue
            content = rendered(given)
            if given.spans:
                content = content.replace(" \n", "\n")  # the space of a joined line
            content = filling.segment.before + content + filling.segment.after
            for target in filling.targets:
                is_wrapped = len(filling.source.strings) > 1
                edits[target.start, target.end] = _written(
                    target.keyword, content, self._line_end, is_wrapped=is_wrapped
                )
            if not filling.entry.is_fuzzy:
                edits.update([self._fuzzy(filling.entry)])
        written: list[str] = []
        place = 0
        for (start, end), content in sorted(edits.items()):
            written += self._text[place:start], content
            place = end
        written.append(self._text[place:])
        try:
            return self._encoding.mark + "".join(written).encode(self._encoding.name)
        except UnicodeEncodeError as error:
            missing = error.object[error.start]
            raise DataError(
                f"{self._name}: its encoding {self._encoding.name} lacks {missing!r} of a "
                "translation; convert it: msgconv -t UTF-8"
            ) from None

    def _fuzzy(self, entry: _Entry) -> tuple[tuple[int, int], str]:
        """Marks an entry: nobody has read its translation."""
        for place, line in entry.comments:
            if flags := _FLAGS.match(line):
                return (place, place + flags.end()), "#, fuzzy, "
        # in its order: comments, flags, what was there before
        places = [place for place, line in entry.comments if line.startswith("#|")]
        place = min([*places, entry.fields[0].start])
        return (place, place), f"#, fuzzy{self._line_end}"


def _form_of_one(header: str) -> str:
    """Returns the keyword of the form for one thing."""
    found = _PLURALS.search(header)
    try:
        # A rule may fail only when it is used: n%0
        return f"msgstr[{gettext.c2py(found[1].strip())(1)}]"  # type: ignore[index]
    except (ValueError, TypeError, ArithmeticError):
        return "msgstr[0]"


def _fillings(entry: _Entry, of_one: str) -> Iterator[_Filling]:
    """Finds the source of each empty target: the singular for the form of one, else the plural."""
    sources = {one.keyword: one for one in entry.fields}
    empty = [one for one in entry.targets if not one.value or entry.is_fuzzy]
    only = len(entry.targets) == 1
    for keyword in ("msgid", "msgid_plural"):
        if keyword not in sources:
            continue
        if "msgid_plural" in sources:
            # a language with one form needs that of many
            singular = keyword == "msgid"
            targets = [one for one in empty if (one.keyword == of_one and not only) == singular]
        else:
            targets = empty
        segment = _segment(sources[keyword].value, keyword)
        if targets and segment.text:
            yield _Filling(entry, sources[keyword], segment, targets)


def _segment(text: str, context: str) -> Segment:
    builder = SegmentBuilder(context)

    def add(part: str) -> None:
        first, *others = _WRAPPED.split(part)
        builder.text(first)
        for line in others:
            builder.text(" ")
            builder.void("\n")
            builder.text(line)

    add_message(builder, text, add)
    return builder.build()


def _written(keyword: str, text: str, line_end: str, *, is_wrapped: bool) -> str:
    """Writes a keyword with a text, on lines as gettext's programs cut them."""
    if not is_wrapped and "\n" not in text[:-1]:
        return f"{keyword} {_quoted(text)}{line_end}"
    lines = [f'{keyword} ""']
    for paragraph in text.splitlines(keepends=True):
        line = ""
        for word in re.findall(r"\S*\s*", paragraph):
            if line and len(line) + len(word) > _WIDTH:
                lines.append(_quoted(line))
                line = ""
            line += word
        lines.append(_quoted(line))
    return line_end.join(lines) + line_end
