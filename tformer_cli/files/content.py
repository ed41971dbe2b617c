"""Recognition of a file's content by its first bytes: its format, and whether tformer wrote it."""

import re
from pathlib import Path

LOOKED_AT = 1 << 20
"""Bytes read of a file: a page of ours may name its maker late."""
BINARY = "binary data"
_JSON = re.compile(rb'\s*(\{\s*"[^"\n]*"\s*:|\[\s*[\[{"])')
_OUR_JSON = re.compile(rb'"schema": ?"tformer\.|"index": ?\d')
_MARKUP = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<(!doctype html|html|svg)\b", re.IGNORECASE)


def content_of(path: Path) -> tuple[str, bool]:
    """Returns the format of a file and whether it may be a result of ours.

    Text is UTF-8 with fewer NULs than line ends. Text, SVG and npy carry no sign of who wrote them
    and count as ours; JSON needs our schema or the index of a line; HTML, PNG, npz and safetensors
    need the marks that our writers leave.

    Returns:
        "text", "JSON", "tokenizer", "HTML", "SVG", "PNG", "npz", "npy", "safetensors", "binary
        data", or "" for an empty file.

    Raises:
        OSError: if it cannot be read.
    """
    with path.open("rb") as stream:
        start = stream.read(LOOKED_AT)
        is_whole = not stream.read(1)
    for magic, kind, sign in (
        (b"\x89PNG", "PNG", b"Software\0tformer"),
        (b"\x93NUMPY", "npy", b""),
        (b"PK\3\4", "npz", b"metadata.npy|.table.npy"),
    ):
        if start.startswith(magic):
            is_ours = any(one in start[:4096] for one in sign.split(b"|"))
            return BINARY if kind == "npz" and not is_ours else kind, is_ours  # any zip archive
    if start[8:10] == b'{"' and int.from_bytes(start[:8], "little") < LOOKED_AT * 100:
        return "safetensors", b"tformer" in start[
            :4096
        ] or b'{"__metadata__":{},"vectors":' in start[:99]
    if not _is_text(start, is_whole=is_whole):
        return BINARY, False
    if found := _JSON.match(start):
        if re.match(rb'\s*\{\s*"version": ?"1\.0",\s*"truncation"', start):
            return "tokenizer", True
        first_line = start[found.start() :].lstrip().split(b"\n{", 1)[0]
        return "JSON", bool(_OUR_JSON.search(first_line))
    if found := _MARKUP.match(start):
        is_svg = found[1].lower() == b"svg"
        return ("SVG", True) if is_svg else ("HTML", b"tformer" in start)
    return ("text", True) if start else ("", True)


def _is_text(start: bytes, *, is_whole: bool) -> bool:
    try:
        start.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(start) - 3:  # not a character that was cut
            return False
    return start.count(b"\0") <= start.count(b"\n")
