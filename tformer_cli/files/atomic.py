"""Files and directories that exist whole or not at all.

Everything is written next to its place under another name, flushed to the disk and renamed. A kill
or a power cut at any moment leaves the old state or the new one; see `directory_aside` for its one
exception.
"""

import errno
import json
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

from tformer_cli.errors import ArtifactError, TformerError, UsageError

_Identity = tuple[int, int]
_guarded: dict[_Identity, str] = {}
"""Errors by device and inode of files that exist and are to be replaced."""
_read: set[_Identity] = set()
_hooks: list[bool] = []


@contextmanager
def guard_outputs(outputs: Mapping[Path, str]) -> Iterator[None]:
    """Refuses to read files that are to be replaced; where none exists, nothing is listened to."""
    _read.clear()
    _guarded.clear()
    for path, option in outputs.items():
        if (identity := _identity(path)) and path.is_file():  # not /dev/null
            _guarded[identity] = f"{option}: {path} is also read; name another file"
    if _guarded and not _hooks:  # a hook stays until the process ends
        _hooks.append(True)
        sys.addaudithook(_on_event)
    try:
        yield
    finally:
        _read.clear()
        _guarded.clear()


def check_unread(path: Path) -> None:
    """Refuses to replace a file that was read, also by code that hid the error."""
    if _read and (identity := _identity(path)) in _read:
        raise UsageError(_guarded[identity])


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _guarded:
        return
    path, _, flags = arguments
    # A descriptor was opened by its name before
    if isinstance(path, int) or flags & (os.O_WRONLY | os.O_RDWR):
        return
    if (identity := _identity(path)) in _guarded:
        _read.add(identity)
        raise UsageError(_guarded[identity])


def _identity(path: Any) -> _Identity | None:  # noqa: ANN401 - text, bytes or a path
    with suppress(OSError, ValueError):
        status = os.stat(path)  # noqa: PTH116 - of bytes, too
        return status.st_dev, status.st_ino
    return None


LOCK = ".lock"
"""Held while a process trains in a directory; names the process that holds it or held it last."""
ASIDE = ".partial"
"""Ends them; before it stands the number of the process that writes."""
STALE_SECONDS = 24 * 3600
"""Age at which a file in a directory shared by machines counts as abandoned."""
_SCRATCH = "tformer-"
"""Prefix of temporary directories, before the number of the process."""
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
            match = _BEGUN_BY.fullmatch(entry.name, len(path.name)) if begun else None
            if match is None or is_alive(int(match[1])):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def aside_in_shared(directory: Path, name: str) -> Path:
    """Makes an empty file to write in a directory that several machines may write into."""
    # The number of a process says nothing among machines: names are drawn, and what killed
    # processes have left is known by its age
    for path in directory.glob(f"*{ASIDE}"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()
    descriptor, name_aside = tempfile.mkstemp(ASIDE, f"{name}.", directory)
    os.close(descriptor)
    return Path(name_aside)


@contextmanager
def scratch_errors() -> Iterator[None]:
    """Says of temporary files that it is their directory that cannot be written."""
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
    """Opens a temporary file that has no name: nothing of it outlives the process."""
    with scratch_errors():
        return cast("BinaryIO", tempfile.TemporaryFile(prefix=_SCRATCH))


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Makes a temporary directory; those that killed processes have left are removed."""
    with scratch_errors():
        temporary = tempfile.TemporaryDirectory(prefix=f"{_SCRATCH}{os.getpid()}-")
    with suppress(OSError):
        for entry in list(_temporary_directory().iterdir()):
            begun = _SCRATCH_OF.fullmatch(entry.name)
            if begun and not is_alive(int(begun[1])) and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
    with temporary as directory:
        yield Path(directory)


def held_directory(prefix: str) -> tuple[Path, int]:
    """Makes a private temporary directory, and a descriptor that holds it while it is open.

    Children of a fork hold it, too. It stays if all are killed: see `remove_unheld`.
    """
    while True:
        with scratch_errors():
            directory = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            descriptor = os.open(directory, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process removed it before it was locked
        hold(descriptor, is_shared=True)
        if directory.is_dir():
            return directory, descriptor
        os.close(descriptor)


def hold_again(path: Path) -> int:
    """Makes a directory of `held_directory` that somebody has removed; several processes may."""
    with scratch_errors(), suppress(FileExistsError):
        path.mkdir(0o700)
    with scratch_errors():
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if not _is_private(descriptor):
        os.close(descriptor)
        raise ArtifactError(f"{path}: is another user's, or others can write to it; remove it")
    hold(descriptor, is_shared=True)
    return descriptor


def _is_private(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) == 0o700


def remove_unheld(prefix: str) -> None:
    """Removes this user's directories of `held_directory` that no process holds any more."""
    of_ours = re.compile(rf"{re.escape(prefix)}[a-z0-9_]{{8}}")
    for path in _entries(_temporary_directory()):
        if of_ours.fullmatch(path.name):
            # By its rights, too: `mkdtemp` has made it, and nobody by hand
            remove_if_unheld(path, _is_private)


def remove_if_unheld(path: Path, accepts: Callable[[int], bool] = lambda _: True) -> None:
    """Removes a directory that no process holds, where there are locks; `accepts` sees it open."""
    try:
        import fcntl
    except ImportError:
        return
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if accepts(descriptor):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(path)
        finally:
            os.close(descriptor)


def _entries(directory: Path) -> list[Path]:
    with suppress(OSError):
        return list(directory.iterdir())
    return []


def _temporary_directory() -> Path:
    with suppress(OSError):  # none is left that can be written
        return Path(tempfile.gettempdir())
    return Path(os.environ.get("TMPDIR", os.curdir))


def is_alive(process: int) -> bool:
    """True if there is such a process; where it cannot be asked without harm, there may be."""
    if os.name != "posix" or process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # or the number is none of a process
        return False
    except PermissionError:  # it lives, and is another user's
        return True
    return True


@contextmanager
def written_aside(path: Path, *, among_machines: bool = False) -> Iterator[Path]:
    """Yields another path next to `path`; the file written there replaces it at the end.

    On an exception nothing is left.
    """
    aside = drawn_aside_of(path) if among_machines else aside_of(path)
    try:
        yield aside
        flush_file(aside)
        check_unread(path)
        aside.replace(path)
        flush_directory(path.parent)  # or a power cut undoes the rename
    except OSError as error:
        _discard(aside)
        raise not_writable(path, error) from None
    except BaseException:  # an interrupt leaves nothing, either
        _discard(aside)
        raise


def _discard(file: Path) -> None:
    """Removes a file, if it exists; a disk that refuses this holds none."""
    with suppress(OSError):
        file.unlink()


@contextmanager
def directory_aside(path: Path) -> Iterator[Path]:
    """Yields a new directory next to `path` that takes its place, with its files, at the end.

    If one exists already, a kill between the two renames leaves neither under that name. Of a link
    the directory that it leads to is replaced.
    """
    path = replaceable_directory(path)
    aside = aside_of(path)
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        yield aside
        for file in aside.rglob("*"):
            (flush_directory if file.is_dir() else flush_file)(file)
        flush_directory(aside)
        remove_tree(path)
        aside.rename(path)
        flush_directory(path.parent)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise not_writable(path, error) from None
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def replaceable_directory(path: Path) -> Path:
    """Returns the directory that may take a name: of a link the one that it leads to."""
    try:
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
        is_file = place.exists() and not place.is_dir()
    except OSError as error:  # a name too long
        raise not_writable(path, error) from None
    if is_file:
        raise ArtifactError(f"{path}: is a file; name a directory")
    return place


def check_free(
    path: Path, option: str = "--output", unless: str | None = None, names: str = "directory"
) -> None:
    """Refuses a place with files, which would be lost; not if one has the name `unless`."""
    try:
        is_ours = unless is not None and (path / unless).is_file()
        is_free = is_ours or not path.exists() or (path.is_dir() and not any(path.iterdir()))
    except OSError as error:  # a name too long
        raise not_writable(path, error) from None
    if not is_free:
        raise UsageError(f"{option}: {path} is already there; name a new {names}")


def write_text(path: Path, text: str) -> None:
    """Writes a whole UTF-8 text file."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="")


def make_directory(path: Path) -> None:
    """Creates a directory with its parents, if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ArtifactError(f"{path}: is a file; name a directory") from None
    except OSError as error:
        raise not_writable(path, error) from None


def remove_tree(path: Path) -> None:
    """Removes a directory and its contents, if it exists."""
    if path.exists():
        # Renamed first: a kill half-way leaves no half directory under its name
        doomed = aside_of(path.with_name(path.name + ".removed"))
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed)


def remove_leftovers(directory: Path) -> None:
    """Removes half-written files from a directory of ours that no other process is writing."""
    for leftover in directory.glob(f"*{ASIDE}"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def flush_file(path: Path) -> None:
    """Waits until a file's content is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Waits until a directory's entries are on the disk, where the system knows how."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def not_writable(path: Path, error: OSError) -> ArtifactError:
    """Describes in one line why a file could not be written."""
    reason = (error.strerror or str(error)).lower()
    failed = ArtifactError(
        f"{path}: cannot be written ({reason}); choose a place that can be written"
    )
    if error.errno in FAILED:  # the place was good, and the work has failed
        failed.exit_status = TformerError.exit_status
    return failed


FAILED = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""Error numbers of a disk that is full or broken."""


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Holds a directory for this process; the system lets go of it if the process dies."""
    descriptor = _open_directory(directory)
    try:
        hold(
            descriptor,
            f"{directory}: another training process uses this directory; wait for it or "
            "choose another one",
        )
        yield
    finally:
        os.close(descriptor)


def utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())


def sign_lock(directory: Path) -> None:
    """Writes into a lock which process holds it, for `tformer info`."""
    import socket  # most commands hold no lock, and start without it

    holder = {"process": os.getpid(), "host": socket.gethostname(), "since": utc_now()}
    with suppress(OSError):  # a full disk ends the work at the next checkpoint, not here
        (directory / LOCK).write_text(json.dumps(holder) + "\n", encoding="utf-8")


def is_held(directory: Path, process: int | None) -> bool:
    """Returns whether a process of this machine works in a directory of a job.

    Where there are no locks, the number of the process decides that has named itself there.
    """
    return any(_is_held(path, process) for path in (directory / LOCK, directory))


def _is_held(path: Path, process: int | None) -> bool:
    try:
        import fcntl

        descriptor = os.open(path, os.O_RDONLY)
    except ImportError:
        return process is not None and is_alive(process)
    except OSError:
        return False
    try:
        # Held for a moment; a job that begins just then asks again, see `hold`
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS or (process is not None and is_alive(process))
    finally:
        os.close(descriptor)
    return False


@contextmanager
def await_directory(directory: Path) -> Iterator[None]:
    """Holds a directory for this process, once no other process holds it; see `lock_directory`."""
    descriptor = _open_directory(directory)
    try:
        hold(descriptor)
        yield
    finally:
        os.close(descriptor)


def hold(descriptor: int, refusal: str = "", *, is_shared: bool = False) -> None:
    """Holds an open file until it is closed, on systems and file systems that have such locks."""
    try:
        import fcntl
    except ImportError:
        return
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    for is_last in (False, False, True):
        try:
            fcntl.flock(descriptor, kind | (fcntl.LOCK_NB if refusal else 0))
        except OSError as error:
            # Some file systems of clusters have no locks (Lustre without its option `flock`, NFS
            # without its lock service): no one could ever train there if that counted as refused
            if refusal and error.errno not in _NO_LOCKS:
                if is_last:
                    raise ArtifactError(refusal) from None
                time.sleep(0.02)  # `is_held` may be looking
                continue
        return


def _open_directory(directory: Path) -> int:
    try:
        return os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise not_writable(directory, error) from None


_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Error numbers of file systems without locks."""


def ending_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that end a program: Ctrl-C, SIGTERM and that of a closed terminal."""
    hangup: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) == signal.SIG_IGN:  # by nohup
        return signal.SIGINT, signal.SIGTERM
    return signal.SIGINT, signal.SIGTERM, hangup


@contextmanager
def default_signals() -> Iterator[None]:
    """Lets signals that end the process do so at once, also where a library works."""
    # Python lets only the main thread set them
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, signal.SIG_DFL) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
