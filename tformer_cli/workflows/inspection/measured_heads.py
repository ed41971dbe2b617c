"""The heads of a trained model that align best, by the gold links that built-in corpora have."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tformer_cli.algorithmic import TASKS, generate_examples
from tformer_cli.algorithmic import split_sizes as string_sizes
from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.artifacts.model_directory import load_model_directory, store_alignment
from tformer_cli.data.pharaoh import GoldLinks, parse_links
from tformer_cli.grammar.generate import generate_corpus, split_sizes
from tformer_cli.inspection.capture.heads import head_layout
from tformer_cli.workflows.inspection.align import AlignmentReport, PairTexts
from tformer_cli.workflows.inspection.aligner import Aligner
from tformer_cli.workflows.inspection.score_alignment import score_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tformer_cli.data.config import CorpusConfig
    from tformer_cli.inspection.views.alignment import AlignmentScore
    from tformer_cli.recipe import Recipe

N_PAIRS = 200
"""Held-out pairs that heads are measured on, in a second or two."""
HELD_OUT: Final = "valid"
"""Split that they are of: the test stays unseen."""


def store_measured_heads(recipe: Recipe, run: Path) -> AlignmentScore | None:
    """Measures which cross-attention heads of a run align best, and stores them in its directory.

    Args:
        recipe: of the run.
        run: its directory, which holds the trained model.

    Returns:
        The score of what was stored; None if no corpus of the recipe has gold links, or the
        directory says already which heads align.
    """
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
