"""The formats of documents: a row for each, which names the function that reads it."""

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
    """A format of documents."""

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
    """Whether files have a label of their language; some: those in which one is seen."""

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


_IN = "tformer_cli.documents.formats."
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
_CONVERT = "is not read; convert it to .md with pandoc"
_SUBTITLES = "subtitles of a format that is not read; convert it to .srt with ffmpeg"
_MESSAGES = "messages of a format that is not read; convert them to .po with translate-toolkit"
REFUSED = {
    ".pdf": "a PDF has no text to write into; make text of it with pdftotext, or a .docx",
    ".doc": "an old format; save it as .docx",
    ".rtf": "a format that is not read; save it as .docx",
    ".xls": "a table that is not read; save it as .xlsx",
    ".xlsb": "a table that is not read; save it as .xlsx",
    ".numbers": "a table that is not read; export it as .xlsx",
    ".pages": "a format that is not read; export it as .docx",
    ".ppt": "an old format; save it as .pptx",
    ".pps": "an old format; save it as .pptx",
    ".dot": "an old format; save it as .docx",
    ".wps": "a format that is not read; save it as .docx",
    ".sxw": "an old format; save it as .odt",
    ".sxi": "an old format; save it as .odp",
    ".key": "a format that is not read; export it as .pptx",
    ".mobi": "a book of a format that is not read; convert it to .epub with ebook-convert",
    ".azw3": "a book of a format that is not read; convert it to .epub with ebook-convert",
}
"""Files that people try, and the way out."""
REFUSED_TEXTS = {
    ".ipynb": "a notebook, whose code is no text; make a .md of it with jupytext",
    ".yaml": "YAML is not read; convert it to .json, which is",
    ".yml": "YAML is not read; convert it to .json, which is",
    ".rst": f"reStructuredText {_CONVERT}, or to .pot with sphinx-build -b gettext",
    **dict.fromkeys((".tex", ".adoc", ".textile", ".typ"), f"its markup {_CONVERT}"),
    **dict.fromkeys((".ass", ".ssa", ".sub", ".sbv", ".ttml", ".dfxp"), _SUBTITLES),
    **dict.fromkeys((".properties", ".resx", ".strings", ".ts"), _MESSAGES),
    **dict.fromkeys(
        (".sdlxliff", ".mqxliff", ".mxliff", ".txlf"),
        "XLIFF of another tool; add --document xliff",
    ),
    ".xml": "XML whose format its name does not tell; add --document xliff, tmx or html",
    ".fods": "a table in one file of XML; save it as .ods",
    ".fb2": "a book of a format that is not read; convert it to .epub with ebook-convert",
}
"""Files whose markup would be translated as lines of text; --document asks for what is read."""
TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".parquet", ".arrow")
"""Files whose lines are rows of several columns, and no sentences."""
NAMED = frozenset(
    {*BY_EXTENSION, *REFUSED, *REFUSED_TEXTS, *TABLES, ".zip"}
    | {".png", ".jpg", ".jpeg", ".gif", ".webp"}
)
"""Endings by which a word without blanks is the name of a file: `e.g.` and `Node.js` are words."""
NO_TEXT = frozenset({*REFUSED, *(end for end, row in BY_EXTENSION.items() if row.content == ZIP)})
"""Endings of files that are no text: no word has them."""


def ending_of(path: str) -> str:
    """Returns the extension of a file, before that of a compressed one."""
    name = PurePath(path)
    return (name.with_suffix("") if compressed_ending(name) else name).suffix.lower()


def format_with(extension: str) -> Format | None:
    """Finds the format of an extension, of another package, too."""
    if extension in BY_EXTENSION or not extension:
        return BY_EXTENSION.get(extension)
    return next((row for row in FORMATS.added.values() if extension in row.extensions), None)


def format_of(path: str) -> Format | None:
    """Finds the format of a file by its extension; None: it has no known one."""
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
        advice = f"did you mean {near[0]}?" if near else f"name one of {', '.join(FORMATS)}"
        raise UsageError(f"{option}: there is no format {name[:40]}; {advice}")
    return row


def encoding_named(name: str, option: str = "--encoding") -> str:
    """Finds an encoding of text by any of its names, as Python calls it."""
    encoding = _text_encoding(name)
    if encoding is None:
        names = {alias.replace("_", "-") for alias in (*aliases, *aliases.values())}
        known = [alias for alias in names if len(alias) > 3 and _text_encoding(alias)]
        near = get_close_matches(name.lower().replace("_", "-"), sorted(known), n=1)
        advice = f"did you mean {near[0]}?" if near else "name one such as windows-1252"
        raise UsageError(f"{option}: there is no encoding {name[:40]!r}; {advice}")
    return encoding


def _text_encoding(name: str) -> str | None:
    try:
        "a".encode(name)  # some names are of other codecs, such as Base64
        return codecs.lookup(name).name
    except (LookupError, ValueError, AssertionError):
        return None
