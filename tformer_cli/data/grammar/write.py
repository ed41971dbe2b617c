"""Write the built-in corpus to a directory."""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from tformer_cli.data.grammar.generate import generate_corpus
from tformer_cli.data.grammar.pair import AlignedPair
from tformer_cli.errors import DataError

SPLITS = ("train", "valid", "test")
SUFFIXES = ("en", "fr", "tok.en", "tok.fr", "align")
PROGRESS_EVERY = 1000


def write_corpus(
    directory: Path,
    n_pairs: int = 50_000,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Write ``train|valid|test`` with the suffixes ``.en .fr .tok.en .tok.fr .align``.

    Every file is written aside and renamed when all are complete, so an interrupted run leaves
    files of the same names as they were.

    Args:
        directory: created if missing.
        n_pairs: number of training pairs.
        seed: of the generator.
        progress: called with the number of pairs written so far, now and then and at the end.

    Returns:
        The number of pairs of each split.

    Raises:
        DataError: if the directory cannot be written or ``n_pairs`` is out of range.
    """
    stream = generate_corpus(n_pairs, seed)
    counts = dict.fromkeys(SPLITS, 0)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        names = [f"{split}.{suffix}" for split in SPLITS for suffix in SUFFIXES]
        partial = {name: directory / f".{name}.{os.getpid()}.partial" for name in names}
        try:
            with ExitStack() as stack:
                files = {
                    name: stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
                    for name, path in partial.items()
                }
                for total, (split, pair) in enumerate(stream, start=1):
                    _write_pair(files, split, pair)
                    counts[split] += 1
                    if progress and total % PROGRESS_EVERY == 0:
                        progress(total)
                for file in files.values():
                    file.flush()
                    os.fsync(file.fileno())
            for name, path in partial.items():
                path.replace(directory / name)
        finally:
            for path in partial.values():
                path.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"cannot be written ({directory}): {reason.lower()}; name a directory you can write to"
        ) from error
    if progress:
        progress(sum(counts.values()))
    return counts


def _write_pair(files: Mapping[str, TextIO], split: str, pair: AlignedPair) -> None:
    files[f"{split}.en"].write(pair.source + "\n")
    files[f"{split}.fr"].write(pair.target + "\n")
    files[f"{split}.tok.en"].write(" ".join(pair.source_words) + "\n")
    files[f"{split}.tok.fr"].write(" ".join(pair.target_words) + "\n")
    files[f"{split}.align"].write(pair.pharaoh() + "\n")
