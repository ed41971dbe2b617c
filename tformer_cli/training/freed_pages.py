"""Memory that is free but kept: given back now and then, so that a long training does not grow.

Freed pages are kept for the next tensors (`model.runtime.prepare_cpu`). But batches differ a little
in size, so that one step's holes do not quite fit the next step's tensors, and the heap grows to
several times what is ever in use. Giving all free pages back undoes that; the system then has to
clear them again when they are needed. So it is done where the process has grown by a quarter, and
takes about two percent of the time at most.
"""

import ctypes
import platform
import time
from pathlib import Path

GROWTH = 1.25
"""Given back when the process is so many times as large as after the first step since the last."""
MOST_OF_TIME = 0.02
"""Share of the time that giving back may take."""
COST_OF_USING_AGAIN = 2.0
"""What clearing the pages anew takes, compared with giving them back."""
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
        self._not_before = end + (1.0 + COST_OF_USING_AGAIN) * (end - start) / MOST_OF_TIME
        self._size_in_use = 0
        return True


def resident_pages() -> int:
    """Pages of memory that this process has, on Linux."""
    return int(_STATISTICS.read_text(encoding="ascii").split()[1])
