"""Random choices that come out the same on every machine and Python version.

Only ``random.Random.random`` is used, whose stream Python guarantees for a given seed; the weights
are sums of quotients, which IEEE arithmetic rounds alike everywhere.
"""

from bisect import bisect_right
from collections.abc import Sequence
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")

FLATTENING = 16.0
"""Added to each rank of the Zipf law, so that rare words stay learnable."""


class Pool(Generic[T]):
    """Items with cumulative weights, drawn by `Choices.draw`."""

    __slots__ = ("cumulative", "items", "last", "total")

    def __init__(
        self,
        items: Sequence[T],
        weights: Sequence[float] | None = None,
        flattening: float = FLATTENING,
    ) -> None:
        """Hold ``items``; without ``weights`` earlier ones are more frequent (Zipf–Mandelbrot)."""
        if not items:
            raise ValueError("A pool needs at least one item.")
        self.items = tuple(items)
        self.cumulative: list[float] = []
        self.last = len(self.items) - 1
        total = 0.0
        for rank in range(len(self.items)):
            total += weights[rank] if weights else 1.0 / (rank + flattening)
            self.cumulative.append(total)
        self.total = total


class Choices:
    """A seeded source of choices."""

    __slots__ = ("roll",)

    def __init__(self, seed: int) -> None:
        self.roll = Random(seed).random

    def chance(self, probability: float) -> bool:
        return self.roll() < probability

    def pick(self, items: Sequence[T]) -> T:
        # Not `Random.choice`: Python guarantees only the stream of `random`
        return items[int(self.roll() * len(items))]

    def draw(self, pool: Pool[T]) -> T:
        """Return one item of ``pool`` according to its weights."""
        # A product that rounds up to the total would lie behind the last item
        return pool.items[min(bisect_right(pool.cumulative, self.roll() * pool.total), pool.last)]
