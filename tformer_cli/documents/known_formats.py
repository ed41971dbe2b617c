"""Document formats: one row each, with the function that reads it."""

from __future__ import annotations

import codecs
import re
from difflib import get_close_matches
from encodings.aliases import aliases
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

from tformer_cli.errors import UsageError
from tformer_cli.files.regular_file import ZIP
from tformer_cli.sockets import Socket, load_place
from tformer_cli.text.lines import compressed_ending

if TYPE_CHECKING:
    from tformer_cli.documents.segments import Reader


class Format(NamedTuple):
    """A document format."""

    name: str
    extensions: tuple[str, ...]
    reader: str
    """MODULE:FUNCTION; a document of one format loads no other's module."""
    takes: tuple[str, ...] = ()
    """Options that choose its texts."""
    content: str = "text"
    """The content of such a file, as `files.regular_file.content_of` names it."""
    tells_encoding: bool = False
    """True if each file of the format tells its encoding, as XML does."""
    labels: Literal["always", "some", "never"] = "some"
    """Which files have a label of their language; some: those in which one is seen."""

    @property
    def problem(self) -> str:
        """Tells what is wrong with a row of another package; empty if nothing is."""
        for name in ("extensions", "takes"):
            if isinstance(text := getattr(self, name), str):  # whose letters would be taken
                return f"has one text as {name}; write ({text!r},)"
        return ""

    @property
    def read(self) -> Reader:
        from tformer_cli.documents.segments import read_within_limits

        return partial(read_within_limits, load_place(self.reader))

    def tells_language(self, data: bytes) -> bool:
        """Returns whether a file has a label of its language."""
        has_label = self.labels == "some" and _LABEL.search(data, 0, _HEAD) is not None
        return self.labels == "always" or has_label


_HEAD = 4096
_LABEL = re.compile(
    rb"""\b(?:lang|trgLang|target-language)\s*=|"@@locale"|^(?:Language:|"Language:\s*\w)""",
    re.MULTILINE,
)


_IN = "tformer_cli.plugins.documents."
_TABLE = ("column", "no_header")
_ROWS = (
    Format("html", (".html", ".htm", ".xhtml"), f"{_IN}html:read", content="HTML"),
    Format(
        *("markdown", (".md", ".markdown", ".mdx"), f"{_IN}markdown:read", ("front_matter",)),
        labels="never",
    ),
    Format("text", (".txt",), f"{_IN}text:read", ("unwrap",), labels="never"),
    Format(
        *("docx", (".docx", ".docm", ".dotx", ".dotm"), f"{_IN}office:read_open_xml"),
        content=ZIP,
        tells_encoding=True,
        labels="always",
    ),
    Format(
        "pptx",
        (".pptx", ".pptm", ".potx", ".potm", ".ppsx", ".ppsm", ".sldx", ".sldm"),
        f"{_IN}office:read_open_xml",
        content=ZIP,
        tells_encoding=True,
        labels="always",
    ),
    Format(
        *("odt", (".odt", ".ott", ".odm", ".fodt"), f"{_IN}office:read_open_document"),
        content=ZIP,
        tells_encoding=True,
        labels="always",
    ),
    Format(
        "odp",
        (".odp", ".otp", ".odg", ".otg", ".fodp", ".fodg"),
        f"{_IN}office:read_open_document",
        content=ZIP,
        tells_encoding=True,
        labels="always",
    ),
    Format("srt", (".srt",), f"{_IN}subtitles:read_srt", labels="never"),
    Format("vtt", (".vtt",), f"{_IN}subtitles:read_vtt"),
    Format("po", (".po", ".pot"), f"{_IN}po:read", ("fuzzy",)),
    Format(
        *("xliff", (".xlf", ".xliff"), f"{_IN}bilingual:read_xliff", ("fuzzy",)),
        tells_encoding=True,
    ),
    Format(*("tmx", (".tmx",), f"{_IN}bilingual:read_tmx"), tells_encoding=True, labels="never"),
    Format("json", (".json", ".arb"), f"{_IN}json_paths:read", ("key",), "JSON"),
    Format(
        "epub", (".epub",), f"{_IN}epub:read", content=ZIP, tells_encoding=True, labels="always"
    ),
    Format("csv", (".csv",), f"{_IN}tables:read_csv", _TABLE, labels="never"),
    Format("tsv", (".tsv", ".tab"), f"{_IN}tables:read_tsv", _TABLE, labels="never"),
    Format(
        *("jsonl", (".jsonl", ".ndjson"), f"{_IN}json_paths:read_lines", ("key",), "JSON"),
        labels="never",
    ),
    Format("xlsx", (".xlsx", ".xlsm", ".xltx", ".xltm"), f"{_IN}xlsx:read", _TABLE, ZIP, True),
    Format("ods", (".ods", ".ots"), f"{_IN}ods:read", _TABLE, ZIP, True),
)
FORMATS: Socket[Format] = Socket("formats", Format, {row.name: row for row in _ROWS})
BY_EXTENSION = {extension: row for row in _ROWS for extension in row.extensions}
"""Those that ship; see `format_with`."""
_CONVERT = "is not supported; convert it to .md with pandoc"
_SUBTITLES = "an unsupported subtitle format; convert it to .srt with ffmpeg"
_MESSAGES = "an unsupported message format; convert it to .po with translate-toolkit"
REFUSED = {
    ".pdf": "a PDF cannot be translated in place; convert it to .docx, or to text with pdftotext",
    ".doc": "an old format; save it as .docx",
    ".rtf": "an unsupported format; save it as .docx",
    ".xls": "an unsupported spreadsheet format; save it as .xlsx",
    ".xlsb": "an unsupported spreadsheet format; save it as .xlsx",
    ".numbers": "an unsupported spreadsheet format; export it as .xlsx",
    ".pages": "an unsupported format; export it as .docx",
    ".ppt": "an old format; save it as .pptx",
    ".pps": "an old format; save it as .pptx",
    ".dot": "an old format; save it as .docx",
    ".wps": "an unsupported format; save it as .docx",
    ".sxw": "an old format; save it as .odt",
    ".sxi": "an old format; save it as .odp",
    ".key": "an unsupported format; export it as .pptx",
    ".mobi": "an unsupported book format; convert it to .epub with ebook-convert",
    ".azw3": "an unsupported book format; convert it to .epub with ebook-convert",
}
"""Files that users try, and what to do instead."""
REFUSED_TEXTS = {
    ".ipynb": "a notebook; convert it to .md with jupytext",
    ".yaml": "YAML is not supported; convert it to .json",
    ".yml": "YAML is not supported; convert it to .json",
    ".rst": f"reStructuredText {_CONVERT}, or to .pot with sphinx-build -b gettext",
    **dict.fromkeys((".tex", ".adoc", ".textile", ".typ"), f"its markup {_CONVERT}"),
    **dict.fromkeys((".ass", ".ssa", ".sub", ".sbv", ".ttml", ".dfxp"), _SUBTITLES),
    **dict.fromkeys((".properties", ".resx", ".strings", ".ts"), _MESSAGES),
    **dict.fromkeys(
        (".sdlxliff", ".mqxliff", ".mxliff", ".txlf"),
        "XLIFF of another tool; add --document xliff",
    ),
    ".xml": "XML of unknown format; add --document xliff, tmx or html",
    ".fods": "a spreadsheet in a single XML file; save it as .ods",
    ".fb2": "an unsupported book format; convert it to .epub with ebook-convert",
}
"""Files whose markup would be translated as text; --document overrides the refusal."""
TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".parquet", ".arrow")
"""Files whose lines are table rows, not sentences."""
NAMED = frozenset(
    {*BY_EXTENSION, *REFUSED, *REFUSED_TEXTS, *TABLES, ".zip"}
    | {".png", ".jpg", ".jpeg", ".gif", ".webp"}
)
"""Extensions that make a word without blanks a file name: `e.g.` and `Node.js` are words."""
NO_TEXT = frozenset({*REFUSED, *(end for end, row in BY_EXTENSION.items() if row.content == ZIP)})
"""Extensions of files that are not text: no word ends in them."""


def ending_of(path: str) -> str:
    """Returns the extension of a file, ignoring that of its compression."""
    name = PurePath(path)
    return (name.with_suffix("") if compressed_ending(name) else name).suffix.lower()


def format_with(extension: str) -> Format | None:
    """Finds the format of an extension, of another package, too."""
    if extension in BY_EXTENSION or not extension:
        return BY_EXTENSION.get(extension)
    return next((row for row in FORMATS.added.values() if extension in row.extensions), None)


def format_of(path: str) -> Format | None:
    """Finds the format of a file by its extension; None if the extension is unknown."""
    extension = ending_of(path)
    row = format_with(extension)
    if row is None and extension in REFUSED:
        raise UsageError(f"{path}: {REFUSED[extension]}")
    return row


def format_named(name: str, option: str = "--document") -> Format:
    word = name.lower().removeprefix(".")
    row: Format | None = FORMATS.get(word) or format_with(f".{word}")
    if row is None:
        near = get_close_matches(name.lower(), FORMATS, n=1)
        advice = f"did you mean {near[0]}?" if near else f"use one of {', '.join(FORMATS)}"
        raise UsageError(f"{option}: unknown format {name[:40]}; {advice}")
    return row


def encoding_named(name: str, option: str = "--encoding") -> str:
    """Returns Python's name of a text encoding, given any of its names."""
    encoding = _text_encoding(name)
    if encoding is None:
        names = {alias.replace("_", "-") for alias in (*aliases, *aliases.values())}
        known = [alias for alias in names if len(alias) > 3 and _text_encoding(alias)]
        near = get_close_matches(name.lower().replace("_", "-"), sorted(known), n=1)
        advice = f"did you mean {near[0]}?" if near else "use one such as windows-1252"
        raise UsageError(f"{option}: unknown encoding {name[:40]!r}; {advice}")
    return encoding


def _text_encoding(name: str) -> str | None:
    try:
        "a".encode(name)  # some codecs are not text encodings, such as Base64
        return codecs.lookup(name).name
    except (LookupError, ValueError, AssertionError):
        return None
