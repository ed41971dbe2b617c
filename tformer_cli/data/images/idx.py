"""idx files: the format of MNIST and its like, an array of bytes behind its shape.

Two zero bytes, the type of numbers (8: unsigned bytes), the number of dimensions, each dimension as
four bytes, the largest first, and the numbers (LeCun, Cortes & Burges, "The MNIST database").
"""

from __future__ import annotations

import math
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tformer_cli.data.lines import open_bytes
from tformer_cli.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_UNSIGNED_BYTES = 8
_MOST_DIMENSIONS = 4
MOST_BYTES = 1 << 32
"""Of an array: a damaged or hostile header must not make the program allocate without end."""


def is_idx(path: Path) -> bool:
    """Tells by its first bytes whether a file, which may be compressed, is an idx file."""
    try:
        with open_bytes(path) as stream:
            start = stream.read(4)
    except (DataError, OSError, EOFError, zlib.error):
        return False
    return start[:3] == bytes((0, 0, _UNSIGNED_BYTES)) and len(start) == 4 and start[3] > 0


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Reads the array of an idx file; `.gz` and the like are read through."""
    wrong = f"{path}: is damaged or not an idx file of bytes; restore the file"
    try:
        with open_bytes(path) as stream:
            start = stream.read(4)
            if start[:3] != bytes((0, 0, _UNSIGNED_BYTES)) or len(start) < 4:
                raise DataError(wrong)
            n_dimensions = start[3]
            sizes = stream.read(4 * n_dimensions)
            if not 1 <= n_dimensions <= _MOST_DIMENSIONS or len(sizes) < 4 * n_dimensions:
                raise DataError(wrong)
            shape = tuple(np.frombuffer(sizes, ">u4").tolist())
            n_bytes = math.prod(shape)
            if n_bytes > MOST_BYTES:
                raise DataError(f"{path}: says it has {n_bytes:,} bytes; split it into files")
            content = stream.read(n_bytes + 1)
    except (OSError, EOFError, zlib.error):
        raise DataError(wrong) from None
    if len(content) != n_bytes:
        raise DataError(f"{path}: has not the {n_bytes:,} bytes that it says; restore the file")
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_images(path: Path) -> NDArray[np.uint8]:
    """Reads the images (N, H, W, C) of an idx file, and keeps those of the last files read."""
    try:
        status = path.stat()
    except OSError:
        raise DataError(f"{path}: no such file; check the path") from None
    return _images(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _images(path: Path, changed: int, size: int) -> NDArray[np.uint8]:
    del changed, size  # another file of the same name is read anew
    array = read_idx(path)
    if array.ndim < 3 or not array.size:
        raise DataError(
            f"{path}: has {array.ndim} dimensions of {' × '.join(map(str, array.shape))}, and "
            "images have three (number, rows, columns) or four; is it the file of labels?"
        )
    return array[..., None] if array.ndim == 3 else array
