"""A lexical shortlist for a model, of the tokens that are aligned in a corpus.

P(t | s) = c(s, t) / Σ c(s, ·), where c(s, t) counts the links between source token s and target
token t, as in the lexical tables of phrase-based translation (Koehn et al. 2003, section 2.3).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, product
from typing import TYPE_CHECKING, Literal

import numpy as np

from tformer_cli.inspect.alignment import WordTokens, words_of_text
from tformer_cli.inspect.jobs.align import (
    BUFFER_LINES,
    AlignmentReport,
    PairTexts,
    check_links,
    with_links,
)
from tformer_cli.search.engine import Shortlist
from tformer_cli.search.hypothesis import longest_source
from tformer_cli.text.lines import buffers
from tformer_cli.text.tokenizer import EOS_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.inspect.jobs.align import Aligner
    from tformer_cli.search.translator import Translator
    from tformer_cli.text.pharaoh import GoldLinks, Link
    from tformer_cli.text.tokenizer import Tokenizer, TokenizerSide

    LinkedTokens = tuple[Sequence[int], Sequence[int], Iterable[Link]]
    """Token ids of a source and of its target, and the links between their positions."""

Units = Literal["words", "pieces"]
N_FREQUENT = 100  # As is Marian's default


def linked_by_model(
    aligner: Aligner, pairs: Iterable[PairTexts], report: AlignmentReport
) -> Iterator[LinkedTokens]:
    """Links each target token with the source token that it attends to most."""
    # Words are not asked for: not every language separates them by spaces.
    tokenizer = aligner.tokenizer
    for buffer in buffers(pairs, BUFFER_LINES):
        written = [pair for pair in buffer if not pair.is_blank]
        sources = tokenizer.source.encode_batch([pair.source for pair in written])
        targets = tokenizer.target.encode_batch([pair.target for pair in written])
        fitting = [
            (_as_words(source), _as_words(target))
            for source, target in zip(sources, targets, strict=True)
            if max(len(source), len(target)) <= aligner.longest
        ]
        report.truncated += len(written) - len(fitting)
        alignments = aligner.align_pairs(fitting)
        report.lines += len(buffer)
        for (source, target), alignment in zip(fitting, alignments, strict=True):
            yield source.ids, target.ids, alignment.links


def linked_as_given(
    directory: ModelDirectory,
    pairs: Iterable[PairTexts],
    links: Iterable[GoldLinks],
    units: Units,
    report: AlignmentReport,
) -> Iterator[LinkedTokens]:
    """Links tokens as given alignments do, possible links included."""
    tokenizer, longest = directory.tokenizer, longest_source(directory.config.max_positions)
    for pair, gold in with_links(pairs, links, "--alignments"):
        report.lines += 1
        if pair.is_blank:
            continue
        source, target = sides = _sides(tokenizer, pair, units, longest)
        if source.is_cut or target.is_cut:
            report.truncated += 1
            continue
        check_links(gold, sides, pair.index, "--alignments", units)
        yield source.ids, target.ids, _between_tokens(gold.possible, sides)


def translated_pairs(translator: Translator, lines: Iterable[str]) -> Iterator[PairTexts]:
    for translation in translator.stream(lines):
        yield PairTexts(translation.index, translation.source, translation.text)


def lexicon_of(tokenizer: Tokenizer) -> Lexicon:
    """Makes a lexicon of a model's vocabularies, without counts."""
    return Lexicon(tokenizer.source.vocab_size, tokenizer.target.vocab_size)


def lexicon_lines(lexicon: Lexicon, tokenizer: Tokenizer, n_best: int) -> Iterator[str]:
    """Yields the lines ``target source probability`` that Marian reads as a shortlist."""
    sources, targets = (
        side.pieces(range(side.vocab_size)) for side in (tokenizer.source, tokenizer.target)
    )
    entries = (column.tolist() for column in lexicon.entries(n_best))
    for source, target, probability in zip(*entries, strict=True):
        yield f"{targets[target]} {sources[source]} {probability:.7f}"


def _sides(
    tokenizer: Tokenizer, pair: PairTexts, units: Units, longest: int
) -> tuple[WordTokens, WordTokens]:
    def encode(
        side: TokenizerSide, line: str, words: Sequence[str] | None, name: str
    ) -> WordTokens:
        if units == "words":
            where = f"{name}, line {pair.index + 1}"
            return words_of_text(side, line, words=words, longest=longest, where=where)[0]
        ids = side.encode(line)
        return replace(_as_words(ids[:longest]), is_cut=len(ids) > longest)

    return (
        encode(tokenizer.source, pair.source, pair.source_words, "source"),
        encode(tokenizer.target, pair.target, pair.target_words, "target"),
    )


def _as_words(ids: Sequence[int]) -> WordTokens:
    return WordTokens(tuple(ids), np.eye(len(ids)))


def _between_tokens(links: Iterable[Link], sides: tuple[WordTokens, WordTokens]) -> Iterator[Link]:
    source, target = ([np.flatnonzero(word).tolist() for word in side.shares.T] for side in sides)
    return chain.from_iterable(product(source[i], target[j]) for i, j in links)


MOST_PENDING = 1 << 20  # Links that are kept as they came until they are counted


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

    def entries(
        self, n_best: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """(N) source ids in order, their target ids, the most probable first, and P(t | s)."""
        self._count()
        sources, targets = np.divmod(self._pairs, self.n_targets)
        order = np.lexsort((targets, -self._counts, sources))
        sources, targets, counts = sources[order], targets[order], self._counts[order]
        totals = np.zeros(self.n_sources, np.int64)
        np.add.at(totals, sources, counts)
        ranks = np.arange(len(sources)) - np.searchsorted(sources, sources)
        kept = slice(None) if n_best is None else ranks < n_best
        probabilities = counts / totals[sources]
        return sources[kept], targets[kept], probabilities[kept]

    def shortlist(self, n_frequent: int, n_best: int, *, is_joint: bool) -> Shortlist:
        """Makes the shortlist of the counts."""
        linked = self.entries(n_best)
        by_frequency = np.argsort(-self._frequencies, kind="stable")[:n_frequent]
        frequent = by_frequency[self._frequencies[by_frequency] > 0]
        # Ids are in no order of frequency, but the end of sentence is in every source
        pairs = [linked[0] * self.n_targets + linked[1]]
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
