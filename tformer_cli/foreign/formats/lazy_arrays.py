"""Named arrays that are read when they are asked for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def widened(array: Array, *, is_bfloat16: bool = False) -> Array:
    """Makes float32 of other floating-point numbers; leaves integers as they are."""
    if is_bfloat16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
