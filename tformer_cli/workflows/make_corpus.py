"""The built-in corpus as files."""

from collections.abc import Callable
from pathlib import Path

from tformer_cli.grammar.write import write_corpus


def make_corpus(
    directory: Path,
    n_pairs: int = 50_000,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Writes `train|valid|test.{en,fr}`, the tokenized forms and the gold alignments.

    Args:
        directory: the output, made if missing.
        n_pairs: training pairs.
        seed: the same seed gives the same bytes.
        progress: called with the number of pairs written.

    Returns:
        Pairs of each split.

    Raises:
        DataError: if the directory cannot be written, or the grammar has fewer pairs.
    """
    return write_corpus(directory, n_pairs, seed, progress)
