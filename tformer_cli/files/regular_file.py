"""Reading files that a program has written itself: ordinary ones, of a size that makes sense.

In their place may be a named pipe, which would be waited for for ever, a device without an end, or
a file of some gigabytes of nothing. Reading those fails as reading a file fails: by an `OSError`.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from tformer_cli.errors import DataError

MIB = 1 << 20


def open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading bytes."""
    stream = os.fdopen(os.open(path, os.O_RDONLY | _AT_ONCE), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    return stream


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Reads a whole file."""
    with open_regular(path) as stream:
        return _read(stream, path, most_bytes)


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Reads a whole file that a user has named, which may be a pipe: ``<(zcat recipe.toml.gz)``."""
    with path.open("rb") as stream:
        return _read(stream, path, most_bytes)


def _read(stream: BinaryIO, path: Path, most_bytes: int) -> bytes:
    size, content = os.fstat(stream.fileno()).st_size, b""
    if size <= most_bytes:
        # Not all at once: Python takes the memory for as much as may come
        while block := stream.read(max(size, BLOCK_BYTES)):
            content = content + block if content else block
            if len(content) > most_bytes:  # a pipe has no size, and a file may grow
                break
        else:
            return content
    raise OSError(errno.EFBIG, f"longer than {most_bytes:,} bytes", str(path))


_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""A pipe that no one writes into is opened all the same."""


BLOCK_BYTES = 1 << 20


def hash_file(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes in hexadecimal digits."""
    import hashlib  # loads a library that a cold line does without

    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({(error.strerror or str(error)).lower()}); check "
            "the file and its permissions"
        ) from None
    return digest.hexdigest()


def hash_tree(directory: Path, pattern: str) -> str:
    """Returns the SHA-256 of the relative names and contents of a directory's files."""
    files = sorted(path for path in directory.rglob(pattern) if path.is_file())
    if not files:
        raise DataError(f"{directory}: holds no file named {pattern}; check the directory")
    import hashlib

    # The hash is the same wherever the directory lies, on every system
    names = [f"{path.relative_to(directory).as_posix()} {hash_file(path)}" for path in files]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


LOOKED_AT = 1 << 20
"""Bytes read of a file: a page of ours may name its maker late."""
BINARY, ZIP = "binary data", "a zip archive"
_JSON = rb'\s*(\{\s*"[^"\n]*"\s*:|\[\s*[\[{"])'
_OUR_JSON = rb'"schema": ?"tformer\.|"index": ?\d'
_MARKUP = rb"(?i)\s*(?:<\?xml[^>]*>\s*)?<(!doctype html|html|svg)\b"


def content_of(path: Path) -> tuple[str, bool]:
    """Returns the format of a file and whether it may be a result of ours.

    Text is UTF-8 with fewer NULs than line ends. Text, SVG and npy carry no sign of who wrote them
    and count as ours, but scripts and TOML do not; JSON needs our schema or the index of a line;
    HTML, PDF, PNG, npz and safetensors need the marks that our writers leave.
    """
    with path.open("rb") as stream:
        start = stream.read(LOOKED_AT)
        is_whole = not stream.read(1)
    for magic, kind, sign in (
        (b"\x89PNG", "PNG", b"Software\0tformer"),
        (b"%PDF-", "PDF", b"tformer"),
        (b"\x93NUMPY", "npy", b""),
        (b"PK\3\4", "npz", b"metadata.npy|.table.npy"),
    ):
        if start.startswith(magic):
            looked_at = start if kind == "PDF" else start[:4096]  # a PDF names its maker at the end
            is_ours = any(mark in looked_at for mark in sign.split(b"|"))
            return ZIP if kind == "npz" and not is_ours else kind, is_ours
    if start[8:10] == b'{"' and int.from_bytes(start[:8], "little") < LOOKED_AT * 100:
        return "safetensors", b"tformer" in start[
            :4096
        ] or b'{"__metadata__":{},"vectors":' in start[:99]
    if not _is_text(start, is_whole=is_whole):
        return BINARY, False
    if match := re.match(_JSON, start):
        if re.match(rb'\s*\{\s*"version": ?"1\.0",\s*"truncation"', start):
            return "tokenizer", True
        first_line = start[match.start() :].lstrip().split(b"\n{", 1)[0]
        return "JSON", bool(re.search(_OUR_JSON, first_line))
    if match := re.match(_MARKUP, start):
        is_svg = match[1].lower() == b"svg"
        return ("SVG", True) if is_svg else ("HTML", b"tformer" in start)
    if start.startswith(b"#!"):
        return "a script", False
    if is_whole and _is_toml(start):
        return "TOML", False
    return ("text", True) if start else ("", True)


def _is_toml(start: bytes) -> bool:
    # Not by a heading: a line of subtitles may be "[Music]", but only TOML assigns in all its lines
    if b"=" not in start:
        return False
    import tomllib  # few files have an equals sign, and most commands need no TOML

    try:
        return bool(tomllib.loads(start.decode("utf-8-sig")))
    except (tomllib.TOMLDecodeError, RecursionError):
        return False


def _is_text(start: bytes, *, is_whole: bool) -> bool:
    try:
        start.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(start) - 3:  # not a character that was cut
            return False
    return start.count(b"\0") <= start.count(b"\n")


LARGEST_LOG = 1 << 30
"""Millions of reports, or of looks at a head."""
Entry = TypeVar("Entry")


def read_run_log(
    run: Path, name: str, absent: str, parse: Callable[[bytes], Entry | None]
) -> Iterator[Entry]:
    """Reads the lines that a run has written so far, without a last line still being written."""
    file = run / name
    if not run.is_dir():
        raise DataError(f"{run}: no such run directory; name one that `tformer train` has made")
    try:
        lines = read_regular(file, LARGEST_LOG).split(b"\n")
    except FileNotFoundError:
        raise DataError(f"{run}: has no {name}; {absent}") from None
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise DataError(f"{file}: cannot be read ({reason}); name another run") from None
    for number, line in enumerate(lines, start=1):
        entry = parse(line)
        if entry is not None:
            yield entry
        elif number < len(lines):
            raise DataError(f"{file}, line {number}: is damaged; remove that line")
