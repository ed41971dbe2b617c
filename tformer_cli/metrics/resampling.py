"""The bootstrap: sentences are drawn with replacement, as many as there are (Efron 1979)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
"""Draws, as in Koehn 2004."""
PERCENTILES = (2.5, 97.5)
"""Ends of a 95 % interval."""
Statistics = NDArray[np.float64]


def resample(
    n_sentences: int, n_resamples: int, generator: "np.random.Generator"
) -> Iterator[NDArray[np.int64]]:
    """Yields the sentences of each draw, (N)."""
    for _ in range(n_resamples):
        yield generator.integers(n_sentences, size=n_sentences)


def draws(n_sentences: int, n_resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yields how often each sentence is in each draw, (N): the same for the same seed."""
    for chosen in resample(n_sentences, n_resamples, np.random.default_rng(seed)):
        # counts: their product with sums over sentences scores a draw
        yield np.bincount(chosen, minlength=n_sentences)


def resample_sums(rows: NDArray[Any], n_resamples: int, seed: int) -> Statistics:
    """(R, K) sums of the rows (N, K) of each draw's sentences."""
    return np.stack([counts @ rows for counts in draws(len(rows), n_resamples, seed)])
