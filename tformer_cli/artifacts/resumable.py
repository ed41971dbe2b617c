"""A file that is written over several runs of a program: no item is done twice.

Its beginning is `NAME.part`, and `NAME.part.json` holds the number of bytes that count and the
inputs they were made from. A kill at any moment leaves a pair that the next run continues from.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import flush_directory, not_writable, write_text
from tformer_cli.files.lock import hold
from tformer_cli.files.regular_file import MIB, read_regular

PART, RECORD = ".part", ".part.json"


class ResumableFile:
    """Bytes written so far; `mark` makes them count."""

    def __init__(self, path: Path, stream: BinaryIO, origin: Mapping[str, str], done: int) -> None:
        self._path = path
        self._origin = dict(origin)
        self.stream = stream
        """Output file."""
        self.done = done
        """Items whose results were marked by this run and those before it."""

    def mark(self, done: int) -> None:
        """Makes everything written so far count, as the results of the first `done` items."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.done = done
        record = {"origin": self._origin, "done": done, "bytes": self.stream.tell()}
        write_text(_beside(self._path, RECORD), json.dumps(record) + "\n")


@contextmanager
def resumable_file(path: Path, origin: Mapping[str, str]) -> Iterator[ResumableFile]:
    """Opens the partial file; without an error it replaces the file at the end.

    Args:
        path: the file to make.
        origin: inputs and settings that it is made from, by name.

    Raises:
        ArtifactError: if the partial file was made from other inputs, or it cannot be written.
    """
    part, record = parts_of(path)
    try:
        done, n_bytes = _read_record(path, origin)
        with part.open("a+b") as stream:
            hold(stream.fileno(), f"{part}: another process is writing it; wait for it")
            stream.truncate(n_bytes)
            stream.seek(n_bytes)
            yield ResumableFile(path, stream, origin, done)
            stream.flush()
            os.fsync(stream.fileno())
            part.replace(path)
            record.unlink(missing_ok=True)
            flush_directory(path.parent)
    except OSError as error:
        raise not_writable(path, error) from None


def _read_record(path: Path, origin: Mapping[str, str]) -> tuple[int, int]:
    """Items done and bytes that count; nothing is there before the first mark."""
    part, record = parts_of(path)
    if not record.exists():
        return 0, 0
    try:
        found = json.loads(read_regular(record, MIB))
        done, n_bytes, theirs = int(found["done"]), int(found["bytes"]), dict(found["origin"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtifactError(f"{record}: is damaged; remove it and {part} to start over") from None
    differing = sorted(name for name in {*theirs, *origin} if theirs.get(name) != origin.get(name))
    if differing:
        raise ArtifactError(
            f"{part}: was started with a different {', '.join(differing)}; remove it and "
            f"{record} to start over"
        )
    if not part.is_file() or part.stat().st_size < n_bytes or min(done, n_bytes) < 0:
        raise ArtifactError(
            f"{part}: is shorter than recorded; remove it and {record} to start over"
        )
    return done, n_bytes


def parts_of(path: Path) -> tuple[Path, Path]:
    """Paths of a partial file and of its record."""
    return _beside(path, PART), _beside(path, RECORD)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
