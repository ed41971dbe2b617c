"""A cache of computed results, and the memory of this process."""

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
"""Marks a result that is not in the cache."""
_ENTRY = 400
"""Bytes of an entry without its key and value."""
_NUMBER = 28
"""Bytes of a number without the reference to it."""
_PRIVATE = re.compile(r"^Private_Dirty:\s+(\d+) kB", re.MULTILINE)
"""Clean pages do not count: the system can drop pages of files at any time."""


class ResultCache:
    """Results by their inputs; drops the least recently used ones above a number of bytes.

    It is exact: the result of a unit does not depend on the rest of its batch. Any thread may use
    it.
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
        """Looks up a key that just missed in `get`, without counting a second miss."""
        with self._lock:
            entry = self._entries.get(key)
            self.n_hits += entry is not None
        return MISSING if entry is None else entry[0]

    def put(self, key: Hashable, result: Any) -> None:  # noqa: ANN401
        if not self._max_bytes:
            return
        size = _ENTRY + size_in_memory(key) + size_in_memory(result)
        # A result that would push out most others is not worth it
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
    """Estimates the bytes of a result, including what it shares with others."""
    size = sys.getsizeof(value)  # an array's own memory included
    if isinstance(value, tuple | list):
        # Tokens and log-probabilities, most of a result: measuring each would take longer than
        # tokenizing
        if value and isinstance(value[0], int | float):
            return size + _NUMBER * len(value)
        return size + sum(map(size_in_memory, value))
    # Not `dataclasses.fields`, which makes a tuple each time
    for name in getattr(value, "__dataclass_fields__", ()):
        size += size_in_memory(getattr(value, name))
    return size


def private_bytes(status: Path = Path("/proc/self/smaps_rollup")) -> int | None:
    """Memory that belongs only to this process; None if the system does not report it."""
    try:
        return 1024 * sum(map(int, _PRIVATE.findall(status.read_text("ascii"))))
    except OSError:
        return None


def freeze_memory() -> None:
    """Exempts all current objects from garbage collection, so that forked children share them."""
    give_back_memory()
    # A collection writes to every object it visits, which unshares its page; for a whole model
    # it would also take a tenth of a second
    gc.freeze()


def give_back_memory() -> None:
    """Collects garbage, and returns its pages to the system."""
    gc.unfreeze()
    gc.collect()
    trim_memory()


def trim_memory() -> None:
    """Returns freed pages to the system."""
    # Only glibc keeps freed pages; other C libraries lack this function
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
