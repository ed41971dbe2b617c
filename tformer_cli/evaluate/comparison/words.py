"""How well words are translated, by how often training has seen them.

For each bucket of frequencies the F1 of its words, as compare-mt does (Neubig et al. 2019): a word
of a translation is matched by the same word of its reference, each once.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise

import numpy as np

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


Words = list[list[str]]
Tokenizer = Callable[[str], str]


def words_of(lines: Iterable[str], tokenize: Tokenizer, *, lowercase: bool = False) -> Words:
    return [tokenize(line.lower() if lowercase else line).split() for line in lines]


def frequencies(
    lines: Iterable[str],
    wanted: Iterable[Words],
    tokenize: Tokenizer,
    *,
    lowercase: bool = False,
) -> Counter[str]:
    """Counts in a text, such as that of the training, the words that other texts have."""
    counts = dict.fromkeys(chain.from_iterable(chain.from_iterable(wanted)), 0)
    for line in lines:
        for word in tokenize(line.lower() if lowercase else line).split():
            if word in counts:
                counts[word] += 1
    return Counter(counts)


def word_f1(
    hypotheses: Words,
    references: Words,
    counts: Counter[str],
    edges: Sequence[int] = FREQUENCIES,
) -> tuple[list[float], list[int]]:
    """Computes the F1 of the words in each bucket.

    With m matches, h words of the translations and r of the references in a bucket, precision is
    m/h, recall m/r and F1 = 2·m / (h + r).

    Args:
        hypotheses: words of the translations.
        references: words of the references, line by line.
        counts: frequency of each word; those it lacks have 0.
        edges: of the buckets.

    Returns:
        (buckets) F1 from 0 to 100, 0 where there is no word; and the references' words in each.
    """
    # rows: matches, words of translations, words of references
    sums = np.zeros((3, len(edges) + 1), np.int64)
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = Counter(hypothesis), Counter(reference)
        for row, found in enumerate((ours & theirs, ours, theirs)):
            for word, number in found.items():
                sums[row, bucket_of(counts[word], edges)] += number
    matches, n_ours, n_theirs = sums
    f1 = 200.0 * matches / np.maximum(n_ours + n_theirs, 1)
    return f1.tolist(), n_theirs.tolist()
