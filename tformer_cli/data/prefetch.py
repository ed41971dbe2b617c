"""Work done ahead in a background thread."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
WAIT_SECONDS = 0.1
"""Seconds between two checks of a waiting side whether the other has ended."""


class _End:
    """Put last: no more items, or the error that ended them."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class Prefetcher(Generic[Item]):
    """Iterates over items that a thread makes up to `size` ahead; errors reach the consumer."""

    def __init__(self, items: Iterable[Item], size: int) -> None:
        """Starts the thread, which alone iterates over `items`."""
        self._queue: queue.Queue[Item | _End] = queue.Queue(maxsize=size)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(
            target=self._work, args=(items,), name="tformer-batches", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        while not self._is_closed.is_set():
            try:
                item = self._queue.get(timeout=WAIT_SECONDS)
            except queue.Empty:
                continue
            if isinstance(item, _End):
                self.close()
                if item.error is not None:
                    raise item.error
                return
            yield item

    def close(self) -> None:
        """Ends the thread and waits for it; calling it again does nothing."""
        self._is_closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self, items: Iterable[Item]) -> None:
        try:
            for item in items:
                if not self._put(item):
                    return
            self._put(_End())
        except BaseException as error:  # noqa: BLE001 - it is the consumer's to handle
            self._put(_End(error))

    def _put(self, item: Item | _End) -> bool:
        while not self._is_closed.is_set():
            try:
                self._queue.put(item, timeout=WAIT_SECONDS)
            except queue.Full:
                continue
            return True
        return False
