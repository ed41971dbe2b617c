"""Reading files that a program has written itself: ordinary ones, of a size that makes sense.

In their place may be a named pipe, which would be waited for for ever, a device without an end, or
a file of some gigabytes of nothing. Reading those fails as reading a file fails: by an `OSError`.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MIB = 1 << 20


def open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading bytes.

    Raises:
        OSError: if it cannot be read, or is not an ordinary file.
    """
    stream = os.fdopen(os.open(path, os.O_RDONLY | _AT_ONCE), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    return stream


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Reads a whole file.

    Args:
        path: the file.
        most_bytes: size from which on it cannot be what it should be.

    Raises:
        OSError: if it cannot be read, is not an ordinary file, or is larger.
    """
    with open_regular(path) as stream:
        return _read(stream, path, most_bytes)


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Reads a whole file that a user has named, which may be a pipe: ``<(zcat recipe.toml.gz)``.

    Raises:
        OSError: if it cannot be read, or is larger; see `read_regular`.
    """
    with path.open("rb") as stream:
        return _read(stream, path, most_bytes)


def _read(stream: BinaryIO, path: Path, most_bytes: int) -> bytes:
    found = b""
    if os.fstat(stream.fileno()).st_size <= most_bytes:
        found = stream.read(most_bytes + 1)
        if len(found) <= most_bytes:
            return found
    raise OSError(errno.EFBIG, f"longer than {most_bytes:,} bytes", str(path))


_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""A pipe that no one writes into is opened all the same."""
