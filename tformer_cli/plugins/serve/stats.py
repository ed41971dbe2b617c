"""Counts of a service's engines, the source of its metrics."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of durations."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass
class Histogram:
    """Counts of values up to each bound; the last count is for values beyond."""

    bounds: Sequence[float] = SECONDS
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass
class Stats:
    """Totals over all engines, named like the metrics."""

    queue_requests: Mapping[str, int] = field(default_factory=dict)
    """Waiting requests by class."""
    queue_tokens: int = 0
    cache_bytes: int = 0
    cache_hits_total: int = 0
    cache_misses_total: int = 0
    tokens_total: int = 0
    """Source tokens computed."""
    rejected_total: int = 0
    """Requests refused because the queue was full."""
    cancelled_late_total: int = 0
    cancelled_gone_total: int = 0
    loads_total: int = 0
    queue_seconds: Histogram = field(default_factory=Histogram)
    """Time from a request to its first batch."""
    compute_seconds: Histogram = field(default_factory=Histogram)
    """Time of a batch."""
    batch_sentences: Histogram = field(default_factory=lambda: Histogram(SIZES))
    batch_tokens: Histogram = field(default_factory=lambda: Histogram(SIZES))

    def __post_init__(self) -> None:
        self._lock = Lock()

    def count(self, name: str, number: int = 1) -> None:
        # Engines count at the same time, and `+=` is not atomic
        with self._lock:
            setattr(self, name, getattr(self, name) + number)

    def add_batch(self, n_units: int, n_tokens: int, seconds: float) -> None:
        with self._lock:
            self.tokens_total += n_tokens
            self.batch_sentences.add(n_units)
            self.batch_tokens.add(n_tokens)
            self.compute_seconds.add(seconds)

    def add_wait(self, seconds: float) -> None:
        with self._lock:
            self.queue_seconds.add(seconds)
