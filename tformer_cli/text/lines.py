r"""Files and streams as lines of text, by the rules every command shares.

Only ``\n`` ends a line and a final ``\r`` is dropped; U+2028, form feed, NUL and the like are
characters. Bytes that are not UTF-8 become U+FFFD and are counted.
"""

import bz2
import codecs
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from tformer_cli.errors import DataError
from tformer_cli.text.not_text import check_text

if TYPE_CHECKING:
    from io import BufferedReader

OPENERS: dict[str, Callable[..., object]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}

BLOCK_BYTES = 1 << 16


@dataclass
class LineCounts:
    """Counts of a reader's lines and problems."""

    lines: int = 0
    not_utf8: int = 0
    """Lines with bytes that are not UTF-8, now U+FFFD."""


def decode_line(line: bytes, counts: LineCounts) -> str:
    r"""Turns one line of bytes, with or without its ``\n``, into text."""
    counts.lines += 1
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode("utf-8")
    # a line with a broken byte is still a line: N lines in are N lines out
    except UnicodeDecodeError:
        counts.not_utf8 += 1
        return line.decode("utf-8", errors="replace")


def lines_of(stream: Iterable[bytes], counts: LineCounts | None = None) -> Iterator[str]:
    r"""Yields the lines of a binary stream; a last line without ``\n`` counts as a line."""
    counts = counts if counts is not None else LineCounts()
    for line in stream:
        yield decode_line(line, counts)


def groups_of_lines(stream: BinaryIO, counts: LineCounts) -> Iterator[list[str]]:
    """Yields the lines of a stream as they arrive, and waits only for the first."""
    begun: list[bytes] = []
    # only before the first line; later it is a character (U+FEFF)
    mark = codecs.BOM_UTF8
    is_first = True
    while block := _next_block(stream):
        if is_first:
            check_text(block, "-")
            is_first = False
        first, *others = block.split(b"\n")
        begun.append(first)
        if others:
            lines = [b"".join(begun), *others[:-1]]
            begun = [others[-1]]
            lines[0], mark = lines[0].removeprefix(mark), b""
            yield [decode_line(line, counts) for line in lines]
    if last := b"".join(begun):
        yield [decode_line(last.removeprefix(mark), counts)]


def _next_block(stream: BinaryIO) -> bytes:
    try:
        # a pipe that pauses gets its answers, a file is read in large pieces
        return cast("BufferedReader", stream).read1(BLOCK_BYTES)
    except OSError as error:
        raise _unreadable("-", error) from None


def check_file(path: str | Path) -> None:
    try:
        if not str(path):
            raise DataError("the input: the file's name is empty; name a file, or - for stdin")
        if Path(path).is_dir():
            raise DataError(f"{path}: is a directory; name a file")
        Path(path).stat()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise _unreadable(path, error) from None


def open_bytes(path: str | Path) -> BinaryIO:
    """Opens a file, a compressed file or (``-``) standard input for reading bytes."""
    if str(path) == "-":
        return sys.stdin.buffer
    check_file(path)
    # by the name and not by the content: the user says what the file is
    opener: Callable[[Path, str], object] = OPENERS.get(Path(path).suffix, open)
    try:
        return cast("BinaryIO", opener(Path(path), "rb"))
    except OSError as error:
        raise _unreadable(path, error) from None


def read_lines(path: str | Path, counts: LineCounts | None = None) -> Iterator[str]:
    stream = open_bytes(path)
    try:
        with readable(path):
            yield from lines_of(_checked_lines(stream, path), counts)
    finally:
        if stream is not sys.stdin.buffer:
            stream.close()


def shard_range(n_lines: int, index: int, count: int) -> range:
    """The lines of part `index` of `count`: contiguous, so that the joined outputs are in order."""
    return range(n_lines * index // count, n_lines * (index + 1) // count)


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Describes a file that cannot be read."""
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise _unreadable(path, error) from None


def _checked_lines(stream: BinaryIO, path: str | Path) -> Iterator[bytes]:
    """Yields the lines of a stream that begins like text, without the mark at its beginning."""
    # whatever has arrived, so that a pipe that pauses gets its answers
    block = cast("BufferedReader", stream).read1(BLOCK_BYTES)
    check_text(block, path)
    first, *others = block.split(b"\n")
    if not others:
        first += stream.readline()
        if first:
            yield first.removeprefix(codecs.BOM_UTF8)
    else:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from others[:-1]
        if begun := others[-1] + stream.readline():
            yield begun
    yield from stream


def _unreadable(path: str | Path, error: Exception) -> DataError:
    name = "stdin" if str(path) == "-" else path
    if isinstance(error, OSError) and error.strerror:  # the system's, not a decompressor's
        return DataError(f"{name}: cannot be read ({error.strerror.lower()}); name another file")
    suffix = Path(name).suffix
    return DataError(
        f"{name}: is damaged or not a compressed file ({error}); compress it again, or name "
        f"it without {suffix}"
    )


def without_surrogates(text: str) -> str:
    """Joins surrogate pairs and replaces lone ones by U+FFFD: only then can text become UTF-8."""
    # JSON escapes and undecodable arguments of the command line bring them
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def given_lines(lines: Iterable[str], name: str = "lines") -> Iterator[str]:
    check_lines(lines, name)
    return (checked_line(line, number, name) for number, line in enumerate(lines))


def check_lines(lines: object, name: str = "lines") -> None:
    """Checks that lines are several objects, each of which may be a string."""
    if isinstance(lines, str | bytes | bytearray):
        raise TypeError(f"{name}: is one {_kind(lines)}; give a list of str, a line each")
    if not isinstance(lines, Iterable):
        raise TypeError(f"{name}: is {_kind(lines)}; give a list of str, a line each")


def checked_line(line: object, number: int, name: str = "lines") -> str:
    if not isinstance(line, str):
        what_to_do = "decode it" if isinstance(line, bytes | bytearray) else "give a str"
        raise TypeError(f"{name}[{number}]: is {_kind(line)}, not str; {what_to_do}")
    return line


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
