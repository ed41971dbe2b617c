"""Recognition of what is not UTF-8 text: files by their first bytes, markup by its tags."""

import codecs
import re
import shlex
from pathlib import Path

from tformer_cli.errors import DataError

# First bytes, the program that writes them, and the ending of files that are read through.
COMPRESSED = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"\xfd7zXZ\x00": ("xz", ".xz"),
    b"BZh": ("bzip2", ".bz2"),
    b"\x28\xb5\x2f\xfd": ("zstd", ""),
}
# First bytes of documents by word processors.
DOCUMENTS = {
    b"PK\x03\x04": "a zip archive or an office document (.docx, .odt, .xlsx)",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an office document (.doc, .xls)",
    b"%PDF-": "a PDF document",
    b"{\\rtf1": "an RTF document",
}
WIDE_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is the beginning of this one
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# A beginning with this many NUL bytes, and this share of them, is binary.
FEWEST_NULS, NUL_SHARE = 32, 0.1
# A beginning with this many lines that are not UTF-8, this share of all, is in another encoding,
# unless more than the last share of its lines with letters beyond ASCII are UTF-8.
FEWEST_BROKEN_LINES, BROKEN_SHARE, MOST_VALID = 8, 0.25, 0.1
WESTERN_SHARE = 0.25
"""Bytes beyond ASCII are fewer in Latin-1 text, and more in other alphabets' encodings."""

# Tags of HTML or XML; not the special tokens of a vocabulary, such as `</s>`.
MARKUP = re.compile(
    r"</(?!s>)[A-Za-z][\w:.-]*\s*>|<[A-Za-z][\w:.-]*(?:\s+[\w:.-]+\s*=\s*\\?[\"'][^<>]*|\s*/)>"
    r"|<(?:!DOCTYPE\b[^<>]*|!--.*?--|\?xml\b[^<>]*\?|(?:body|br|div|em|h[1-6]|head|hr|html|img|li|p"
    r"|ol|span|strong|table|t[dhr]|title|ul))>",
    re.IGNORECASE,
)


def check_text(block: bytes, path: str | Path) -> None:
    """Checks that a file, or stdin (``-``), may be text."""
    problem = _other_format(block, path)
    if problem is not None:
        kind, cure = problem
        name = "stdin" if str(path) == "-" else path
        raise DataError(f"{name}: is {kind}; {cure}")


def _other_format(block: bytes, path: str | Path) -> tuple[str, str] | None:
    """Format of a file that is not text, and the cure; None: probably text."""
    for magic, (program, ending) in COMPRESSED.items():
        is_bzip2_text = magic == b"BZh" and block[4:10] != b"1AY&SY"  # digits of pi, in each file
        if block.startswith(magic) and not is_bzip2_text:
            return f"compressed by {program}", _decompress(program, ending, path)
    for magic, kind in DOCUMENTS.items():
        if block.startswith(magic):
            return f"{kind}, not text", "save it as plain text (UTF-8), one sentence a line"
    encoding = _wide_encoding(block)
    if encoding:
        return f"{encoding.upper()} text, not UTF-8", _convert(encoding, path)
    # a single NUL in a good text is a character
    n_nuls = block.count(0)
    if n_nuls >= max(FEWEST_NULS, NUL_SHARE * len(block)):
        return "a binary file, not text", "name a file of UTF-8 text, one sentence a line"
    if _is_in_another_encoding(block):
        beyond_ascii = sum(byte > 127 for byte in block)
        if beyond_ascii < WESTERN_SHARE * len(block):
            return "not UTF-8 (Latin-1?)", _convert("latin1", path)
        cure = _convert("ENCODING", path)
        return "not UTF-8", f"{cure}; `iconv -l` lists encodings"
    return None


def _wide_encoding(block: bytes) -> str:
    """UTF-16 or UTF-32, by its mark and a NUL byte, as line ends have, or by every other byte."""
    # text of ASCII letters in UTF-16 has a NUL in every other byte
    if 0 not in block:
        return ""
    for mark, encoding in WIDE_MARKS.items():
        if block.startswith(mark):
            return encoding
    for first, encoding in ((1, "utf-16le"), (0, "utf-16be")):
        nuls, others = block[first::2].count(0), block[1 - first :: 2].count(0)
        if nuls >= FEWEST_NULS and nuls > 0.5 * len(block[first::2]) and not others:
            return encoding
    return ""


def _is_in_another_encoding(block: bytes) -> bool:
    if block.isascii():
        return False
    lines = block.split(b"\n")[:-1]  # the last one may end in the middle of a letter
    beyond_ascii = [line for line in lines if not line.isascii()]
    n_broken = sum(not _is_utf8(line) for line in beyond_ascii)
    return n_broken >= max(FEWEST_BROKEN_LINES, BROKEN_SHARE * len(lines)) and len(
        beyond_ascii
    ) - n_broken <= MOST_VALID * len(beyond_ascii)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _decompress(program: str, ending: str, path: str | Path) -> str:
    if str(path) == "-":
        return f"pipe it through {program} -dc first"
    if ending and Path(path).suffix != ending:
        return f"name it {Path(path).name}{ending}, or decompress it with {program} -d"
    return f"decompress it with {program} -d"


def _convert(encoding: str, path: str | Path) -> str:
    command = f"iconv -f {encoding} -t utf-8"
    if str(path) == "-":
        return f"pipe it through {command} first"
    if Path(path).suffix in {ending for _, ending in COMPRESSED.values() if ending}:
        return f"decompress it and convert it with {command}"
    path = Path(path)
    new = path.with_name(f"{path.stem}.utf8{path.suffix}")
    return f"convert it with {command} {shlex.quote(str(path))} > {shlex.quote(str(new))}"
