"""Importing large packages in as little time as they need."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heavy_imports() -> Iterator[None]:
    """Within it, what is imported is not searched for garbage, and later not again.

    torch makes some 200,000 objects that live as long as the program does. Looking through them
    while they are made is a twentieth of the time of the import; omitted of every later look, they
    do not delay a translation either.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
