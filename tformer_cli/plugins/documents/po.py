"""gettext catalogs, .po: fills empty messages and marks them as fuzzy.

A segment is a source text (msgid). Existing translations stay, and all other bytes are copied,
except for the header placeholders of a template (.pot), which becomes a .po file.
"""

import gettext
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import PurePath

from tformer_cli.documents.segments import (
    Document,
    Encoding,
    ReadSettings,
    Segment,
    SegmentBuilder,
    add_message,
    decode_as,
    decode_file,
    is_same_encoding,
    render_segment,
)
from tformer_cli.errors import DataError
from tformer_cli.plugins.documents.labels import check_target
from tformer_cli.plugins.documents.plural_forms import plural_forms
from tformer_cli.text.language_codes import is_same_language

_TOKEN = re.compile(
    r"""(?P<obsolete>\#~(?!\|))
    |(?P<comment>\#[^\n]*\n?)
    |"(?P<string>(?:[^"\\\n]|\\(?:\r\n|[\s\S]))*+)"
    |(?P<keyword>msgctxt|msgid_plural|msgid|msgstr|domain)\b(?:\s*\[\s*(?P<number>\d+)\s*\])?
    |(?P<blank>[^\S\n]+|\n)""",
    re.VERBOSE,
)
"""Tokens of a file, as gettext reads it; a line may have any number."""
_REST_OF_LINE = re.compile(r"[^\S\n]*(?:\n|\Z)")
_BYTE = r"(?:x[0-9a-fA-F]{2}|[0-3]?[0-7]{1,2})"
_ESCAPE = re.compile(rf"\\(?:(?P<bytes>{_BYTE}(?:\\{_BYTE})*+)|(?P<name>\r?\n|.))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {character: f"\\{name}" for name, character in _ESCAPED.items()}
_WRITTEN |= {'"': r"\"", "\\": r"\\"}
_FLAGS = re.compile(r"^#,[ \t]*")
_CHARSET = re.compile(rb"charset=([\w.-]+)")
_ASCII = re.compile(r"(charset=)(?:CHARSET|(?:US-)?ASCII)", re.IGNORECASE)
_PLURALS = re.compile(r"nplurals\s*=\s*([1-9])\s*;\s*plural\s*=\s*([^;\n]+)")
_CODE = re.compile(r"[a-zA-Z]{2,3}(?:[_@-]\w+)*")
_HEADER_LINE = re.compile(r"(?:[^\\]|\\[^n])+(?:\\n)?|\\n")
_WRAPPED = re.compile(r"(?<=[^\s.!?:;])\n(?=[^\W\d_A-Z])")
"""A line end inside a sentence: the next line starts with a lowercase letter."""
_WIDTH = 77
_FEW = 5
"""Maximum count of numbers up to 1,000 for a form that may omit its number, as in gettext."""
_TEMPLATE = {
    "Project-Id-Version": "PACKAGE VERSION",
    "PO-Revision-Date": "YEAR-MO-DA",
    "Last-Translator": "FULL NAME",
    "Language-Team": "LANGUAGE",
    "Language": "",
    "MIME-Version": "",
    "Content-Type": "text/plain; charset=CHARSET",
    "Content-Transfer-Encoding": "ENCODING",
    "Plural-Forms": "nplurals=INTEGER",
}
"""Fields that msgfmt -c requires, and how their values start in a template."""
_CODES = {"zh-Hans": "zh_CN", "zh-Hant": "zh_TW", "sr-Latn": "sr@latin"}
"""Languages whose gettext codes have a region or differ otherwise."""
_LIKE_SOURCE = "nplurals=2; plural=(n != 1);"


@dataclass(slots=True)
class _Field:
    """A keyword and its strings."""

    keyword: str
    start: int
    end: int
    strings: list[str]

    @property
    def value(self) -> str:
        return _ESCAPE.sub(_unescape, "".join(self.strings))


@dataclass(slots=True)
class _Entry:
    """A message."""

    fields: list[_Field] = field(default_factory=list)
    comments: list[tuple[int, str]] = field(default_factory=list)
    """Comments with their positions."""
    targets: list[_Field] = field(default_factory=list)
    is_obsolete: bool = False

    def value(self, keyword: str) -> str:
        return next((field.value for field in self.fields if field.keyword == keyword), "")

    @property
    def is_header(self) -> bool:
        is_other = self.is_obsolete or self.fields[0].keyword == "msgctxt"
        return not is_other and not self.value("msgid")

    @property
    def is_fuzzy(self) -> bool:
        return any(
            "fuzzy" in re.split(r"[\s,]+", line) for _, line in self.comments if _FLAGS.match(line)
        )


def _unescape(match: re.Match[str]) -> str:
    if match["bytes"]:
        numbers = match["bytes"].split("\\")
        whole = bytes(int(n[1:], 16) if n[0] == "x" else int(n, 8) for n in numbers)
        try:
            return whole.decode()
        except UnicodeDecodeError:
            return whole.decode("latin-1")
    name = match["name"]
    # After a line end the string continues on the next line
    return "" if name[-1] == "\n" else _ESCAPED.get(name, name)


def _quote(text: str) -> str:
    return '"' + "".join(_WRITTEN.get(character, character) for character in text) + '"'


def read(data: bytes, settings: ReadSettings) -> Document:
    charset = _CHARSET.search(data[:10_000])
    name = charset[1].decode() if charset else "utf-8"
    is_declared = charset is not None and name != "CHARSET"
    if settings.encoding and is_declared and not is_same_encoding(name, settings.encoding):
        raise DataError.of(
            "{}: declares the encoding {}; remove {encoding}, or change the header",
            settings.name,
            name[:20],
        )
    if not is_declared or name.lower().replace("-", "") in ("utf8", "ascii", "usascii"):
        text, encoding = decode_file(data, settings)
    else:
        decoded_text, encoding = decode_as(data, name), Encoding(name=name, where=settings.name)
        if decoded_text is None:
            raise DataError(
                f"{settings.name}: is not in {name[:20]}, which it declares; convert it: "
                "msgconv -t UTF-8"
            )
        text = decoded_text
    return PoDocument(text, encoding, list(_entries(text, settings)), settings)


def _entries(text: str, settings: ReadSettings) -> Iterator[_Entry]:
    """Yields messages, including obsolete ones, with the comments before them."""
    entry, place, is_obsolete = _Entry(), 0, False
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None and is_obsolete:  # a comment after all
            place = _line_end(text, place)
            continue
        if token is None or (token.lastgroup == "string" and not entry.fields):
            number = text.count("\n", 0, place) + 1
            raise DataError(
                f"{settings.name}:{number}: is not a line of a .po file; check it with msgfmt -c"
            )
        start, place, keyword = place, token.end(), token["keyword"]
        if entry.targets and (
            token["comment"] is not None or keyword in ("msgctxt", "msgid", "domain")
        ):
            yield entry
            entry = _Entry()
        if token["obsolete"]:
            is_obsolete = True
        elif keyword == "domain":
            place = _line_end(text, place)
        elif keyword:
            if entry.fields and entry.is_obsolete != is_obsolete:  # an unfinished message
                entry = _Entry()
            entry.is_obsolete = is_obsolete
            name = keyword if token["number"] is None else f"{keyword}[{int(token['number'])}]"
            entry.fields.append(_Field(name, start, place, []))
            if keyword == "msgstr":
                entry.targets.append(entry.fields[-1])
        elif token["string"] is not None:
            rest = _REST_OF_LINE.match(text, place)
            entry.fields[-1].strings.append(token["string"])
            entry.fields[-1].end = rest.end() if rest else place
        elif token["comment"] is not None:
            entry.comments.append((start, token[0]))
        if text[place - 1] == "\n":
            is_obsolete = False
    if entry.targets:
        yield entry


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


@dataclass(frozen=True, slots=True)
class _Plurals:
    """The plural rule of a header: the form that a number takes."""

    count: int
    rule: Callable[[int], int]

    @classmethod
    def parse(cls, value: str) -> "_Plurals | None":
        match = _PLURALS.search(value)
        if match is None:
            return None
        try:
            rule: Callable[[int], int] = gettext.c2py(match[2].strip())
            rule(1)  # some rules fail only when called: n%0
        except (ValueError, ArithmeticError):
            return None
        return cls(int(match[1]), rule)

    def is_common(self, form: int) -> bool:
        """True if a form covers many numbers, so that its text must show the number."""
        try:
            return sum(self.rule(n) == form for n in range(1001)) > _FEW
        except ArithmeticError:
            return False


@dataclass(frozen=True, slots=True)
class _Filling:
    """A source text and the fields for its translation."""

    entry: _Entry
    source: _Field
    segment: Segment
    keywords: Sequence[str]


class PoDocument:
    """A message catalog with a segment for each untranslated source text."""

    def __init__(
        self, text: str, encoding: Encoding, entries: Sequence[_Entry], settings: ReadSettings
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._text = text
        self._encoding = encoding
        self._settings = settings
        self._line_end = "\r\n" if "\r\n" in text else "\n"
        self._header = next((entry for entry in entries if entry.is_header), None)
        self._has_plurals = any(
            part.keyword == "msgid_plural"
            for entry in entries
            for part in entry.fields
            if not entry.is_obsolete
        )
        self._is_of_source = False
        header = self._header_values()
        own = header.get("Language", "")
        # A template in disguise, like Django's locale/en, which has no translations
        ours, theirs = settings.source_language, settings.target_language
        if _CODE.fullmatch(own) and ours and theirs and is_same_language(own, ours):
            self._is_of_source = not is_same_language(own, theirs) and not any(
                target.value
                for entry in entries
                if not (entry.is_header or entry.is_obsolete)
                for target in entry.targets
            )
            header = self._header_values()
            own = header.get("Language", "")
        if is_code := _CODE.fullmatch(own):
            check_target(settings, own, "Language")
        self._known_rule = plural_forms(own if is_code else settings.target_language)
        plural_rule = self._new_values(is_ascii=True).get("Plural-Forms")
        has_rule = bool(header.get("Plural-Forms")) and plural_rule is None
        if self._has_plurals and not (has_rule or self._known_rule):
            self.skipped["plural rule of an unknown language (--target-language)"] += 1
        self._plurals = _Plurals.parse(plural_rule or header.get("Plural-Forms", ""))
        self._fillings = [
            filling
            for entry in entries
            if entry.value("msgid") and not entry.is_obsolete
            for filling in _fillings(entry, self._plurals, refills=settings.fills_fuzzy)
        ]

    @property
    def segments(self) -> list[Segment]:
        return [filling.segment for filling in self._fillings]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        edits: list[tuple[int, int, str]] = []
        pairs = zip(self._fillings, translated, strict=True)
        for _, group in groupby(pairs, key=lambda pair: pair[0].entry.targets[0].start):
            filled = list(group)
            if any(translation is not None for _, translation in filled):
                edits += self._message_edits(filled)
        if edits:
            edits += self._header_edits(is_ascii=all(content.isascii() for *_, content in edits))
        written: list[str] = []
        place = 0
        for start, end, content in sorted(edits, key=lambda edit: edit[:2]):
            written += self._text[place:start], content
            place = end
        written.append(self._text[place:])
        whole = "".join(written)
        try:
            return self._encoding.mark + whole.encode(self._encoding.name)
        except UnicodeEncodeError as error:
            missing = error.object[error.start]
            raise DataError(
                f"{self._settings.name}: its encoding {self._encoding.name} cannot write "
                f"{missing!r} of a translation; convert it: msgconv -t UTF-8"
            ) from None

    def _message_edits(
        self, filled: Sequence[tuple[_Filling, Segment | None]]
    ) -> Iterator[tuple[int, int, str]]:
        """Writes a message: its fields, additional plural forms, and the fuzzy flag."""
        entry, texts = filled[0][0].entry, dict[str, str]()
        for filling, translation in filled:
            content = filling.source.value  # for a text without words among others
            if translation is not None:
                content = render_segment(translation)
                if translation.spans:
                    content = content.replace(" \n", "\n")  # the space of a joined line
                content = filling.segment.before + content + filling.segment.after
            is_wrapped = len(filling.source.strings) > 1
            for keyword in filling.keywords:
                texts[keyword] = _write_field(
                    keyword, content, self._line_end, is_wrapped=is_wrapped
                )
        is_open = not any(target.value for target in entry.targets)
        for target in entry.targets:
            if target.keyword in texts:
                yield target.start, target.end, texts.pop(target.keyword)
            elif is_open and entry.targets[0].keyword != "msgstr":  # a form that the language lacks
                yield target.start, target.end, ""
        end = entry.targets[-1].end
        yield end, end, "".join(texts[keyword] for keyword in sorted(texts))
        if not entry.is_fuzzy:
            (start, end), flag = self._mark_fuzzy(entry)
            yield start, end, flag

    def _mark_fuzzy(self, entry: _Entry) -> tuple[tuple[int, int], str]:
        """Marks an entry as fuzzy: nobody has reviewed its translation."""
        for place, line in entry.comments:
            if flags := _FLAGS.match(line):
                return (place, place + flags.end()), "#, fuzzy, "
        # gettext's order: comments, flags, previous texts
        places = [place for place, line in entry.comments if line.startswith("#|")]
        place = min([*places, entry.fields[0].start])
        return (place, place), f"#, fuzzy{self._line_end}"

    def _header_lines(self) -> list[list[str]]:
        """Splits the header into lines, each as a list of strings of the file."""
        lines: list[list[str]] = [[]]
        for string in self._header.targets[0].strings if self._header else ():
            for part in _HEADER_LINE.findall(string):
                lines[-1].append(part)
                if part.endswith(r"\n"):
                    lines.append([])
        return lines if lines[-1] else lines[:-1]

    def _header_values(self) -> dict[str, str]:
        lines = (_ESCAPE.sub(_unescape, "".join(line)) for line in self._header_lines())
        fields = (line.partition(":") for line in lines)
        values = {name.strip(): value.strip() for name, _, value in fields}
        if self._is_of_source:
            values |= {n: _TEMPLATE[n] for n in ("Language", "Plural-Forms") if n in values}
        return values

    def _new_values(self, *, is_ascii: bool) -> dict[str, str]:
        """Returns header fields that are missing or still have a template's placeholder."""
        header, label = self._header_values(), self._settings.target_language
        content = header.get("Content-Type") or "text/plain; charset=UTF-8"
        values = {
            "Project-Id-Version": PurePath(self._settings.name).stem,
            "PO-Revision-Date": _now(),
            "Last-Translator": "Automatically generated",
            "Language-Team": "none",
            "Language": _CODES.get(label, label.replace("-", "_")),
            "MIME-Version": "1.0",
            "Content-Type": _ASCII.sub(r"\g<1>UTF-8", content),
            "Content-Transfer-Encoding": "8bit",
            "Plural-Forms": self._known_rule or (_LIKE_SOURCE if self._has_plurals else ""),
        }
        is_template = any(
            beginning and header.get(name, "").startswith(beginning)
            for name, beginning in _TEMPLATE.items()
        )
        needed = {
            "Language": bool(label),
            "Content-Type": not is_ascii,
            "Plural-Forms": self._has_plurals and bool(self._known_rule),
        }
        new_values = {
            name: values[name]
            for name, beginning in _TEMPLATE.items()
            if (
                (header[name].startswith(beginning) if beginning else not header[name])
                if name in header
                else (is_template or needed.get(name, False)) and values[name]
            )
        }
        if not is_ascii and "Content-Type" in header and content != values["Content-Type"]:
            new_values["Content-Type"] = values["Content-Type"]
        return new_values

    def _header_edits(self, *, is_ascii: bool) -> Iterator[tuple[int, int, str]]:
        new = self._new_values(is_ascii=is_ascii)
        if self._header is None:
            if not is_ascii or "Plural-Forms" in new:
                lines = (f"{name}: {value}\n" for name, value in new.items())
                strings = ['msgid ""', 'msgstr ""', *map(_quote, lines), "", ""]
                yield 0, 0, self._line_end.join(strings)
            return
        strings = ['msgstr ""']
        for line in self._header_lines():
            name = "".join(line).partition(":")[0].strip()
            if name not in new:
                strings += (f'"{string}"' for string in line)
            elif value := new.pop(name):
                strings.append(_quote(f"{name}: {value}\n"))
        target = self._header.targets[0]
        strings += (_quote(f"{name}: {value}\n") for name, value in new.items())
        content = self._line_end.join([*strings, ""])
        if self._new_values(is_ascii=is_ascii):
            yield target.start, target.end, content
        for place, comment in self._header.comments:
            if _FLAGS.match(comment) and "fuzzy" in comment:
                flags = [flag for flag in re.split(r"[\s,]+", comment[2:]) if flag]
                other_flags = ", ".join(flag for flag in flags if flag != "fuzzy")
                kept = f"#, {other_flags}{self._line_end}" if other_flags else ""
                yield place, place + len(comment), kept


def _now() -> str:
    """Returns the time as gettext writes it; reproducible builds set SOURCE_DATE_EPOCH."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = time.gmtime(int(seconds) if seconds.isdecimal() else None)
    return time.strftime("%Y-%m-%d %H:%M+0000", moment)


def _fillings(entry: _Entry, plurals: _Plurals | None, *, refills: bool) -> Iterator[_Filling]:
    """Yields the source of each empty target: the singular for the form of 1, else the plural."""
    sources = {field.keyword: field for field in entry.fields}
    refills = refills and entry.is_fuzzy
    keywords = [target.keyword for target in entry.targets if refills or not target.value]
    if not keywords:
        return
    by_source = {"msgid": keywords}
    if "msgid_plural" in sources and entry.targets[0].keyword != "msgstr":
        count = plurals.count if plurals else len(entry.targets)
        if plurals:  # also adds the missing ones
            filled = {target.keyword for target in entry.targets} - {*keywords}
            forms = [f"msgstr[{number}]" for number in range(count)]
            keywords = [keyword for keyword in forms if keyword not in filled]
        form = plurals.rule(1) if plurals else 0
        # A language with one form needs the plural; so does one whose form of 1 also serves 21,
        # where the singular would not show the number
        shows = [re.sub(r"[^%{]", "", sources[name].value) for name in ("msgid", "msgid_plural")]
        hides = len(shows[0]) < len(shows[1]) and plurals is not None and plurals.is_common(form)
        singular = [] if count == 1 or hides else [f"msgstr[{form}]"]
        by_source = {
            "msgid": [keyword for keyword in keywords if keyword in singular],
            "msgid_plural": [keyword for keyword in keywords if keyword not in singular],
        }
    for name, targets in by_source.items():
        segment = _segment(sources[name].value, name)
        if targets and segment.text:
            yield _Filling(entry, sources[name], segment, targets)


def _segment(text: str, context: str) -> Segment:
    builder = SegmentBuilder(context)

    def add(part: str) -> None:
        first, *later_lines = _WRAPPED.split(part)
        builder.text(first)
        for line in later_lines:
            builder.text(" ")
            builder.void("\n")
            builder.text(line)

    add_message(builder, text, add)
    return builder.build()


def _write_field(keyword: str, text: str, line_end: str, *, is_wrapped: bool) -> str:
    """Writes a keyword with a text, wrapped like gettext's tools."""
    if not is_wrapped and "\n" not in text[:-1]:
        return f"{keyword} {_quote(text)}{line_end}"
    lines = [f'{keyword} ""']
    for paragraph in text.splitlines(keepends=True):
        line = ""
        for word in re.findall(r"\S*\s*", paragraph):
            if line and len(line) + len(word) > _WIDTH:
                lines.append(_quote(line))
                line = ""
            line += word
        lines.append(_quote(line))
    return line_end.join(lines) + line_end
