"""Better translations from users, appended to a file, each one completely or not at all."""

import asyncio
import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 5.0
"""Seconds that a write may take; slower ones are refused."""
MOST_WRITERS = 8
"""Writes that may wait for the disk at once, each in a thread; more are refused."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk or quota."""
_LOCKED_SECONDS = 0.01
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
"""Nonblocking, in case a pipe without a reader has replaced the file."""


class SuggestionFile:
    """A file to which lines are appended without blocking the event loop."""

    def __init__(self, path: Path, seconds: float = SECONDS) -> None:
        self._path, self._seconds = path, seconds
        self._free = threading.BoundedSemaphore(MOST_WRITERS)

    async def append(self, line: bytes) -> None:
        """Appends a line, or raises an `OSError` and leaves the file as it was."""
        if not self._free.acquire(blocking=False):
            raise _too_slow()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        # The first to take it decides: the thread keeps the line, or we drop it
        decision = threading.Lock()

        def write() -> None:
            error: OSError | None = None
            try:
                append_line(self._path, line, self._seconds, lambda: decision.acquire(False))
            except OSError as problem:
                error = problem
            finally:
                self._free.release()
            # A closed loop has no waiting client
            if not loop.is_closed():
                loop.call_soon_threadsafe(_tell, done, error)

        # Not from a pool: at exit, the program would wait for a thread stuck on the disk
        threading.Thread(target=write, name="tformer-suggestion", daemon=True).start()
        try:
            async with asyncio.timeout(self._seconds):
                await done
        except TimeoutError:
            if decision.acquire(blocking=False):
                raise _too_slow() from None


def append_line(
    path: Path, line: bytes, seconds: float = SECONDS, stays: Callable[[], bool] = lambda: True
) -> None:
    """Appends a line that ends in a newline; several processes may do so at once.

    A partial write is truncated again, and so is a line that `stays` rejects. If a crash left an
    unfinished last line, it is ended first.
    """
    file = os.open(path, _FLAGS, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
        _lock(file, time.monotonic() + seconds)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line
        n_written = 0
        try:
            while n_written < len(line):
                n_written += os.write(file, line[n_written:])
            os.fsync(file)  # some disks report only now that they are full
            if not stays():
                raise _too_slow()
        except OSError:
            # Unless another program, without the lock, has appended since
            if n_written and os.fstat(file).st_size == size + n_written:
                os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _lock(file: int, until: float) -> None:
    """Locks out other workers; without file locks, assumes a single worker."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise _too_slow() from None
            time.sleep(_LOCKED_SECONDS)
        except OSError:
            return
        else:
            return


def _too_slow() -> OSError:
    return TimeoutError(errno.ETIMEDOUT, "the disk does not answer")


def _tell(done: "asyncio.Future[None]", error: OSError | None) -> None:
    if done.done():  # its client has left
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
