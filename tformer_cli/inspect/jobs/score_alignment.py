"""Alignment quality of every head of a model against gold alignments.

Built-in corpora have gold links, so a run on them ends with its best heads stored.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.artifacts.model_directory import load_model_directory, store_alignment
from tformer_cli.corpora.algorithmic import TASKS, generate_examples
from tformer_cli.corpora.algorithmic import split_sizes as string_sizes
from tformer_cli.corpora.grammar.generate import generate_corpus, split_sizes
from tformer_cli.heads.names import HeadId, HeadLayout, head_layout
from tformer_cli.inspect.alignment.links import (
    ALIGNING,
    METHODS,
    Convention,
    LinkRule,
    cross_heads,
    default_selection,
    head_mean,
    linked,
    symmetrize,
    word_weights,
)
from tformer_cli.inspect.capture.batches import capture_pairs
from tformer_cli.inspect.jobs.align import (
    BUFFER_LINES,
    Aligner,
    AlignmentReport,
    PairTexts,
    check_links,
    directed_links,
    in_buffers,
    with_links,
    word_tokens,
)
from tformer_cli.inspect.views.alignment import AlignmentScore, AlignmentScores
from tformer_cli.metrics.alignment_error import (
    AlignmentCounts,
    best_single_links,
    diagonal_links,
)
from tformer_cli.text.pharaoh import GoldLinks, parse_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tformer_cli.inspect.alignment.words import WordTokens
    from tformer_cli.inspect.capture.forced import AttentionMaps
    from tformer_cli.recipe import Recipe
    from tformer_cli.text.config import CorpusConfig

Tokens = tuple["WordTokens", "WordTokens"]


def candidates_of(layout: HeadLayout) -> dict[str, Sequence[HeadId]]:
    """Names every cross-attention head, every layer for its mean, and the default's mean."""
    found: dict[str, Sequence[HeadId]] = {}
    for layer, n_heads in enumerate(layout.cross):
        heads = [HeadId("cross", layer, head) for head in range(n_heads)]
        found |= {str(head): [head] for head in heads}
        found[f"cross.{layer}"] = heads
    name = default_selection(layout)
    return found | {name: cross_heads([name], layout)}


def score_model(
    aligner: Aligner,
    pairs: Iterable[PairTexts],
    gold: Iterable[GoldLinks],
    report: AlignmentReport,
) -> Iterator[AlignmentScores]:
    """Scores the heads of a model on sentence pairs with gold alignments."""
    is_given = aligner.choice.reason == "given"
    tally = _Tally(
        {aligner.choice.heads: aligner.choice.members}
        if is_given
        else candidates_of(head_layout(aligner.model)),
        aligner.compared,
        aligner.rule,
    )
    bounds = _Bounds()
    for buffer in in_buffers(with_links(pairs, gold, "--gold"), BUFFER_LINES):
        tokens = [word_tokens(aligner, pair) for pair, _ in buffer]
        for sides, (pair, answer) in zip(tokens, buffer, strict=True):
            bounds.add(sides, answer, pair.index)
        report.add(tokens)
        ids = [(source.ids, target.ids) for source, target in tokens]
        for place, maps in capture_pairs(aligner.model, ids, ALIGNING):
            tally.add(maps, tokens[place], buffer[place][1])
        yield AlignmentScores(scores=tally.scores(), floor=bounds.floor, ceiling=bounds.ceiling)


def score_directions(
    aligner: Aligner,
    reverse: Aligner,
    pairs: Iterable[PairTexts],
    gold: Iterable[GoldLinks],
    report: AlignmentReport,
) -> Iterator[AlignmentScores]:
    """Scores two directions, each by its own heads, and every way of joining them."""
    counts = {name: AlignmentCounts() for name in ("forward", "reverse", *METHODS)}
    bounds = _Bounds()
    for buffer in in_buffers(with_links(pairs, gold, "--gold"), BUFFER_LINES):
        texts = [pair for pair, _ in buffer]
        forward = directed_links(aligner, texts, report, is_reverse=False)
        backward = directed_links(reverse, texts, report, is_reverse=True)
        for (pair, answer), there, back in zip(buffer, forward, backward, strict=True):
            bounds.add(word_tokens(aligner, pair), answer, pair.index)
            counts["forward"].add(there, answer)
            counts["reverse"].add(back, answer)
            for method in METHODS:
                counts[method].add(symmetrize(method, there, back), answer)
        report.lines += len(buffer)
        scores = [AlignmentScore(name=n, convention=None, counts=c) for n, c in counts.items()]
        yield AlignmentScores(scores=scores, floor=bounds.floor, ceiling=bounds.ceiling)


class _Bounds:
    """Bounds that the scores are compared with."""

    def __init__(self) -> None:
        self.floor, self.ceiling = AlignmentCounts(), AlignmentCounts()

    def add(self, sides: Tokens, gold: GoldLinks, index: int) -> None:
        check_links(gold, sides, index, "--gold")
        n_source, n_target = (side.n_words for side in sides)
        self.floor.add(diagonal_links(n_source, n_target), gold)
        self.ceiling.add(best_single_links(gold), gold)


class _Tally:
    """The sums of every candidate in every convention."""

    def __init__(
        self,
        candidates: Mapping[str, Sequence[HeadId]],
        conventions: Sequence[Convention],
        rule: LinkRule,
    ) -> None:
        self._candidates, self._conventions, self._rule = candidates, conventions, rule
        # found, found and sure, found and possible
        self._sums = np.zeros((3, len(candidates), len(conventions)), dtype=np.int64)
        self._n_sure = 0

    def add(self, maps: AttentionMaps, sides: Tokens, gold: GoldLinks) -> None:
        source, target = sides
        answers = np.zeros((3, target.n_words, source.n_words), dtype=bool)
        answers[0] = True
        for place, links in enumerate(gold, 1):
            for s, t in links:
                answers[place, t, s] = True
        self._n_sure += len(gold.sure)
        weights = np.stack([head_mean(maps, heads) for heads in self._candidates.values()])
        for column, convention in enumerate(self._conventions):
            links_found = linked(word_weights(weights, source, target, convention), self._rule)
            # (candidates, target words, source words), three times -> (3, candidates)
            self._sums[:, :, column] += (links_found & answers[:, None]).sum(axis=(2, 3))

    def scores(self) -> list[AlignmentScore]:
        return [
            AlignmentScore(
                name=name,
                convention=convention,
                counts=AlignmentCounts(
                    found=int(self._sums[0, row, column]),
                    sure=self._n_sure,
                    found_sure=int(self._sums[1, row, column]),
                    found_possible=int(self._sums[2, row, column]),
                ),
            )
            for row, name in enumerate(self._candidates)
            for column, convention in enumerate(self._conventions)
        ]


N_PAIRS = 200
"""Held-out pairs that heads are measured on, in a second or two."""
HELD_OUT: Final = "valid"
"""Split that they are of: the test stays unseen."""


def store_measured_heads(recipe: Recipe, run: Path) -> AlignmentScore | None:
    """Stores which cross-attention heads of a run align best, if its corpus has gold links."""
    if recipe.task.kind != "translate":
        return None
    pairs = [pair for corpus in recipe.data.train[:1] for pair in _gold_pairs(corpus)]
    if not pairs:
        return None
    directory = load_model_directory(run)
    if directory.info.alignment is not None or not any(head_layout(directory.model).cross):
        return None
    texts, gold = zip(*pairs, strict=True)
    *_, scores = score_model(Aligner(directory), texts, gold, AlignmentReport())
    best = scores.best
    store_alignment(run, AlignmentInfo(heads=best.name, convention=best.convention or "naive"))
    return best


def _gold_pairs(corpus: CorpusConfig) -> Iterator[tuple[PairTexts, GoldLinks]]:
    """Pairs that training never shows and their links; none of a corpus that has no links."""
    if corpus.built_in:
        n_pairs = min(N_PAIRS, split_sizes(corpus.pairs)[HELD_OUT])
        made = generate_corpus(corpus.pairs, corpus.seed)
        aligned = islice((pair for split, pair in made if split == HELD_OUT), n_pairs)
        for n, pair in enumerate(aligned):
            links = frozenset(pair.links)
            words = pair.source_words, pair.target_words
            yield PairTexts(n, pair.source, pair.target, *words), GoldLinks(links, links)
    elif corpus.algorithmic and not TASKS[corpus.algorithmic].has_labels:
        n_pairs = min(N_PAIRS, string_sizes(corpus.pairs)[HELD_OUT])
        drawn = generate_examples(corpus.algorithmic, corpus.pairs, corpus.seed)
        examples = islice((one for split, one in drawn if split == HELD_OUT), n_pairs)
        for n, one in enumerate(examples):
            yield PairTexts(n, one.source, one.target), parse_links(one.gold, "gold")
