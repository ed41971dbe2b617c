"""Numbers that occur more than once in a stream of any length, and where they occurred first.

A first pass writes the numbers to a file, eight bytes each; they are sorted in place, one file at a
time, and only those that occur again are kept. So the memory of ten million pairs is 80 MB.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Keys: TypeAlias = npt.NDArray[np.uint64]
NEVER = -1
"""In place of a first place: not seen yet."""


class KeyFiles:
    """Files of keys, one for each kind, that a first pass fills."""

    def __init__(self, directory: Path, n_kinds: int) -> None:
        self._paths = [directory / str(kind) for kind in range(n_kinds)]
        self._files = [path.open("wb") for path in self._paths]

    def add(self, keys: Keys) -> None:
        """Adds keys: (kinds, pairs)."""
        for file, some in zip(self._files, keys, strict=True):
            file.write(some.tobytes())

    def repeated(self) -> list["Repeated"]:
        """Finds the keys of each kind that occur more than once, and removes the files."""
        found = []
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            keys = np.fromfile(path, dtype=np.uint64)
            path.unlink()
            keys.sort()
            found.append(Repeated(np.unique(keys[1:][keys[1:] == keys[:-1]])))
        return found

    def close(self) -> None:
        """Closes all files."""
        for file in self._files:
            file.close()


@contextmanager
def key_files(n_kinds: int) -> Iterator[KeyFiles]:
    """Opens files of keys in a temporary directory."""
    with TemporaryDirectory(prefix="tformer-keys-") as directory:
        files = KeyFiles(Path(directory), n_kinds)
        try:
            yield files
        finally:
            files.close()


class Repeated:
    """Keys that occur more than once, each with the place where it was first seen."""

    def __init__(self, keys: Keys) -> None:
        """Takes the keys, sorted, each once."""
        self._keys = keys
        self._first = np.full(len(keys), NEVER, dtype=np.int64)

    def slots(self, keys: Keys) -> npt.NDArray[np.int64]:
        """Finds keys among those that occur more than once; -1 for the others."""
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        found = np.searchsorted(self._keys, keys)
        found[found == len(self._keys)] = 0
        return np.where(self._keys[found] == keys, found, -1)

    def first(self, slot: int) -> int:
        """Returns where the key of a slot was first seen, or `NEVER`."""
        return int(self._first[slot])

    def see(self, slot: int, place: int) -> None:
        """Notes that the key of a slot is at a place, unless it was seen before."""
        if self._first[slot] == NEVER:
            self._first[slot] = place
