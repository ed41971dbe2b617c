"""Memory: batches that do not fit, computed in parts; free memory; freed but kept pages.

Kept pages are released now and then, so that a long training does not grow.

Freed pages are kept for the next tensors (`runtime.prepare_cpu`). But batches differ a little
in size, so that one step's holes do not quite fit the next step's tensors, and the heap grows to
several times what is ever in use. Giving all free pages back undoes that; the system then has to
clear them again when they are needed, which was seen to take 14 µs a page in a virtual machine.
So it is done where the process has doubled, which most never do, and takes about two percent of the
time at most: what a page costs is measured. (Done at a quarter more it brought nothing: after
100 steps a process that began with 700 MB had 1,230 MB with it and 1,260 without.)
"""

import ctypes
import mmap
import os
import platform
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path

import torch

from tformer_cli.errors import TformerError
from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.runtime import is_out_of_memory
from tformer_cli.text.batching import Batch
from tformer_cli.trainer.gradients import ALONE, BackwardPasses, add_gradients
from tformer_cli.trainer.report_interval import ReportInterval
from tformer_cli.trainer.segment_memory import SegmentMemory


class GradientsInMemory:
    """Adds gradients as `add_gradients` does, and halves batches that do not fit.

    Out of memory, the gradients of the step are dropped and its largest batch is halved by rows,
    until all parts fit. The loss is a mean over the tokens of all parts together, so the gradient
    is that of the unsplit batches. Batches as large as one that has failed are split at once.
    """

    def __init__(self, passes: BackwardPasses = ALONE, memory: SegmentMemory | None = None) -> None:
        self._passes = passes
        self._memory = memory
        self.smallest_failed = 0
        """Positions of the smallest batch that did not fit; 0: all did."""

    def add(
        self,
        model: Model,
        batches: Sequence[Batch],
        window: ReportInterval,
        *,
        label_smoothing: float,
        precision: Precision,
        n_target_tokens: int | None = None,
        r_drop: float = 0.0,
    ) -> int:
        """Adds the gradient of one optimizer step; there must be none yet."""
        parts = self._split_to_fit(batches)
        while True:
            sums = replace(window)
            try:
                add_gradients(
                    model,
                    parts,
                    sums,
                    label_smoothing=label_smoothing,
                    precision=precision,
                    n_target_tokens=n_target_tokens,
                    r_drop=r_drop,
                    passes=self._passes,
                    memory=self._memory,
                )
                break
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if self._memory is not None:  # parts of a batch would remember other rows
                    raise TformerError(
                        "training.tokens_per_batch: a batch does not fit in memory; lower it"
                    ) from None
            # outside of the handler, whose traceback keeps tensors alive
            self._passes.start_again()
            model.zero_grad(set_to_none=True)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            parts = self._with_largest_halved(parts)
        for item in fields(ReportInterval):
            setattr(window, item.name, getattr(sums, item.name))
        return len(parts)

    def _with_largest_halved(self, parts: Sequence[Batch]) -> list[Batch]:
        largest = max(parts, key=lambda part: (part.n_sentences > 1, part.n_cells))
        if largest.n_sentences == 1:
            raise TformerError(
                f"data.max_length: a sentence pair of {largest.n_cells} positions does not "
                "fit in memory; lower it or the size of the model"
            )
        self.smallest_failed = min(self.smallest_failed or largest.n_cells, largest.n_cells)
        return [half for part in parts for half in (halves(part) if part is largest else [part])]

    def _split_to_fit(self, batches: Sequence[Batch]) -> list[Batch]:
        parts = list(batches)
        while self.smallest_failed and any(self._is_too_large(part) for part in parts):
            parts = [
                p for part in parts for p in (halves(part) if self._is_too_large(part) else [part])
            ]
        return parts

    def _is_too_large(self, batch: Batch) -> bool:
        return batch.n_sentences > 1 and batch.n_cells >= self.smallest_failed


def halves(batch: Batch) -> list[Batch]:
    middle = batch.n_sentences // 2
    return [
        Batch(**{item.name: getattr(batch, item.name)[rows] for item in fields(Batch)})
        for rows in (slice(None, middle), slice(middle, None))
    ]


_CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def free_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Returns the bytes that are free by the system, the control group and the process's limit."""
    limits = [*_of_system(proc), *_of_group(cgroup), *_of_process(proc)]
    half_of_all = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return max(0, min(limits, default=half_of_all))


def _of_system(proc: Path) -> Iterator[int]:
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _of_group(cgroup: Path) -> Iterator[int]:
    for limit, used in _CGROUP_FILES:
        values = _text(cgroup / limit).strip(), _text(cgroup / used).strip()
        if all(value.isdecimal() for value in values):  # "max": no limit
            yield int(values[0]) - int(values[1])


def _of_process(proc: Path) -> Iterator[int]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _text(proc / "self" / "statm").split()
    if limit != resource.RLIM_INFINITY and pages:
        yield limit - int(pages[0]) * os.sysconf("SC_PAGE_SIZE")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


GROWTH = 2.0
"""Given back when the process is this many times as large as after the first step since the
last."""
MOST_OF_TIME = 0.02
"""Share of the time that giving back may take."""
_SAMPLE = 256
"""Pages that are used for the first time to measure what one costs."""
_STATISTICS = Path("/proc/self/statm")


class FreedPages:
    """Returns freed memory to the system, on Linux with glibc; elsewhere does nothing."""

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
        """Checks the size of the process after a step; returns whether memory was released."""
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
