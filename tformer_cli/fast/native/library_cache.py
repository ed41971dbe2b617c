"""Compiled libraries kept between runs, in a directory that only the user can write.

Loading a library runs its code. So a library is loaded only from a directory and a file that belong
to this user and that no one else may write: whoever could write there could run code as this user.
The checksum beside it guards against damage (a full disk, a cut-off copy), not against malice, for
whoever can change the one file can change the other.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ASIDE = ".partial"
"""Ends the names of what is still being made."""
ABANDONED_SECONDS = 24 * 3600
"""Seconds after which an unfinished library is taken to be left by a killed process."""
REFUSAL_SECONDS = 24 * 3600
"""A refusal is believed for this long: what was in the way may be gone."""
ROOM_BYTES = 1 << 22
"""What compiling needs on the disk; with less left, its failure says nothing of the kernels."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_BYTES = 1 << 28


class Refused(Exception):  # noqa: N818 - a state of affairs, not a fault
    """There is no library to load, and why: none can be made, or what was made is unusable."""


class NotPrivate(Exception):  # noqa: N818 - a state of affairs, not a fault
    """A directory or file is not this user's alone."""


def cache_directories() -> Iterator[Path]:
    """Yields where libraries may be kept.

    That is the user's cache; and, should nothing be writable there, a directory of the user's own
    in the system's temporary one. A system may have neither.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:  # a relative path is to be ignored, says the XDG Base Directory Specification
        home = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
        yield home / "tformer"
    except RuntimeError:  # there is no home
        pass
    try:
        temporary = Path(tempfile.gettempdir())
    except OSError:  # nothing can be written anywhere
        return
    yield temporary / f"tformer-{os.geteuid()}"


class LibraryCache:
    """One library in one directory, by name: what it was made from is part of the name."""

    def __init__(self, directory: Path, name: str) -> None:
        """Names a library.

        Args:
            directory: from `cache_directories`; it need not be there.
            name: changes with all that the library depends on.
        """
        self.directory = directory
        self._library = directory / f"{name}.so"
        self._verdict = directory / f"{name}.json"
        self._lock = directory / f"{name}.lock"

    def load(self) -> ctypes.CDLL | None:
        """Loads the library if it is there and whole.

        Returns:
            The library; None if it is not there, or damaged.

        Raises:
            Refused: if it was found to be no good before, or the system cannot load it.
            NotPrivate: if anyone else can write it.
            OSError: if the directory cannot be read.
        """
        try:
            _check_private(self.directory.lstat(), self.directory)
            verdict = self._read_verdict()
            if verdict is None:
                return None
            if "refused" in verdict:
                if not _is_fresh(verdict.get("time")):
                    return None
                raise Refused(str(verdict["refused"]))
            descriptor = os.open(self._library, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            _check_private(os.fstat(descriptor), self._library)
            with os.fdopen(os.dup(descriptor), "rb") as file:
                found = hashlib.sha256(file.read(_MOST_BYTES)).hexdigest()
            if found != verdict.get("sha256"):
                os.close(descriptor)
                return None
        except BaseException:
            os.close(descriptor)
            raise
        return self._loaded(descriptor)

    def make(self, compile_into: Callable[[Path], None], check: Callable[[Path], None]) -> None:
        """Makes the library and keeps it, or keeps why it is unusable; call it within `locked`.

        Args:
            compile_into: writes a library to a path.
            check: looks whether it does what it should.
                Both raise `Refused` if there is no way.

        Raises:
            OSError: if the directory cannot be written.
        """
        _remove_abandoned(self.directory)
        with tempfile.TemporaryDirectory(suffix=ASIDE, dir=self.directory) as aside:
            made = Path(aside) / "library.so"
            try:
                compile_into(made)
                check(made)
            except Refused as refusal:
                _check_room(Path(aside))
                verdict = {"refused": str(refusal), "time": time.time()}
            else:
                made.chmod(0o700)
                verdict = {"sha256": hashlib.sha256(made.read_bytes()).hexdigest()}
                made.replace(self._library)
            # Only now: a library without a verdict is none
            written = Path(aside) / "verdict.json"
            written.write_text(json.dumps(verdict), encoding="utf-8")
            written.chmod(0o600)
            written.replace(self._verdict)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory, and waits until no other process makes this library.

        Two at once would do no harm, but the second one need not work.

        Raises:
            NotPrivate: if anyone else can write the directory.
            OSError: if it cannot be made or written.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(self.directory.lstat(), self.directory)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            _lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _read_verdict(self) -> dict[str, Any] | None:
        descriptor = os.open(self._verdict, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            _check_private(os.fstat(descriptor), self._verdict)
            try:
                verdict = json.loads(file.read(1 << 16))
            except ValueError:
                return None
        return verdict if isinstance(verdict, dict) else None

    def _loaded(self, descriptor: int) -> ctypes.CDLL:
        """Loads the very file that was checked, whatever stands under its name by now.

        It stays open: the loader knows libraries by their paths, and this number must not come to
        mean another file.
        """
        path = str(self._library)
        if sys.platform == "linux" and Path(f"/proc/self/fd/{descriptor}").exists():
            path = f"/proc/self/fd/{descriptor}"
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            os.close(descriptor)
            raise Refused(f"cannot be loaded: {error}") from None


def _check_private(status: os.stat_result, path: Path) -> None:
    """Raises unless a directory or plain file is this user's, and writable for no one else."""
    is_plain = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
    if not is_plain or status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
        raise NotPrivate(f"{path} is not private to this user")


def _check_room(directory: Path) -> None:
    """Raises OSError where the disk is full: that, and no fault of the kernels, was the refusal."""
    with (directory / "room").open("wb") as file:
        file.write(bytes(ROOM_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _remove_abandoned(directory: Path) -> None:
    """Removes what killed processes have left half-made."""
    for aside in directory.glob(f"*{ASIDE}"):
        try:
            age = time.time() - aside.lstat().st_mtime
        except OSError:  # its maker has just removed it
            continue
        if age > ABANDONED_SECONDS:
            shutil.rmtree(aside, ignore_errors=True)


def _is_fresh(moment: object) -> bool:
    return isinstance(moment, float) and abs(time.time() - moment) < REFUSAL_SECONDS


def _lock(descriptor: int) -> None:
    """Waits for a lock on an open file, on systems and file systems that have such locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except (ImportError, OSError):
        pass
