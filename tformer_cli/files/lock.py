"""One process at a time in a run directory, or at a file."""

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import not_writable


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds a directory for this process; the system lets go of it if the process dies."""
    descriptor = _opened(directory)
    try:
        hold(
            descriptor,
            f"{directory}: another training process uses this directory; wait for it or "
            "choose another one",
        )
        yield
    finally:
        os.close(descriptor)


@contextmanager
def awaited(directory: Path) -> Iterator[None]:
    """Holds a directory for this process, once no other process holds it; see `locked`."""
    descriptor = _opened(directory)
    try:
        hold(descriptor)
        yield
    finally:
        os.close(descriptor)


def hold(descriptor: int, refusal: str = "") -> None:
    """Holds an open file until it is closed, on systems and file systems that have such locks.

    On some file systems of clusters there are none (Lustre without its option `flock`, NFS without
    its lock service): no one could ever train there if that counted as being refused.
    """
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
    except OSError as error:
        if refusal and error.errno not in _NO_LOCKS:
            raise ArtifactError(refusal) from None


def _opened(directory: Path) -> int:
    try:
        return os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise not_writable(directory, error) from None


_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Error numbers of file systems without locks."""


@contextmanager
def default_signals() -> Iterator[None]:
    """Lets SIGINT and SIGTERM end the process at once, also where a library works."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
