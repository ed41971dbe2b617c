"""Write the built-in corpus to a directory."""

from collections.abc import Callable
from pathlib import Path

from tformer_cli.files.splits import write_splits
from tformer_cli.grammar.generate import generate_corpus, split_sizes
from tformer_cli.grammar.surface import AlignedPair

SUFFIXES = ("en", "fr", "tok.en", "tok.fr", "align")


def write_corpus(
    directory: Path,
    n_pairs: int = 50_000,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Write ``train|valid|test`` with the suffixes ``.en .fr .tok.en .tok.fr .align``.

    Args:
        directory: created if missing.
        n_pairs: number of training pairs.
        seed: of the generator.
        progress: called with the number of pairs written so far, now and then and at the end.

    Returns:
        The number of pairs of each split.

    Raises:
        DataError: if the directory cannot be written, or holds other files of these names, or
            ``n_pairs`` is out of range.
    """
    split_sizes(n_pairs)  # an impossible number is an error before a directory is made
    rows = ((split, _lines(pair)) for split, pair in generate_corpus(n_pairs, seed))
    return write_splits(directory, SUFFIXES, rows, progress)


def _lines(pair: AlignedPair) -> tuple[str, ...]:
    words = (" ".join(side) for side in (pair.source_words, pair.target_words))
    return (pair.source, pair.target, *words, pair.pharaoh())
