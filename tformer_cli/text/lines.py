r"""Files and streams as lines of text, by the rules every command shares.

Only ``\n`` ends a line and a final ``\r`` is dropped; U+2028, form feed, NUL and the like are
characters. Bytes that are not UTF-8 become U+FFFD and are counted.
"""

import bz2
import codecs
import gzip
import io
import lzma
import queue
import shlex
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO, Generic, NamedTuple, TypeVar, cast

from tformer_cli.errors import DataError

if TYPE_CHECKING:
    from io import BufferedReader

# First bytes, the program that writes them, and the ending of files that are read through.
COMPRESSED = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"\xfd7zXZ\x00": ("xz", ".xz"),
    b"BZh": ("bzip2", ".bz2"),
    b"\x28\xb5\x2f\xfd": ("zstd", ".zst"),
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

# Tags of HTML or XML; not the special tokens of a vocabulary, such as `</s>`. A comment ends where
# another begins: to look for its end from every one of many would take the square of their number.
MARKUP = (
    r"(?i)</(?!s>)[A-Za-z][\w:.-]*\s*>|<[A-Za-z][\w:.-]*(?:\s+[\w:.-]+\s*=\s*\\?[\"'][^<>]*|\s*/)>"
    r"|<(?:!DOCTYPE\b[^<>]*|!--(?:(?!<!--).)*?--|\?xml\b[^<>]*\?"
    r"|(?:body|br|div|em|h[1-6]|head|hr|html|img|li|ol|p|span|strong|table|t[dhr]|title|ul))>"
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
    encoding = wide_encoding(block)
    if encoding:
        return f"{encoding.upper()} text, not UTF-8", _convert(encoding, path)
    # a NUL or two in a good text are characters
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


def wide_encoding(block: bytes) -> str:
    """UTF-16 or UTF-32, by its mark and a NUL byte, as line ends have, or by every other byte."""
    # text of ASCII letters in UTF-16 has a NUL in every other byte
    if 0 not in block:
        return ""
    for mark, encoding in WIDE_MARKS.items():
        if block.startswith(mark):
            return encoding
    for first, encoding in ((1, "utf-16le"), (0, "utf-16be")):
        nuls, n_others = block[first::2].count(0), block[1 - first :: 2].count(0)
        if nuls >= FEWEST_NULS and nuls > 0.5 * len(block[first::2]) and not n_others:
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
    if compressed_ending(path) != ending:
        return f"name it {Path(path).name}{ending}, or decompress it with {program} -d"
    return f"decompress it with {program} -d"


def _convert(encoding: str, path: str | Path) -> str:
    command = f"iconv -f {encoding} -t utf-8"
    if str(path) == "-":
        return f"pipe it through {command} first"
    if compressed_ending(path):
        return f"decompress it and convert it with {command}"
    path = Path(path)
    new = path.with_name(f"{path.stem}.utf8{path.suffix}")
    return f"convert it with {command} {shlex.quote(str(path))} > {shlex.quote(str(new))}"


def _open_zstd(path: Path, mode: str) -> object:  # noqa: ARG001 - as the others take it
    import pyarrow as pa  # of the standard library only Python 3.14's can

    return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))


OPENERS: dict[str, Callable[..., object]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _open_zstd,
}


def compressed_ending(path: str | PurePath) -> str:
    """The ending of a compressed file's name, in small letters; empty for other files."""
    suffix = PurePath(path).suffix.casefold()
    return suffix if suffix in OPENERS else ""


def ending_of(file: str) -> str:
    """The ending of a file's name, without that of a compressed one."""
    return PurePath(plain_name(file)).suffix.lower()


def plain_name(file: str) -> str:
    """The name of a file without its directory and the ending of a compressed one."""
    path = PurePath(file)
    # the output is not compressed
    return path.stem if compressed_ending(path) else path.name


BLOCK_BYTES = 1 << 16
TSV, JSONL = (".tsv",), (".jsonl", ".ndjson", ".json")
"""Endings of tables."""


@dataclass
class LineCounts:
    """Counts of a reader's lines and problems."""

    lines: int = 0
    not_utf8: int = 0
    """Lines with bytes that are not UTF-8, now U+FFFD."""


def decode_line(line: bytes, counts: LineCounts) -> str:
    r"""Decodes one line of bytes, with or without its ``\n``."""
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
    opener: Callable[[Path, str], object] = OPENERS.get(compressed_ending(path), open)
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
    """Checks that lines are several objects; each may be a string."""
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


Item = TypeVar("Item")
WAIT_SECONDS = 0.1
"""Seconds between two checks of a waiting side whether the other has ended."""


class End(NamedTuple):
    """End of the items, with the error that caused it, if any."""

    error: BaseException | None = None


class Prefetcher(Generic[Item]):
    """Iterates over items that a thread makes up to `size` ahead; errors reach the consumer."""

    def __init__(self, items: Iterable[Item], size: int) -> None:
        """Starts the thread, the only one that iterates over `items`."""
        self._queue: queue.Queue[Item | End] = queue.Queue(maxsize=size)
        self._end: End | None = None
        self._is_closed = threading.Event()
        # A daemon: a thread that waits for a terminal must not keep the program from ending.
        self._thread = threading.Thread(
            target=self._work, args=(items,), name="tformer-prefetch", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        while not isinstance(item := self.take(), End):
            yield item
        self.close()
        if item.error is not None:
            raise item.error

    def take(self, timeout: float | None = None) -> Item | End:
        """Waits for the next item; after the last one, and once closed, it is the end."""
        deadline = None if timeout is None else monotonic() + timeout
        while self._end is None and not self._is_closed.is_set():
            left = WAIT_SECONDS if deadline is None else max(0.0, deadline - monotonic())
            try:
                item = self._queue.get(timeout=min(WAIT_SECONDS, left))
            except queue.Empty:
                if left <= WAIT_SECONDS and deadline is not None:
                    raise
                continue
            if not isinstance(item, End):
                return item
            self._end = item
        return self._end or End()

    def stop(self) -> None:
        """Stops the thread at its next item, without waiting for it."""
        self._is_closed.set()

    def close(self) -> None:
        """Ends the thread and waits for it; calling it again does nothing."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self, items: Iterable[Item]) -> None:
        end = End()
        try:
            for item in items:
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are used
            end = End(error)
        self._put(end)

    def _put(self, item: Item | End) -> bool:
        """Hands an item over; False if the consumer has closed."""
        while not self._is_closed.is_set():
            try:
                self._queue.put(item, timeout=WAIT_SECONDS)
            except queue.Full:
                continue
            return True
        return False


def buffers(
    lines: Iterable[Item], n_lines: int, max_wait: float | None = None
) -> Iterator[list[Item]]:
    """Groups lines as they come."""
    if max_wait is None:
        lines = iter(lines)
        while buffer := list(islice(lines, n_lines)):
            yield buffer
        return
    ahead = Prefetcher(lines, 2 * n_lines)
    try:
        for first in ahead:
            yield _fill(first, ahead, n_lines, max_wait)
    finally:
        ahead.stop()  # its thread may be waiting for a line that never comes


def _fill(first: Item, ahead: Prefetcher[Item], n_lines: int, max_wait: float) -> list[Item]:
    """Fills a buffer that begins with `first`."""
    buffer, deadline = [first], monotonic() + max_wait
    while len(buffer) < n_lines:
        try:
            item = ahead.take(max(0.0, deadline - monotonic()))
        except queue.Empty:
            break
        if isinstance(item, End):
            break
        buffer.append(item)
    return buffer
