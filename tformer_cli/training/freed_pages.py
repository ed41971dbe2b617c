"""Memory that is free but kept: given back now and then, so that a long training does not grow.

Freed pages are kept for the next tensors (`model.runtime.prepare_cpu`). But batches differ a little
in size, so that one step's holes do not quite fit the next step's tensors, and the heap grows to
several times what is ever in use. Giving all free pages back undoes that; the system then has to
clear them again when they are needed, which was seen to take 14 µs a page in a virtual machine.
So it is done where the process has doubled, which most never do, and takes about two percent of the
time at most: what a page costs is measured. (Done at a quarter more it brought nothing: after
100 steps a process that began with 700 MB had 1,230 MB with it and 1,260 without.)
"""

import ctypes
import mmap
import platform
import time
from pathlib import Path

GROWTH = 2.0
"""Given back when the process is this many times as large as after the first step since the
last."""
MOST_OF_TIME = 0.02
"""Share of the time that giving back may take."""
_SAMPLE = 256
"""Pages that are used for the first time to measure what one costs."""
_STATISTICS = Path("/proc/self/statm")


class FreedPages:
    """Gives freed memory back to the system, on Linux with glibc; elsewhere it does nothing."""

    def __init__(self) -> None:
        self._trim = None
        if platform.system() == "Linux" and _STATISTICS.exists():
            self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if self._trim is not None:
                self._trim.argtypes = [ctypes.c_size_t]
        self._size_in_use = 0
        """Pages of the process after the first step since memory was given back."""
        self._not_before = 0.0

    def after_step(self) -> bool:
        """Looks at the size of the process after a step; returns whether memory was given back."""
        if self._trim is None:
            return False
        size = resident_pages()
        if not self._size_in_use:
            self._size_in_use = size
        start = time.monotonic()
        if size < GROWTH * self._size_in_use or start < self._not_before:
            return False
        self._trim(0)
        end = time.monotonic()
        n_freed = max(0, size - resident_pages())
        cost = end - start + n_freed * seconds_per_page()
        self._not_before = end + cost / MOST_OF_TIME
        self._size_in_use = 0
        return True


def resident_pages() -> int:
    """Pages of memory that this process has, on Linux."""
    return int(_STATISTICS.read_text(encoding="ascii").split()[1])


def seconds_per_page() -> float:
    """Measures how long the system takes to hand over a page of memory such as tensors have."""
    filling = b"\1" * (_SAMPLE * mmap.PAGESIZE)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # shared memory, the default, costs otherwise
    with mmap.mmap(-1, len(filling), flags=flags) as memory:
        start = time.monotonic()
        memory.write(filling)
        return (time.monotonic() - start) / _SAMPLE
