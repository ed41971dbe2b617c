"""The threads that torch computes with: for the kernels, too, and polite to other programs."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tformer_cli.runtime import waiting_is_chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

WATCH_SECONDS = 0.5
BUSY_SHARE = 0.2
"""Seconds that this process's threads wait for a processor, a second: above, others are running.
Short interruptions wait less, and cost less than waking a thread at every operator."""
QUIET_SECONDS, MOST_QUIET_SECONDS = 2.0, 64.0
"""Time without others until threads may spin again; it doubles whenever others soon come back."""


def threads_of_torch() -> ctypes.c_void_p | None:
    """Finds the entry point of the OpenMP library that torch itself calls.

    As the loader does for torch: first among what is loaded for everybody, such as another OpenMP
    library that the user has preloaded, then in what torch's library was loaded with. None where
    torch has no OpenMP, or one without the name that GNU's has.
    """
    for library in _libraries():
        function = getattr(library, "GOMP_parallel", None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p)
    return None


def _libraries() -> Iterator[ctypes.CDLL]:
    yield ctypes.CDLL(None)
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        if (folder / name).exists():
            try:
                yield ctypes.CDLL(str(folder / name))
            except OSError:  # not one that can be opened by itself
                continue


class SleepingThreads:
    """Lets threads that wait for others sleep instead of spin.

    GNU's OpenMP spins as often as GOMP_SPINCOUNT says before a thread sleeps, but 100 times while
    it manages more threads than there are processors (manual of libgomp). So a second team sleeps
    next to torch's, which stays as large as it was: results keep their bytes.
    """

    def __init__(self) -> None:
        """Finds OpenMP; nothing changes yet."""
        self._start_threads = threads_of_torch()
        self._end: threading.Event | None = None

    def sleep(self) -> None:
        """Starts the second team."""
        if self._start_threads is not None and self._end is None:
            self._end, ready = threading.Event(), threading.Event()
            # A thread of its own, because the team lives as long as the thread that started it
            threading.Thread(target=self._hold, args=(ready, self._end), daemon=True).start()
            # Until then threads would still spin
            ready.wait()

    def spin(self) -> None:
        """Ends the second team."""
        if self._end is not None:
            self._end.set()
            self._end = None

    def _hold(self, ready: threading.Event, end: threading.Event) -> None:
        prototype = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
        )
        assert self._start_threads is not None  # noqa: S101 - for mypy
        start = prototype(self._start_threads.value or 0)
        nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # of NULL: nothing happens
        start(nothing, None, (os.cpu_count() or 1) + 1, 0)
        ready.set()
        end.wait()  # OpenMP ends a team with the thread that started it


class Neighbors:
    """Decides by the waiting time of this process's threads whether other programs run, too."""

    # On a busy machine a spinning thread keeps the thread that it waits for from running, which
    # made training twenty times slower; on an idle one, spinning saves a wake-up at every operator

    def __init__(self) -> None:
        """Assumes that other programs run, until measured."""
        self._quiet_since = 0.0
        self._needed = QUIET_SECONDS
        self.are_there = True
        """True while other programs are known, or nothing is known yet."""

    def after(self, now: float, share: float) -> None:
        """Takes notice of the share of the last moments that the threads waited for a processor."""
        if share > BUSY_SHARE:
            if not self.are_there:
                # Programs that come and go would make it switch all the time
                soon = now - self._quiet_since < 4.0 * self._needed
                self._needed = (
                    min(2.0 * self._needed, MOST_QUIET_SECONDS) if soon else QUIET_SECONDS
                )
            self.are_there = True
            self._quiet_since = now
        elif now - self._quiet_since >= self._needed:
            self.are_there = False


def waited_seconds(tasks: Path = Path("/proc/self/task")) -> float:
    """Sums the time that this process's threads have been ready, but without a processor."""
    total = 0
    for path in tasks.glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[1])
        except (OSError, IndexError):  # it has ended
            continue
    return total / 1e9


@functools.cache
def be_polite() -> None:
    """Lets waiting threads of torch sleep while other programs want the processors; once.

    For programs, to which the process belongs. Nothing changes where users have chosen how threads
    wait, with one thread, or where the system does not say how long threads wait (not Linux).
    """
    # One thread waits for none
    if torch.get_num_threads() == 1 or waiting_is_chosen(os.environ):
        return
    if not Path("/proc/self/schedstat").exists():
        return
    threading.Thread(target=_watch, name="neighbors", daemon=True).start()


def _watch() -> None:
    threads, neighbors = SleepingThreads(), Neighbors()
    threads.sleep()
    before, start = waited_seconds(), time.monotonic()
    neighbors.after(start, 1.0)
    while True:
        time.sleep(WATCH_SECONDS)
        now, waited = time.monotonic(), waited_seconds()
        was_late = now - start > 2.0 * WATCH_SECONDS  # stopped, or without a processor itself
        neighbors.after(now, 1.0 if was_late else (waited - before) / (now - start))
        before, start = waited, now
        if neighbors.are_there:
            threads.sleep()
        else:
            threads.spin()
