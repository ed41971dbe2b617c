"""Files of a corpus with splits: `train|valid|test` with several endings, line by line."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tformer_cli.errors import DataError
from tformer_cli.files.atomic import aside_of
from tformer_cli.files.regular_file import open_regular

SPLITS = ("train", "valid", "test")
PROGRESS_EVERY = 1000


def write_splits(
    directory: Path,
    suffixes: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Writes `train|valid|test` with some endings.

    Every file is written aside and renamed when all are complete, so an interrupted run leaves
    files of the same names as they were. A corpus that was written before is replaced, other files
    of these names are not.
    """
    missing = [path for path in (directory, *directory.parents) if not os.path.lexists(path)]
    names = [f"{split}.{suffix}" for split in SPLITS for suffix in suffixes]
    try:
        _check_ours(directory, suffixes)
        directory.mkdir(parents=True, exist_ok=True)
        partial = {name: aside_of(directory / f".{name}") for name in names}
        try:
            counts = _write(rows, suffixes, partial, progress)
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
    if progress is not None:
        progress(sum(counts.values()))
    return counts


def _write(
    rows: Iterable[tuple[str, Sequence[str]]],
    suffixes: Sequence[str],
    paths: Mapping[str, Path],
    progress: Callable[[int], None] | None,
) -> dict[str, int]:
    """Writes all examples to files, flushed to the disk; returns those of each split."""
    counts = dict.fromkeys(SPLITS, 0)
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
            for name, path in paths.items()
        }
        for total, (split, lines) in enumerate(rows, start=1):
            for suffix, line in zip(suffixes, lines, strict=True):
                files[f"{split}.{suffix}"].write(line + "\n")
            counts[split] += 1
            if progress is not None and total % PROGRESS_EVERY == 0:
                progress(total)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    return counts


def _check_ours(directory: Path, suffixes: Sequence[str]) -> None:
    """Checks that files which would be replaced are those of a whole corpus."""
    names = [f"{split}.{suffix}" for split in SPLITS for suffix in suffixes]
    there = [name for name in names if os.path.lexists(directory / name)]
    are_whole = len(there) == len(names) and all(
        _is_aligned(directory, split, suffixes) for split in SPLITS
    )
    if not there or are_whole:
        return
    named = ", ".join(there[:3]) + (" …" if len(there) > 3 else "")
    raise DataError(
        f"{directory}: holds {named}, which this command did not write and would replace; name "
        "another directory"
    )


def _is_aligned(directory: Path, split: str, suffixes: Sequence[str]) -> bool:
    """True if the files of a split have equally many lines, as those written here have."""
    counts = set()
    for suffix in suffixes:
        with open_regular(directory / f"{split}.{suffix}") as file:
            counts.add(sum(1 for _ in file))
    return len(counts) == 1
