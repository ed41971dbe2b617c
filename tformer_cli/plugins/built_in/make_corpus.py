"""The built-in corpora as files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tformer_cli.plugins.built_in.algorithmic import TASKS, write_examples
from tformer_cli.plugins.built_in.grammar.generate import generate_corpus, split_sizes
from tformer_cli.plugins.built_in.grammar.surface import AlignedPair
from tformer_cli.plugins.built_in.ratings import write_ratings
from tformer_cli.plugins.built_in.shapes import write_shapes
from tformer_cli.plugins.built_in.splits import write_splits

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


@dataclass(frozen=True, kw_only=True)
class BuiltIn:
    """A built-in corpus."""

    write: Callable[[Path, int, int, Callable[[int], None] | None], dict[str, int]]
    """Takes the directory, examples for training, a seed and a callback; counts each split."""
    n_train: int
    """Examples for training, if nothing else is asked for."""
    unit: str


def _algorithmic(name: str) -> BuiltIn:
    def write(
        directory: Path, n_pairs: int, seed: int, progress: Callable[[int], None] | None
    ) -> dict[str, int]:
        return write_examples(directory, name, n_pairs, seed, progress)

    return BuiltIn(write=write, n_train=4000, unit="strings")


BUILT_IN: Mapping[str, BuiltIn] = MappingProxyType(
    {
        "translate": BuiltIn(write=write_corpus, n_train=50_000, unit="pairs"),
        "rating": BuiltIn(write=write_ratings, n_train=8000, unit="sentences"),
        **{name: _algorithmic(name) for name in TASKS},
        "image": BuiltIn(write=write_shapes, n_train=6000, unit="pictures"),
    }
)


def make_corpus(
    directory: Path,
    n_pairs: int | None = None,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
    *,
    task: str = "translate",
) -> dict[str, int]:
    chosen = BUILT_IN[task]
    return chosen.write(directory, n_pairs or chosen.n_train, seed, progress)
