"""Counts of linked tokens, and the lexical shortlist that they make.

P(t | s) = c(s, t) / Σ c(s, ·), where c(s, t) counts the links between source token s and target
token t, as in the lexical tables of phrase-based translation (Koehn et al. 2003, section 2.3).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tformer_cli.search.shortlist import Shortlist
from tformer_cli.text.pharaoh import Link
from tformer_cli.text.tokenizer import EOS_ID

MOST_PENDING = 1 << 20
"""Links that are kept as they came until they are counted."""


@dataclass(frozen=True, eq=False)
class LexicalEntries:
    """Pairs of tokens, in the order of their source tokens, the most probable first for each."""

    sources: NDArray[np.int64]
    """(N) source ids."""
    targets: NDArray[np.int64]
    """(N) target ids."""
    probabilities: NDArray[np.float64]
    """(N) P(target | source)."""

    def __iter__(self) -> Iterator[tuple[int, int, float]]:
        columns = (self.sources, self.targets, self.probabilities)
        return zip(*(column.tolist() for column in columns), strict=True)


class Lexicon:
    """Counts of linked pairs of tokens; they grow with every sentence pair."""

    def __init__(self, n_sources: int, n_targets: int) -> None:
        self.n_sources, self.n_targets = n_sources, n_targets
        self._pending: list[int] = []
        # A pair of tokens is one number: a corpus has millions of them
        self._pairs = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._frequencies = np.zeros(n_targets, np.int64)

    def add(self, source: Sequence[int], target: Sequence[int], links: Iterable[Link]) -> None:
        self._pending += [source[s] * self.n_targets + target[t] for s, t in links]
        np.add.at(self._frequencies, np.asarray(target, np.int64), 1)
        if len(self._pending) >= MOST_PENDING:
            self._count()

    @property
    def n_linked(self) -> int:
        """Source tokens that were linked with any target token."""
        self._count()
        return len(np.unique(self._pairs // self.n_targets))

    def entries(self, n_best: int | None = None) -> LexicalEntries:
        """Returns the linked pairs of tokens."""
        self._count()
        sources, targets = np.divmod(self._pairs, self.n_targets)
        order = np.lexsort((targets, -self._counts, sources))
        sources, targets, counts = sources[order], targets[order], self._counts[order]
        totals = np.zeros(self.n_sources, np.int64)
        np.add.at(totals, sources, counts)
        ranks = np.arange(len(sources)) - np.searchsorted(sources, sources)
        kept = slice(None) if n_best is None else ranks < n_best
        probabilities = counts / totals[sources]
        return LexicalEntries(sources[kept], targets[kept], probabilities[kept])

    def shortlist(self, n_frequent: int, n_best: int, *, is_joint: bool) -> Shortlist:
        """Makes the shortlist of the counts."""
        entries = self.entries(n_best)
        by_frequency = np.argsort(-self._frequencies, kind="stable")[:n_frequent]
        frequent = by_frequency[self._frequencies[by_frequency] > 0]
        # Ids are in no order of frequency, but the end of sentence is in every source
        pairs = [entries.sources * self.n_targets + entries.targets]
        pairs.append(EOS_ID * self.n_targets + frequent)
        if is_joint:
            pairs.append(np.arange(EOS_ID + 1, self.n_sources) * (self.n_targets + 1))
        sources, targets = np.divmod(np.unique(np.concatenate(pairs)), self.n_targets)
        offsets = np.searchsorted(sources, np.arange(self.n_sources + 1))
        return Shortlist(EOS_ID + 1, offsets.astype(np.int64), targets.astype(np.int32))

    def _count(self) -> None:
        pairs, counts = np.unique(np.array(self._pending, np.int64), return_counts=True)
        self._pending = []
        joined = np.concatenate([self._pairs, pairs])
        self._pairs, places = np.unique(joined, return_inverse=True)
        before, self._counts = self._counts, np.zeros(len(self._pairs), np.int64)
        np.add.at(self._counts, places, np.concatenate([before, counts]))
