"""Lines of a stream in buffers that do not wait longer than they may."""

import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class _End:
    """The last thing a reader says; with the exception that ended it, if one did."""

    error: BaseException | None = None


def buffers(
    lines: Iterable[Item], n_lines: int, max_wait: float | None = None
) -> Iterator[list[Item]]:
    """Groups lines as they come.

    Args:
        lines: the lines, which may come slowly.
        n_lines: lines of a buffer; the last one may have fewer.
        max_wait: seconds after its first line at which a buffer is given although it is not full;
            None: however long it takes. The lines are then read on a thread of their own.
    """
    if max_wait is None:
        lines = iter(lines)
        while buffer := list(islice(lines, n_lines)):
            yield buffer
    else:
        yield from _timed(lines, n_lines, max_wait)


def _timed(lines: Iterable[Item], n_lines: int, max_wait: float) -> Iterator[list[Item]]:
    arrived: queue.Queue[Item | _End] = queue.Queue(2 * n_lines)
    is_left = threading.Event()
    # A daemon: a reader that waits for a terminal must not keep the program from ending.
    threading.Thread(target=_read, args=(lines, arrived, is_left), daemon=True).start()
    try:
        item = arrived.get()
        while not isinstance(item, _End):
            buffer, end = _collect(item, arrived, n_lines, max_wait)
            yield buffer
            item = arrived.get() if end is None else end
        if item.error is not None:
            raise item.error
    finally:
        is_left.set()


def _collect(
    first: Item, arrived: "queue.Queue[Item | _End]", n_lines: int, max_wait: float
) -> tuple[list[Item], _End | None]:
    """Fills a buffer that begins with `first`; the end of the stream is handed back, not kept."""
    buffer, deadline = [first], monotonic() + max_wait
    while len(buffer) < n_lines:
        try:
            item = arrived.get(timeout=max(0.0, deadline - monotonic()))
        except queue.Empty:
            break
        if isinstance(item, _End):
            return buffer, item
        buffer.append(item)
    return buffer, None


def _read(
    lines: Iterable[Item], arrived: "queue.Queue[Item | _End]", is_left: threading.Event
) -> None:
    end = _End()
    try:
        for line in lines:
            if not _put(line, arrived, is_left):
                return
    except BaseException as error:  # noqa: BLE001 - it is raised where the lines are used
        end = _End(error)
    _put(end, arrived, is_left)


def _put(item: Item | _End, arrived: "queue.Queue[Item | _End]", is_left: threading.Event) -> bool:
    """Hands an item over, unless no one takes any more."""
    while not is_left.is_set():
        try:
            arrived.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
