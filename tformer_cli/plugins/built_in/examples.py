"""Examples of the built-in corpora, as a corpus of a recipe asks for them."""

from collections.abc import Iterable

from tformer_cli.plugins.built_in import algorithmic, ratings, shapes
from tformer_cli.plugins.built_in.grammar import generate
from tformer_cli.text.config import CorpusConfig


def read_grammar(config: CorpusConfig) -> Iterable[tuple[str, str]]:
    pairs = generate.read_split(config.pairs, config.seed, config.built_in)
    return ((pair.source, pair.target) for pair in pairs)


def read_ratings(config: CorpusConfig) -> Iterable[tuple[str, str]]:
    stream = ratings.generate_ratings(config.pairs, config.seed)
    return ((rating.text, rating.stars) for split, rating in stream if split == config.ratings)


def read_algorithmic(config: CorpusConfig) -> Iterable[tuple[str, str]]:
    stream = algorithmic.generate_examples(config.algorithmic, config.pairs, config.seed)
    return ((example.source, example.target) for split, example in stream if split == config.split)


def read_shapes(config: CorpusConfig) -> Iterable[tuple[str, str]]:
    return shapes.generate_shapes(config.pairs, config.seed, config.shapes)
