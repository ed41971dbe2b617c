"""Downloading files of known size and hash: resumed, unpacked, checked, whole or not there."""

import gzip
import time
import zlib
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import written_aside
from tformer_cli.files.regular_file import BLOCK_BYTES, hash_file

Report = Callable[[int], None]
SECONDS = 10.0
"""Longest silence of a server, so that a machine without a network fails at once."""
ATTEMPTS = 4
SECONDS_BETWEEN_REPORTS = 5.0
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file that a server has, perhaps packed by gzip; size and hash are of it unpacked."""

    name: str
    url: str
    size: int
    sha256: str

    def lies_in(self, directory: Path) -> bool:
        """Returns whether an earlier download left the file, which it does only when whole."""
        try:
            return (directory / self.name).stat().st_size == self.size
        except OSError:
            return False


class _OtherFileError(Exception):
    """Another file than that of the table was downloaded."""


def download(files: tuple[RemoteFile, ...], directory: Path, say: Callable[[str], None]) -> None:
    """Downloads the files that a directory lacks, one after the other, and says how far it is."""
    missing = [file for file in files if not file.lies_in(directory)]
    total, said_at = sum(file.size for file in missing), time.monotonic()
    before = 0

    def report(n_bytes: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= SECONDS_BETWEEN_REPORTS:
            said_at = time.monotonic()
            # Of a packed file fewer bytes arrive than it has, so this may only fall short
            say(f"downloaded {(before + n_bytes) / 1e6:.0f} of {total / 1e6:.0f} MB")

    for file in missing:
        _fetch(file, directory / f"{file.name}.part", report)
        _unpack(file, directory / f"{file.name}.part", directory / file.name)
        before += file.size


def _fetch(file: RemoteFile, part: Path, report: Report) -> None:
    """Downloads what a part of a file lacks; a broken connection is taken up where it broke."""
    for attempt in range(1, ATTEMPTS + 1):
        begun = part.stat().st_size if part.exists() else 0
        try:
            _continue(file.url, part, begun, report)
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError):
                error.close()
                if error.code == 416:  # it ends where the part does
                    return
            # Without a byte of progress the server is out of reach: waiting would not help
            if attempt < ATTEMPTS and part.exists() and part.stat().st_size > begun:
                continue
            # The library wraps the system's message in words of its own
            inner = error.reason if type(error) is URLError else error
            reason = str(inner) or type(error).__name__
            raise ArtifactError(f"{file.url}: cannot be downloaded ({reason})") from None
        return


def _continue(url: str, part: Path, begun: int, report: Report) -> None:
    request = Request(url, headers={"User-Agent": "tformer"})  # noqa: S310 - of our own table
    if begun:
        request.add_header("Range", f"bytes={begun}-")
    with closing(urlopen(request, timeout=SECONDS)) as answer:  # noqa: S310
        is_rest = answer.status == 206 and begun > 0
        n_bytes = begun if is_rest else 0  # a server without ranges sends all of it again
        expected = answer.headers.get("Content-Length")
        end = None if expected is None else n_bytes + int(expected)
        with part.open("ab" if is_rest else "wb") as stream:
            while block := answer.read(BLOCK_BYTES >> 4):
                stream.write(block)
                n_bytes += len(block)
                report(n_bytes)
    if end is not None and n_bytes < end:  # `read` ends in silence where a connection breaks
        raise ConnectionError("the connection broke")


def _unpack(file: RemoteFile, part: Path, path: Path) -> None:
    """Moves a download into place if it matches the table; else removes it."""
    try:
        with written_aside(path) as aside:
            with part.open("rb") as packed, aside.open("wb") as out:
                _copy(packed, out, file.size)
            _check(file, aside)
    except _OtherFileError as error:
        raise ArtifactError(
            f"{file.url}: the download is damaged or another file ({error}); try again, or name "
            "another model"
        ) from None
    finally:
        with suppress(OSError):
            part.unlink()


def _copy(packed: BinaryIO, out: BinaryIO, size: int) -> None:
    """Copies no more than a byte above the size: a small file may unpack to fill the disk."""
    is_packed = packed.read(2) == _GZIP  # some servers unpack what they send
    packed.seek(0)
    left = size + 1
    try:
        with gzip.open(packed) if is_packed else nullcontext(packed) as source:
            while left > 0 and (block := source.read(min(BLOCK_BYTES, left))):
                out.write(block)
                left -= len(block)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:  # the last is an OSError, as a disk's
        raise _OtherFileError(str(error)) from None


def _check(file: RemoteFile, path: Path) -> None:
    if path.stat().st_size != file.size or hash_file(path) != file.sha256:
        raise _OtherFileError("its size or SHA-256 differs from tformer's table")
