"""Lexical shortlists: for each source token the target tokens that may translate it.

The binary form is Bergamot's: six 64-bit numbers (magic, checksum, number of the most frequent
tokens that always belong, tokens kept for a source token, number of offsets, number of listed
tokens), the offsets as 64-bit, the lists as 32-bit numbers. The text form has a line
``target source probability`` for a pair.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tformer_cli.converters.formats.mapped_file import MappedFile
from tformer_cli.data.lines import read_lines
from tformer_cli.errors import DataError

MAGIC = 0xF11A48D5013417F5


@dataclass(frozen=True)
class LexicalShortlist:
    """Target tokens by source token."""

    n_frequent: int
    """The first ids of the target vocabulary, which belong to every sentence's list."""
    offsets: NDArray[np.int64]
    """(V + 1) where the list of each source token begins in `targets`, and the last one ends."""
    targets: NDArray[np.int64]
    """Target ids, list after list, ascending in each."""


def read_binary_shortlist(path: Path, n_targets: int) -> LexicalShortlist:
    """Reads a shortlist of Bergamot."""
    file = MappedFile(path, "a lexical shortlist")
    magic, _, n_frequent, _, n_offsets, n_listed = file.numbers("<u8", 6)
    if magic != MAGIC:
        raise file.damaged("it does not begin as one")
    offsets = file.array("<u8", (n_offsets,))
    targets = file.array("<u4", (n_listed,))
    if (
        not n_offsets
        or offsets[0] != 0
        or offsets[-1] != n_listed
        or (offsets[1:] < offsets[:-1]).any()
    ):
        raise file.damaged("its lists overlap")
    if n_frequent > n_targets or (n_listed and int(targets.max()) >= n_targets):
        raise file.damaged(f"it lists tokens beyond a vocabulary of {n_targets:,} entries")
    return LexicalShortlist(n_frequent, offsets.astype(np.int64), targets.astype(np.int64))


def binary_shortlist(shortlist: LexicalShortlist) -> bytes:
    """Returns the content of the binary form; its checksum is 0, which readers must not check."""
    n_best = int(np.diff(shortlist.offsets).max(initial=0))
    sizes = len(shortlist.offsets), len(shortlist.targets)
    head = np.array([MAGIC, 0, shortlist.n_frequent, n_best, *sizes], "<u8")
    parts = head, shortlist.offsets.astype("<u8"), shortlist.targets.astype("<u4")
    return b"".join(part.tobytes() for part in parts)


def read_text_shortlist(
    path: Path,
    source_id: Callable[[str], int],
    target_id: Callable[[str], int],
    n_sources: int,
    *,
    n_frequent: int = 100,
    n_best: int = 100,
    threshold: float = 0.0,
) -> LexicalShortlist:
    """Reads the lines ``target source probability`` of Marian's `--shortlist`."""
    lists: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split()
        try:
            target, source, text = fields
            probability = float(text)
        except ValueError:
            raise _not_an_entry(path, number) from None
        if not math.isfinite(probability):
            raise _not_an_entry(path, number)
        if "NULL" in (target, source) or probability <= threshold:
            continue
        probabilities, key = lists[source_id(source)], target_id(target)
        probabilities[key] = max(probability, probabilities.get(key, 0.0))
    kept = [
        sorted(sorted(entries, key=entries.__getitem__, reverse=True)[:n_best])
        for entries in (lists.get(token, {}) for token in range(n_sources))
    ]
    offsets = np.cumsum([0, *map(len, kept)], dtype=np.int64)
    targets = np.array([target for some in kept for target in some], dtype=np.int64)
    return LexicalShortlist(n_frequent, offsets, targets)


def _not_an_entry(path: Path, number: int) -> DataError:
    return DataError(
        f"{path}, line {number}: is not `target source probability`; copy the shortlist again"
    )
