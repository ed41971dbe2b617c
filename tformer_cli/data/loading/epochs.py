"""Pairs and windows of an epoch, computed where they are needed and stored nowhere.

A place counts the examples of an epoch from 0; a pair number counts the pairs of all corpora, one
corpus after the other.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

WINDOW = 1 << 19
"""Most examples that are sorted into batches together. Planning takes some 60 bytes for each."""
BLOCK = 256
"""Examples that stay together when an epoch of several windows is shuffled: neighbors in the file
too, so that a window reads a corpus larger than memory in pieces and not page by page."""


class Mixture:
    """The examples of every epoch of several weighted corpora.

    Corpus i with N pairs and weight w gives an epoch round(w·N) examples: every pair ⌊w⌋ times, the
    rest from a fixed shuffling of the corpus in which each epoch continues where the last one
    stopped. An epoch of more than `WINDOW` examples is cut into blocks; each window takes as many
    of them, from all over the epoch, again in every epoch.
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], seed: int) -> None:
        """Sets the number of pairs and the weight of each corpus."""
        self._sizes = list(sizes)
        self._seed = seed
        n_examples = [round(weight * size) for size, weight in zip(sizes, weights, strict=True)]
        self._first_pairs = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        self._first_places = np.concatenate(([0], np.cumsum(n_examples, dtype=np.int64)))
        self.n_examples = int(self._first_places[-1])
        """Examples of an epoch."""
        self.n_windows = max(1, -(-self.n_examples // WINDOW))
        """Windows of an epoch."""
        self._shuffled = lru_cache(maxsize=len(self._sizes))(self._shuffle_corpus)

    def places(self, epoch: int, window: int) -> Indices:
        """The places of a window of an epoch."""
        if self.n_windows == 1:
            return np.arange(self.n_examples)
        start, end = (number * self.n_examples // self.n_windows for number in (window, window + 1))
        rng = np.random.default_rng([self._seed, epoch, 0, 0, 1])
        return _Shuffle(self.n_examples, rng)(np.arange(start, end))

    def pairs(self, epoch: int, places: Indices) -> Indices:
        """The pair number at each of these places of an epoch."""
        numbers = np.empty(len(places), dtype=np.int64)
        owners = np.searchsorted(self._first_places, places, side="right") - 1
        for owner in np.unique(owners).tolist():
            members = np.flatnonzero(owners == owner)
            rows = self._rows(owner, epoch, places[members] - self._first_places[owner])
            numbers[members] = self._first_pairs[owner] + rows
        return numbers

    def _rows(self, corpus: int, epoch: int, places: Indices) -> Indices:
        """The rows of a corpus that are at these of its own places."""
        size = self._sizes[corpus]
        n_examples = int(self._first_places[corpus + 1] - self._first_places[corpus])
        n_copied, rest = n_examples // size * size, n_examples % size
        rows = places % size
        if rest:
            is_rest = places >= n_copied
            drawn = (epoch * rest + places[is_rest] - n_copied) % size
            rows[is_rest] = self._shuffled(corpus)(drawn)
        return rows

    def _shuffle_corpus(self, corpus: int) -> "_Shuffle":
        rng = np.random.default_rng([self._seed, corpus, 1])
        return _Shuffle(self._sizes[corpus], rng)


class _Shuffle:
    """0, 1, …, n - 1 in random order: one by one, or by blocks where they are many."""

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self._block = 1 if n <= WINDOW else BLOCK
        self._order = rng.permutation(n // self._block)

    def __call__(self, places: Indices) -> Indices:
        """Items at these places; those after the last whole block stay where they are."""
        blocks, within = np.divmod(places, self._block)
        found = places.copy()
        is_whole = blocks < len(self._order)
        found[is_whole] = self._order[blocks[is_whole]] * self._block + within[is_whole]
        return found
