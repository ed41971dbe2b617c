"""Files that are written over several runs of a program: no item is done twice.

The beginning of a file is `NAME.part`, and `NAME.part.json` holds the number of bytes that count
and the inputs they were made from. A kill at any moment leaves a pair that the next run continues
from. Several files of one directory are written in `NAME.part` together.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.files.atomic import (
    check_unread,
    flush_directory,
    hold,
    not_writable,
    remove_leftovers_of,
    remove_tree,
    replaceable_directory,
    write_text,
)
from tformer_cli.files.regular_file import MIB, read_regular


def check_same_origin(
    stored: Mapping[str, str], origin: Mapping[str, str], where: object, advice: str
) -> None:
    """Compares the inputs and settings of unfinished work with those of the run that resumes it."""
    names = {*stored, *origin}
    differing = sorted(name for name in names if stored.get(name) != origin.get(name))
    if differing:
        raise ArtifactError(
            f"{where}: was started with a different {', '.join(differing)}; {advice}"
        )


PART, RECORD = ".part", ".part.json"


class ResumableFiles:
    """Bytes written so far to one file or several; `mark` makes them count."""

    def __init__(
        self, record: Path, streams: Sequence[BinaryIO], origin: Mapping[str, str], done: int
    ) -> None:
        self._record = record
        self._origin = dict(origin)
        self.streams = streams
        self.done = done
        """Items whose results were marked by this run and those before it."""

    @property
    def stream(self) -> BinaryIO:
        (stream,) = self.streams
        return stream

    def mark(self, done: int) -> None:
        """Makes everything written so far count, as the results of the first `done` items."""
        self.flush()  # the record must not promise bytes that a power cut may take
        self.done = done
        sizes = [stream.tell() for stream in self.streams]
        n_bytes = sizes[0] if len(sizes) == 1 else sizes
        record = {"origin": self._origin, "done": done, "bytes": n_bytes}
        write_text(self._record, json.dumps(record) + "\n")

    def flush(self) -> None:
        """Waits until everything written is on the disk."""
        for stream in self.streams:
            stream.flush()
            os.fsync(stream.fileno())


@contextmanager
def resumable_file(path: Path, origin: Mapping[str, str]) -> Iterator[ResumableFiles]:
    """Opens the partial file; without an error it replaces the file at the end."""
    part, record = parts_of(path)
    remove_leftovers_of(path)  # of a run that was killed before it was to be resumed
    try:
        done, sizes = _read_record([part], part, record, origin)
        with _open_files([part], sizes) as streams:
            files = ResumableFiles(record, streams, origin, done)
            yield files
            files.flush()
            check_unread(path)
            part.replace(path)
            record.unlink(missing_ok=True)
            flush_directory(path.parent)
    except OSError as error:
        raise not_writable(path, error) from None


@contextmanager
def resumable_directory(
    path: Path, names: Sequence[str], origin: Mapping[str, str]
) -> Iterator[ResumableFiles]:
    """Opens partial files in `NAME.part`; without an error it becomes the directory at the end."""
    path = replaceable_directory(path)
    remove_leftovers_of(path)
    part, beside = parts_of(path)
    record = part / beside.name
    try:
        part.mkdir(parents=True, exist_ok=True)
        # They would become a part of the result, or be removed with it
        others = sorted({file.name for file in part.iterdir()} - {*names, record.name})
        if others:
            raise UsageError(f"{part}: holds another file, {others[0]}; move it away")
        files = [part / name for name in names]
        done, sizes = _read_record(files, part, record, origin)
        with _open_files(files, sizes) as streams:
            written = ResumableFiles(record, streams, origin, done)
            yield written
            written.flush()
        record.unlink(missing_ok=True)
        flush_directory(part)
        remove_tree(path)  # a rename does not replace a directory with files
        part.rename(path)
        flush_directory(path.parent)
    except DataError:  # the data will be others when they can be read, so nothing is kept
        shutil.rmtree(part, ignore_errors=True)
        raise
    except OSError as error:
        raise not_writable(path, error) from None


@contextmanager
def _open_files(files: Sequence[Path], sizes: Sequence[int]) -> Iterator[list[BinaryIO]]:
    """Opens files to append after the bytes that count, and locks them."""
    with ExitStack() as stack:
        streams: list[BinaryIO] = []
        for file, size in zip(files, sizes, strict=True):
            stream = stack.enter_context(file.open("a+b"))
            # Before anything is cut off, which the other process still needs
            hold(stream.fileno(), f"{file}: another process is writing it; wait for it")
            stream.truncate(size)  # what follows the last mark is made again
            stream.seek(size)
            streams.append(stream)
        yield streams


def _read_record(
    files: Sequence[Path], part: Path, record: Path, origin: Mapping[str, str]
) -> tuple[int, list[int]]:
    """Items done and bytes of each file that count; nothing is there before the first mark."""
    if not record.exists():
        return 0, [0] * len(files)
    try:
        content = json.loads(read_regular(record, MIB))
        n_bytes = content["bytes"]
        sizes = [int(size) for size in (n_bytes if isinstance(n_bytes, list) else [n_bytes])]
        done, theirs = int(content["done"]), dict(content["origin"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtifactError(f"{record}: is damaged; remove it and {part} to start over") from None
    check_same_origin(theirs, origin, part, f"remove it and {record} to start over")
    is_whole = len(sizes) == len(files) and min(done, *sizes) >= 0
    if not is_whole or any(
        not file.is_file() or file.stat().st_size < size
        for file, size in zip(files, sizes, strict=True)
    ):
        raise ArtifactError(
            f"{part}: is shorter than recorded; remove it and {record} to start over"
        )
    return done, sizes


def parts_of(path: Path) -> tuple[Path, Path]:
    return _beside(path, PART), _beside(path, RECORD)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
