"""Write the built-in corpus to a directory."""

from collections.abc import Callable
from pathlib import Path

from tformer_cli.corpora.grammar.generate import generate_corpus, split_sizes
from tformer_cli.corpora.grammar.surface import AlignedPair
from tformer_cli.files.splits import write_splits

SUFFIXES = ("en", "fr", "tok.en", "tok.fr", "align")


def write_corpus(
    directory: Path,
    n_pairs: int = 50_000,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Write ``train|valid|test`` with the suffixes ``.en .fr .tok.en .tok.fr .align``."""
    split_sizes(n_pairs)  # an impossible number is an error before a directory is made
    rows = ((split, _lines(pair)) for split, pair in generate_corpus(n_pairs, seed))
    return write_splits(directory, SUFFIXES, rows, progress)


def _lines(pair: AlignedPair) -> tuple[str, ...]:
    words = (" ".join(side) for side in (pair.source_words, pair.target_words))
    return (pair.source, pair.target, *words, pair.pharaoh())
