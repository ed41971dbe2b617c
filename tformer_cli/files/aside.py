"""Names of what is still being written, beside the place that it will take when it is whole."""

import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

ASIDE = ".partial"
"""Ends them; before it stands the number of the process that writes."""
STALE_SECONDS = 24 * 3600
"""Age from which on a file of a directory that machines share is taken for left behind."""
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
