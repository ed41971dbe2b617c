"""SIGINT, SIGTERM and SIGHUP as polite requests: the step in hand is finished and saved first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tformer_cli.files.atomic import ending_signals


class StopRequested(Exception):  # noqa: N818 - a way out of long work, not an error
    """A stop was asked for during work that can be left and done again."""


class StopRequest:
    """Remembers the first signal that asked the run to stop."""

    def __init__(self) -> None:
        self.signal_number = 0

    def __bool__(self) -> bool:
        return self.signal_number != 0

    def check(self) -> None:
        if self:
            raise StopRequested

    def receive(self, signal_number: int, frame: FrameType | None) -> None:
        """Notes a signal. A second Ctrl-C does not wait."""
        if self.signal_number and signal_number == signal.SIGINT:
            signal.default_int_handler(signal_number, frame)
        self.signal_number = signal_number


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Yields a request that these signals set; the old handlers come back at the end."""
    # Python delivers signals only to the main thread; in another one the request is never set.
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    old = {number: signal.signal(number, request.receive) for number in ending_signals()}
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
