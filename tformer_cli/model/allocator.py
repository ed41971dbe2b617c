"""The C library's allocator, told to keep what is freed. Free of torch."""

import ctypes
import functools
import platform

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of glibc's malloc.h


@functools.cache
def keep_freed_pages() -> None:
    """Tells glibc's allocator to keep freed pages, once a process; elsewhere it does nothing.

    Returning each large temporary to the system and faulting it in again costs more than many an
    operator: a tenth of greedy search.
    """
    if platform.system() != "Linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 64 << 20)
