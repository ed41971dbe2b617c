"""The built-in corpora as files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tformer_cli.corpora.algorithmic import TASKS, write_examples
from tformer_cli.corpora.grammar.write import write_corpus
from tformer_cli.corpora.ratings import write_ratings
from tformer_cli.corpora.shapes import write_shapes


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
