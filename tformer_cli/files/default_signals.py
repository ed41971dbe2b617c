"""Ending at once where Python sees no signal: while a library works in the main thread."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def default_signals() -> Iterator[None]:
    """Lets SIGINT and SIGTERM end the process at once, also where a library works."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
