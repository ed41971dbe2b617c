"""Document formats: one row each, with the function that reads it."""

from __future__ import annotations

import codecs
import re
from difflib import get_close_matches
from encodings.aliases import aliases
from functools import partial
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from tformer_cli.errors import UsageError
from tformer_cli.files.regular_file import ZIP
from tformer_cli.text.lines import compressed_ending

if TYPE_CHECKING:
    from tformer_cli.documents.segments import Reader


class Format(NamedTuple):
    """A document format."""

    name: str
    extensions: tuple[str, ...]
    reader: str
    """MODULE:FUNCTION in `documents.formats`; a document of one format loads no other's module."""
    takes: tuple[str, ...] = ()
    """Options that choose its texts."""

    @property
    def read(self) -> Reader:
        from tformer_cli.documents.segments import read_within_limits

        module, _, function = self.reader.partition(":")
        reader: Reader = getattr(import_module(f"tformer_cli.documents.formats.{module}"), function)
        return partial(read_within_limits, reader)

    @property
    def content(self) -> str:
        """The content of such a file, as `files.regular_file.content_of` names it."""
        is_packed = self.reader.startswith(("office:", "epub:", "xlsx:", "ods:"))
        is_json = self.reader.startswith("json_paths:")
        return (
            "JSON" if is_json else "HTML" if self.name == "html" else ZIP if is_packed else "text"
        )

    @property
    def tells_encoding(self) -> bool:
        """Returns whether each file of the format tells its encoding, as XML does."""
        return self.reader.startswith(("office:", "epub:", "bilingual:", "xlsx:", "ods:"))

    def tells_language(self, data: bytes) -> bool:
        """Returns whether a file has a label of its language, as all of Office and EPUB do."""
        if self.name in ("docx", "pptx", "odt", "odp", "epub"):
            return True
        return _LABEL.search(data, 0, _HEAD) is not None and self.name not in (*_TEXTS, "tmx")


_HEAD = 4096
_LABEL = re.compile(
    rb"""\b(?:lang|trgLang|target-language)\s*=|"@@locale"|^(?:Language:|"Language:\s*\w)""",
    re.MULTILINE,
)
_TEXTS = ("text", "markdown", "srt", "csv", "tsv", "jsonl")
_TABLE = ("column", "no_header")
FORMATS = (
    Format("html", (".html", ".htm", ".xhtml"), "html:read"),
    Format("markdown", (".md", ".markdown", ".mdx"), "markdown:read", ("front_matter",)),
    Format("text", (".txt",), "text:read", ("unwrap",)),
    Format("docx", (".docx", ".docm", ".dotx", ".dotm"), "office:read_open_xml"),
    Format(
        "pptx",
        (".pptx", ".pptm", ".potx", ".potm", ".ppsx", ".ppsm", ".sldx", ".sldm"),
        "office:read_open_xml",
    ),
    Format("odt", (".odt", ".ott", ".odm", ".fodt"), "office:read_open_document"),
    Format("odp", (".odp", ".otp", ".odg", ".otg", ".fodp", ".fodg"), "office:read_open_document"),
    Format("srt", (".srt",), "subtitles:read_srt"),
    Format("vtt", (".vtt",), "subtitles:read_vtt"),
    Format("po", (".po", ".pot"), "po:read", ("fuzzy",)),
    Format("xliff", (".xlf", ".xliff"), "bilingual:read_xliff", ("fuzzy",)),
    Format("tmx", (".tmx",), "bilingual:read_tmx"),
    Format("json", (".json", ".arb"), "json_paths:read", ("key",)),
    Format("epub", (".epub",), "epub:read"),
    Format("csv", (".csv",), "tables:read_csv", _TABLE),
    Format("tsv", (".tsv", ".tab"), "tables:read_tsv", _TABLE),
    Format("jsonl", (".jsonl", ".ndjson"), "json_paths:read_lines", ("key",)),
    Format("xlsx", (".xlsx", ".xlsm", ".xltx", ".xltm"), "xlsx:read", _TABLE),
    Format("ods", (".ods", ".ots"), "ods:read", _TABLE),
)
BY_NAME = {row.name: row for row in FORMATS}
BY_EXTENSION = {extension: row for row in FORMATS for extension in row.extensions}
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


def format_of(path: str) -> Format | None:
    """Finds the format of a file by its extension; None if the extension is unknown."""
    extension = ending_of(path)
    if extension in REFUSED:
        raise UsageError(f"{path}: {REFUSED[extension]}")
    return BY_EXTENSION.get(extension)


def format_named(name: str, option: str = "--document") -> Format:
    row = BY_NAME.get(name.lower().removeprefix("."))
    row = row or BY_EXTENSION.get("." + name.lower().removeprefix("."))
    if row is None:
        near = get_close_matches(name.lower(), BY_NAME, n=1)
        advice = f"did you mean {near[0]}?" if near else f"use one of {', '.join(BY_NAME)}"
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
