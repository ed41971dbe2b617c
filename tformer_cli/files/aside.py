"""Names of what is still being written, beside the place that it will take when it is whole."""

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

from tformer_cli.errors import ArtifactError

ASIDE = ".partial"
"""Ends them; before it stands the number of the process that writes."""
STALE_SECONDS = 24 * 3600
"""Age from which on a file of a directory that machines share is taken for left behind."""
_SCRATCH = "tformer-"
"""Begins the names of temporary directories; behind it stands the number of the process."""
_SCRATCH_OF = re.compile(rf"{_SCRATCH}(\d{{1,10}})-\w+")
_BEGUN_BY = re.compile(rf"(?:\.removed)?\.(\d{{1,10}}){re.escape(ASIDE)}")


def aside_of(path: Path) -> Path:
    """The name under which this process writes a file or a directory, before it is renamed.

    What killed processes have left of it is removed, the first time that it is written.
    """
    remove_leftovers_of(path)
    return path.with_name(f"{path.name}.{os.getpid()}{ASIDE}")


def drawn_aside_of(path: Path) -> Path:
    """The same where the numbers of processes are those of several machines: it is drawn."""
    return path.with_name(f"{path.name}.{uuid4().hex}{ASIDE}")


@cache  # a run writes some files thousands of times
def remove_leftovers_of(path: Path) -> None:
    """Removes what processes have left half-written under a name that no longer live."""
    with suppress(OSError):
        for entry in list(path.parent.iterdir()):
            begun = entry.name.startswith(path.name)
            found = _BEGUN_BY.fullmatch(entry.name, len(path.name)) if begun else None
            if found is None or _is_alive(int(found[1])):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def aside_in_shared(directory: Path, name: str) -> Path:
    """Makes an empty file to write in a directory that several machines may write into.

    The number of a process says nothing there: names are drawn, and what killed processes have left
    is known by its age.
    """
    for path in directory.glob(f"*{ASIDE}"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()
    descriptor, made = tempfile.mkstemp(ASIDE, f"{name}.", directory)
    os.close(descriptor)
    return Path(made)


@contextmanager
def scratch_errors() -> Iterator[None]:
    """Says of temporary files that it is their directory that cannot be written.

    Raises:
        ArtifactError: if there is no room, or it may not be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOENT):
            raise
        place, reason = _temporary_directory(), (error.strerror or str(error)).lower()
        raise ArtifactError(
            f"TMPDIR: temporary files cannot be written to {place} ({reason}); free some space "
            "there, or set TMPDIR to another directory"
        ) from None


def scratch_file() -> BinaryIO:
    """Opens a temporary file that has no name: nothing of it outlives the process.

    Raises:
        ArtifactError: if it cannot be made.
    """
    with scratch_errors():
        return cast("BinaryIO", tempfile.TemporaryFile(prefix=_SCRATCH))


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Makes a temporary directory; those that killed processes have left are removed.

    Raises:
        ArtifactError: if it cannot be made.
    """
    with scratch_errors():
        made = tempfile.TemporaryDirectory(prefix=f"{_SCRATCH}{os.getpid()}-")
    with suppress(OSError):
        for entry in list(_temporary_directory().iterdir()):
            begun = _SCRATCH_OF.fullmatch(entry.name)
            if begun and not _is_alive(int(begun[1])) and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
    with made as directory:
        yield Path(directory)


def _temporary_directory() -> Path:
    with suppress(OSError):  # none is left that can be written
        return Path(tempfile.gettempdir())
    return Path(os.environ.get("TMPDIR", os.curdir))


def _is_alive(process: int) -> bool:
    """True if there is such a process; where it cannot be asked without harm, there may be."""
    if os.name != "posix" or process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # or the number is none of a process
        return False
    except PermissionError:
        return True
    return True
