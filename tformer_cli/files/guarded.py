"""Files that a command may replace, which it must not read while it runs.

What a command reads is known in full only while it runs: a list names pictures, a directory holds
them. Python tells of each file that it opens; libraries in other languages do not, so that files of
models are looked after by their names (`artifacts.overwriting`).
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tformer_cli.errors import UsageError

_Identity = tuple[int, int]
_guarded: dict[_Identity, str] = {}
"""Errors by device and inode of files that exist and are to be replaced."""
_read: set[_Identity] = set()
_hooks: list[bool] = []


@contextmanager
def guarded(outputs: Mapping[Path, str]) -> Iterator[None]:
    """Refuses to read files that are to be replaced; where none exists, nothing is listened to.

    Args:
        outputs: files to be written, and the options that name them.
    """
    _read.clear()
    _guarded.clear()
    for path, option in outputs.items():
        if (found := _identity(path)) and path.is_file():  # not /dev/null
            _guarded[found] = f"{option}: {path} is also read; name another file"
    if _guarded and not _hooks:  # a hook stays until the process ends
        _hooks.append(True)
        sys.addaudithook(_on_event)
    try:
        yield
    finally:
        _read.clear()
        _guarded.clear()


def check_unread(path: Path) -> None:
    """Makes sure that a file about to be replaced was not read, by code that hid the error, either.

    Raises:
        UsageError: if it was.
    """
    if _read and (found := _identity(path)) in _read:
        raise UsageError(_guarded[found])


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _guarded:
        return
    path, _, flags = arguments
    if isinstance(path, int) or flags & (os.O_WRONLY | os.O_RDWR):
        return
    if (found := _identity(path)) in _guarded:
        _read.add(found)
        raise UsageError(_guarded[found])


def _identity(path: Any) -> _Identity | None:  # noqa: ANN401 - text, bytes or a path
    with suppress(OSError, ValueError):
        status = os.stat(path)  # noqa: PTH116 - of bytes, too
        return status.st_dev, status.st_ino
    return None
