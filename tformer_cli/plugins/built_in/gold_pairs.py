"""Pairs of the built-in corpora with gold links, on which heads are measured after training."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from tformer_cli.inspect.jobs.align import PairTexts
from tformer_cli.plugins.built_in import algorithmic
from tformer_cli.plugins.built_in.grammar import generate
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.pharaoh import GoldLinks, parse_links

N_PAIRS = 200  # Held-out pairs that heads are measured on, in a second or two
HELD_OUT: Final = "valid"  # Their split: the test stays unseen


def gold_pairs(corpus: CorpusConfig) -> Iterator[tuple[PairTexts, GoldLinks]]:
    """Pairs that training never shows and their links; none of a corpus that has no links."""
    if corpus.built_in:
        n_pairs = min(N_PAIRS, generate.split_sizes(corpus.pairs)[HELD_OUT])
        aligned = islice(generate.read_split(corpus.pairs, corpus.seed, HELD_OUT), n_pairs)
        for n, pair in enumerate(aligned):
            links = frozenset(pair.links)
            words = pair.source_words, pair.target_words
            yield PairTexts(n, pair.source, pair.target, *words), GoldLinks(links, links)
    elif corpus.algorithmic and not algorithmic.TASKS[corpus.algorithmic].has_labels:
        n_pairs = min(N_PAIRS, algorithmic.split_sizes(corpus.pairs)[HELD_OUT])
        drawn = algorithmic.generate_examples(corpus.algorithmic, corpus.pairs, corpus.seed)
        examples = islice((example for split, example in drawn if split == HELD_OUT), n_pairs)
        for n, example in enumerate(examples):
            yield PairTexts(n, example.source, example.target), parse_links(example.gold, "gold")
