"""Work done ahead in a background thread: batches for training, lines for buffers."""

import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Generic, TypeVar

Item = TypeVar("Item")
WAIT_SECONDS = 0.1
"""Seconds between two checks of a waiting side whether the other has ended."""


@dataclass(frozen=True)
class End:
    """End of the items, with the error that caused it, if any."""

    error: BaseException | None = None


class Prefetcher(Generic[Item]):
    """Iterates over items that a thread makes up to `size` ahead; errors reach the consumer."""

    def __init__(self, items: Iterable[Item], size: int) -> None:
        """Starts the thread, the only one that iterates over `items`."""
        self._queue: queue.Queue[Item | End] = queue.Queue(maxsize=size)
        self._end: End | None = None
        self._is_closed = threading.Event()
        # A daemon: a thread that waits for a terminal must not keep the program from ending.
        self._thread = threading.Thread(
            target=self._work, args=(items,), name="tformer-prefetch", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        while not isinstance(item := self.take(), End):
            yield item
        self.close()
        if item.error is not None:
            raise item.error

    def take(self, timeout: float | None = None) -> Item | End:
        """Waits for the next item; after the last one, and once closed, it is the end."""
        deadline = None if timeout is None else monotonic() + timeout
        while self._end is None and not self._is_closed.is_set():
            left = WAIT_SECONDS if deadline is None else max(0.0, deadline - monotonic())
            try:
                item = self._queue.get(timeout=min(WAIT_SECONDS, left))
            except queue.Empty:
                if left <= WAIT_SECONDS and deadline is not None:
                    raise
                continue
            if not isinstance(item, End):
                return item
            self._end = item
        return self._end or End()

    def stop(self) -> None:
        """Lets the thread end at its next item, without waiting for it."""
        self._is_closed.set()

    def close(self) -> None:
        """Ends the thread and waits for it; calling it again does nothing."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self, items: Iterable[Item]) -> None:
        end = End()
        try:
            for item in items:
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are used
            end = End(error)
        self._put(end)

    def _put(self, item: Item | End) -> bool:
        """Hands an item over; False if the consumer has closed."""
        while not self._is_closed.is_set():
            try:
                self._queue.put(item, timeout=WAIT_SECONDS)
            except queue.Full:
                continue
            return True
        return False


def buffers(
    lines: Iterable[Item], n_lines: int, max_wait: float | None = None
) -> Iterator[list[Item]]:
    """Groups lines as they come."""
    if max_wait is None:
        lines = iter(lines)
        while buffer := list(islice(lines, n_lines)):
            yield buffer
        return
    ahead = Prefetcher(lines, 2 * n_lines)
    try:
        for first in ahead:
            yield _fill(first, ahead, n_lines, max_wait)
    finally:
        ahead.stop()  # its thread may be waiting for a line that never comes


def _fill(first: Item, ahead: Prefetcher[Item], n_lines: int, max_wait: float) -> list[Item]:
    """Fills a buffer that begins with `first`."""
    buffer, deadline = [first], monotonic() + max_wait
    while len(buffer) < n_lines:
        try:
            item = ahead.take(max(0.0, deadline - monotonic()))
        except queue.Empty:
            break
        if isinstance(item, End):
            break
        buffer.append(item)
    return buffer
