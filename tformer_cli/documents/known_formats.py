"""The formats of documents: a row for each, which names the function that reads it."""

from __future__ import annotations

import codecs
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
    """A format of documents."""

    name: str
    extensions: tuple[str, ...]
    reader: str
    """MODULE:FUNCTION in `documents.formats`; a document of one format loads no other's module."""

    @property
    def read(self) -> Reader:
        from tformer_cli.documents.segments import read_within_limits

        module, _, function = self.reader.partition(":")
        reader: Reader = getattr(import_module(f"tformer_cli.documents.formats.{module}"), function)
        return partial(read_within_limits, reader)

    @property
    def content(self) -> str:
        """The content of such a file, as `files.regular_file.content_of` names it."""
        is_packed = self.reader.startswith(("office:", "epub:"))
        return {"html": "HTML", "json": "JSON"}.get(self.name, ZIP if is_packed else "text")

    @property
    def tells_encoding(self) -> bool:
        """Returns whether each file of the format tells its encoding, as XML does."""
        return self.reader.startswith(("office:", "epub:", "bilingual:", "xlsx:", "ods:"))


FORMATS = (
    Format("html", (".html", ".htm", ".xhtml"), "html:read"),
    Format("markdown", (".md", ".markdown"), "markdown:read"),
    Format("text", (".txt",), "text:read"),
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
    Format("po", (".po", ".pot"), "po:read"),
    Format("xliff", (".xlf", ".xliff"), "bilingual:read_xliff"),
    Format("tmx", (".tmx",), "bilingual:read_tmx"),
    Format("json", (".json", ".arb"), "json_paths:read"),
    Format("epub", (".epub",), "epub:read"),
)
BY_NAME = {one.name: one for one in FORMATS}
BY_EXTENSION = {extension: one for one in FORMATS for extension in one.extensions}
REFUSED = {
    ".pdf": "a PDF has no text to write into; make text of it with pdftotext, or a .docx",
    ".doc": "an old format; save it as .docx",
    ".rtf": "a format that is not read; save it as .docx",
    ".xls": "a table that is not read; save it as .csv",
    ".xlsx": "a table that is not read; save it as .csv",
    ".ods": "a table that is not read; save it as .csv",
    ".ppt": "an old format; save it as .pptx",
    ".pps": "an old format; save it as .pptx",
    ".dot": "an old format; save it as .docx",
    ".wps": "a format that is not read; save it as .docx",
    ".sxw": "an old format; save it as .odt",
    ".sxi": "an old format; save it as .odp",
    ".key": "a format that is not read; export it as .pptx",
}
"""Files that people try, and the way out."""
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow")
"""Files whose lines are rows of several columns, and no sentences."""
NAMED = frozenset(
    {*BY_EXTENSION, *REFUSED, *TABLES, ".mdx", ".rst", ".tex", ".xml", ".yaml", ".yml", ".zip"}
    | {".png", ".jpg", ".jpeg", ".gif", ".webp"}
)
"""Endings by which a word without blanks is the name of a file: `e.g.` and `Node.js` are words."""


def ending_of(path: str) -> str:
    """Returns the extension of a file, before that of a compressed one."""
    name = PurePath(path)
    return (name.with_suffix("") if compressed_ending(name) else name).suffix.lower()


def format_of(path: str) -> Format | None:
    """Finds the format of a file by its extension; None: it has no known one."""
    extension = ending_of(path)
    if extension in REFUSED:
        raise UsageError(f"{path}: {REFUSED[extension]}")
    return BY_EXTENSION.get(extension)


def format_named(name: str, option: str = "--document") -> Format:
    found = BY_NAME.get(name.lower().removeprefix("."))
    found = found or BY_EXTENSION.get("." + name.lower().removeprefix("."))
    if found is None:
        near = get_close_matches(name.lower(), BY_NAME, n=1)
        advice = f"did you mean {near[0]}?" if near else f"name one of {', '.join(BY_NAME)}"
        raise UsageError(f"{option}: there is no format {name[:40]}; {advice}")
    return found


def encoding_named(name: str, option: str = "--encoding") -> str:
    """Finds an encoding of text by any of its names, as Python calls it."""
    found = _text_encoding(name)
    if found is None:
        names = {one.replace("_", "-") for one in (*aliases, *aliases.values())}
        known = [one for one in names if len(one) > 3 and _text_encoding(one)]
        near = get_close_matches(name.lower().replace("_", "-"), sorted(known), n=1)
        advice = f"did you mean {near[0]}?" if near else "name one such as windows-1252"
        raise UsageError(f"{option}: there is no encoding {name[:40]!r}; {advice}")
    return found


def _text_encoding(name: str) -> str | None:
    try:
        "a".encode(name)  # some names are of other codecs, such as Base64
        return codecs.lookup(name).name
    except (LookupError, ValueError, AssertionError):
        return None
