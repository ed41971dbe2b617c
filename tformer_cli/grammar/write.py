"""Write the built-in corpus to a directory."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TextIO

from tformer_cli.errors import DataError
from tformer_cli.files.aside import aside_of
from tformer_cli.files.regular_file import open_regular
from tformer_cli.grammar.generate import Split, generate_corpus, split_sizes
from tformer_cli.grammar.surface import AlignedPair

SPLITS = ("train", "valid", "test")
SUFFIXES = ("en", "fr", "tok.en", "tok.fr", "align")
NAMES = tuple(f"{split}.{suffix}" for split in SPLITS for suffix in SUFFIXES)
PROGRESS_EVERY = 1000


def write_corpus(
    directory: Path,
    n_pairs: int = 50_000,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Write ``train|valid|test`` with the suffixes ``.en .fr .tok.en .tok.fr .align``.

    Every file is written aside and renamed when all are complete, so an interrupted run leaves
    files of the same names as they were. A corpus that was written before is replaced, other files
    of these names are not.

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
    missing = [path for path in (directory, *directory.parents) if not os.path.lexists(path)]
    try:
        _check_ours(directory)
        directory.mkdir(parents=True, exist_ok=True)
        partial = {name: aside_of(directory / f".{name}") for name in NAMES}
        try:
            counts = _write_splits(generate_corpus(n_pairs, seed), partial, progress)
            # Renamed only when all are complete: a kill before this leaves the old corpus
            for name, path in partial.items():
                path.replace(directory / name)
        finally:
            for path in partial.values():
                path.unlink(missing_ok=True)
    except (OSError, DataError) as error:
        # Directories made for this corpus are removed again, the innermost first
        for path in missing:
            with suppress(OSError):
                path.rmdir()
        if isinstance(error, DataError):
            raise
        reason = error.strerror or str(error)
        raise DataError(
            f"{directory}: cannot be written ({reason.lower()}); name a directory that you "
            "can write to"
        ) from error
    if progress:
        progress(sum(counts.values()))
    return counts


def _write_splits(
    pairs: Iterable[tuple[Split, AlignedPair]],
    paths: Mapping[str, Path],
    progress: Callable[[int], None] | None,
) -> dict[str, int]:
    """Writes all pairs to open files, flushed to the disk; returns the pairs of each split."""
    counts = dict.fromkeys(SPLITS, 0)
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
            for name, path in paths.items()
        }
        for total, (split, pair) in enumerate(pairs, start=1):
            _write_pair(files, split, pair)
            counts[split] += 1
            if progress and total % PROGRESS_EVERY == 0:
                progress(total)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    return counts


def _check_ours(directory: Path) -> None:
    """Checks that files which would be replaced are those of a whole corpus.

    Raises:
        DataError: if they are not.
    """
    there = [name for name in NAMES if os.path.lexists(directory / name)]
    if not there or (
        len(there) == len(NAMES) and all(_is_aligned(directory, split) for split in SPLITS)
    ):
        return
    named = ", ".join(there[:3]) + (" …" if len(there) > 3 else "")
    raise DataError(
        f"{directory}: holds {named}, which this command did not write and would replace; name "
        "another directory"
    )


def _is_aligned(directory: Path, split: str) -> bool:
    """True if the files of a split have equally many lines, as those written here have."""
    counts = set()
    for suffix in SUFFIXES:
        with open_regular(directory / f"{split}.{suffix}") as file:
            counts.add(sum(1 for _ in file))
    return len(counts) == 1


def _write_pair(files: Mapping[str, TextIO], split: str, pair: AlignedPair) -> None:
    files[f"{split}.en"].write(pair.source + "\n")
    files[f"{split}.fr"].write(pair.target + "\n")
    files[f"{split}.tok.en"].write(" ".join(pair.source_words) + "\n")
    files[f"{split}.tok.fr"].write(" ".join(pair.target_words) + "\n")
    files[f"{split}.align"].write(pair.pharaoh() + "\n")
