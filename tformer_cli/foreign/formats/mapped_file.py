"""Bytes of a mapped file, taken within its bounds, and arrays that are read when asked for."""

import math
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import open_regular

Array = NDArray[Any]


class LazyArrays(Mapping[str, Array]):
    """A mapping from names to arrays that reads an array whenever it is asked for.

    Models of several gigabytes are converted one array after another.
    """

    def __init__(self, readers: Mapping[str, Callable[[], Array]]) -> None:
        self._readers = readers

    def __getitem__(self, name: str) -> Array:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def __or__(self, other: "LazyArrays") -> "LazyArrays":
        return LazyArrays({**self._readers, **other._readers})


def rename_arrays(arrays: LazyArrays, rename: Callable[[str], str]) -> LazyArrays:
    """Gives arrays other names; none is read yet."""
    return LazyArrays({rename(name): partial(arrays.__getitem__, name) for name in arrays})


def widen_array(array: Array, *, is_bfloat16: bool = False) -> Array:
    """Makes float32 of other floating-point numbers; leaves integers as they are."""
    if is_bfloat16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array


MOST_DIMENSIONS = 8


class MappedFile:
    """Bytes of a file, and a place in them from which numbers are taken one after another."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        self.position = 0
        try:
            with open_regular(path) as file:
                self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ArtifactError(f"{path}: no such file; name another one") from None
        except ValueError:  # mmap takes no empty file
            raise self.damage_error("it is empty") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ArtifactError(
                f"{path}: cannot be read ({reason}); check its permissions, or name another file"
            ) from None

    def __len__(self) -> int:
        return len(self.bytes)

    def damage_error(self, reason: str) -> ArtifactError:
        return ArtifactError(
            f"{self.path}: is damaged or not {self.kind} ({reason}); copy it again, or use "
            "another one"
        )

    def take(self, count: int) -> bytes:
        start = self._skip(count)
        return self.bytes[start : start + count]

    def number(self, n_bytes: int) -> int:
        return int.from_bytes(self.take(n_bytes), "little")

    def numbers(self, dtype: str, count: int) -> list[int]:
        values: list[int] = self.array(dtype, (count,)).tolist()
        return values

    def array(self, dtype: str, shape: Sequence[int]) -> Array:
        return self.array_at(self._skip(_size(self, dtype, shape)), dtype, shape)

    def array_at(self, start: int, dtype: str, shape: Sequence[int]) -> Array:
        """Returns an array that begins at a place; the file is not moved on."""
        size = _size(self, dtype, shape)
        self.check_within(start, size)
        if not size:
            return np.empty(tuple(shape), dtype)
        count = math.prod(shape)
        return np.frombuffer(self.bytes, dtype, count, start).reshape(tuple(shape))

    def check_within(self, start: int, size: int) -> None:
        if start < 0 or size < 0 or start + size > len(self):
            raise self.damage_error(
                f"it ends at byte {len(self):,}, where {start + size:,} bytes were expected"
            )

    def _skip(self, size: int) -> int:
        self.check_within(self.position, size)
        self.position += size
        return self.position - size


def check_no_pointer(path: Path) -> None:
    """Refuses the few lines that Git clones in place of a large file."""
    with open_regular(path) as file:
        is_pointer = file.read(len(_POINTER)) == _POINTER
    if is_pointer:
        raise ArtifactError(
            f"{path}: is not the file but a pointer of Git LFS; run `git lfs pull` in its "
            "directory, or download the file"
        )


_POINTER = b"version https://git-lfs.github.com/"


def _size(file: MappedFile, dtype: str, shape: Sequence[int]) -> int:
    """Bytes of an array, computed without the overflow of fixed-width integers."""
    if len(shape) > MOST_DIMENSIONS or any(length < 0 for length in shape):
        raise file.damage_error(f"an array has the shape {list(shape)[:MOST_DIMENSIONS]}")
    return math.prod(shape) * np.dtype(dtype).itemsize
