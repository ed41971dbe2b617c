"""Buckets of whole numbers: lengths of sentences, frequencies of words."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

LENGTHS = (10, 20, 30, 40, 50, 60)
"""Edges of buckets of lengths, in words."""
FREQUENCIES = (1, 2, 3, 4, 5, 10, 100, 1000)
"""Edges of buckets of word frequencies. Both are compare-mt's (Neubig et al. 2019)."""


def bucket_of(value: int, edges: Sequence[int]) -> int:
    """Finds the bucket of a number: 0 below the first edge, then [edge, next edge)."""
    return bisect_right(edges, value)


def bucket_labels(edges: Sequence[int]) -> list[str]:
    """Names the buckets: "<10", "10–19", "60+"; of a single number "3"."""
    inner = [str(low) if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(edges)]
    first = "0" if edges[0] == 1 else f"<{edges[0]}"
    return [first, *inner, f"{edges[-1]}+"]
