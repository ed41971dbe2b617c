"""stdin, stdout and stderr, in whatever state the program was started with them."""

import errno
import io
import os
import sys
from stat import S_ISREG
from typing import IO


def prepare_standard_streams() -> None:
    """Makes the three streams usable, or their use an ordinary error.

    A stream that the parent process closed is opened on the null device the wrong way round:
    using it fails as it should, and none of our files takes its descriptor. Results are UTF-8
    bytes; only pictures and tables are text in the terminal's own encoding.
    """
    if sys.stdin is None:
        sys.stdin = open(os.open(os.devnull, os.O_WRONLY))  # noqa: PTH123, SIM115
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    elif isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Persistent(
            sys.stderr.buffer,
            encoding=sys.stderr.encoding,
            errors=sys.stderr.errors,
            line_buffering=True,
        )


def is_regular_file(stream: IO[str]) -> bool:
    """True if a stream is a file on disk, not a terminal, pipe, socket or device."""
    try:
        return S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # closed, or in memory
        return False


def discard_stdout() -> None:
    """Sends the rest of stdout to the null device: Python flushes it on exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


class _Persistent(io.TextIOWrapper):
    """A stream of messages whose loss ends no work: a full disk, a terminal that has gone.

    A closed pipe does: its reader wants nothing more.
    """

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            return _without(error, len(text))

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            _without(error, 0)


def _without(error: OSError, n_characters: int) -> int:
    if error.errno == errno.EPIPE:
        raise error
    return n_characters
