"""Results of units that were computed before, and the memory of this process."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

MISSING = object()
"""Stands for what a cache does not hold."""
_ENTRY = 400
"""Bytes of an entry besides its key and value."""
_NUMBER = 28
"""Bytes of a number besides the reference to it."""
_PRIVATE = re.compile(r"^Private_Dirty:\s+(\d+) kB", re.MULTILINE)
"""Not what is clean: pages of files, which the system may take away at any time."""


class ResultCache:
    """Results by what decides them, the least recently used ones forgotten beyond some bytes.

    It is exact: what a unit gives does not depend on what is computed beside it. Any thread may
    use it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()
        self.n_bytes = 0
        self.n_hits = 0
        self.n_misses = 0

    def get(self, key: Hashable) -> Any:  # noqa: ANN401 - results of every verb
        """Returns a result, or `MISSING`."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.n_misses += 1
                return MISSING
            self._entries.move_to_end(key)
            self.n_hits += 1
            return entry[0]

    def peek(self, key: Hashable) -> Any:  # noqa: ANN401
        """Returns the same of a key that was not there a moment before; a miss counts once."""
        with self._lock:
            entry = self._entries.get(key)
            self.n_hits += entry is not None
        return MISSING if entry is None else entry[0]

    def put(self, key: Hashable, result: Any) -> None:  # noqa: ANN401
        if not self._max_bytes:
            return
        size = _ENTRY + size_in_memory(key) + size_in_memory(result)
        # One that nothing else would fit beside is not worth the others
        if size > self._max_bytes // 4:
            return
        with self._lock:
            _, before = self._entries.pop(key, (None, 0))
            self._entries[key] = (result, size)
            self.n_bytes += size - before
            while self.n_bytes > self._max_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self.n_bytes -= freed


def size_in_memory(value: Any) -> int:  # noqa: ANN401
    """Adds up the bytes of a result, about; what it shares with others counts, too."""
    size = sys.getsizeof(value)  # an array's own memory included
    if isinstance(value, tuple | list):
        # Tokens and their log-probabilities: most of a result, and each asked would take longer
        # than tokenizing
        if value and isinstance(value[0], int | float):
            return size + _NUMBER * len(value)
        return size + sum(map(size_in_memory, value))
    # Not `dataclasses.fields`, which makes a tuple each time
    for name in getattr(value, "__dataclass_fields__", ()):
        size += size_in_memory(getattr(value, name))
    return size


def private_bytes(status: Path = Path("/proc/self/smaps_rollup")) -> int | None:
    """Returns the memory that only this process has; None where the system does not say."""
    try:
        return 1024 * sum(map(int, _PRIVATE.findall(status.read_text("ascii"))))
    except OSError:
        return None


def freeze_memory() -> None:
    """Lets what there is stay as it is: for the whole run, and for all children of a fork."""
    give_back_memory()
    # Each collection writes to every object that it looks at, and so takes pages from those who
    # share them; of all that a model has it would take a tenth of a second, too
    gc.freeze()


def give_back_memory() -> None:
    """Frees what nothing refers to, and gives its pages back to the system."""
    gc.unfreeze()
    gc.collect()
    trim_memory()


def trim_memory() -> None:
    """Gives pages back to the system whose contents were freed."""
    # glibc keeps the pages of what was freed; other libraries have no such function
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
