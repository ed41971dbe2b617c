"""Lexical shortlists: for each source token the target tokens that may translate it.

The binary form is Bergamot's: six 64-bit numbers (magic, checksum, number of the most frequent
tokens that always belong, tokens kept for a source token, number of offsets, number of listed
tokens), the offsets as 64-bit, the lists as 32-bit numbers. The text form has a line
``target source probability`` for a pair.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.foreign.assembly import Rows
from tformer_cli.foreign.formats.mapped_file import MappedFile
from tformer_cli.foreign.marian.layout import MarianSource, names_of
from tformer_cli.search.shortlist import Shortlist
from tformer_cli.text.lines import read_lines
from tformer_cli.text.tokenizer import UNK_ID

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


def read_shortlist(
    source: MarianSource, rows: tuple[Rows, Rows]
) -> tuple[tuple[Path, ...], Shortlist | None]:
    """Reads the shortlist that the decoder's settings name, in tformer's ids.

    Where both sides have one vocabulary, Marian lets every source token be copied.
    """
    named = names_of(source.settings, "shortlist")
    path = source.model.parent / (named[0] if named else "")
    if not named or not path.is_file():
        return (), None
    sources, targets = (np.array(side.foreign) for side in rows)
    n_targets = int(targets.max()) + 1
    if path.suffix == ".bin":
        read = read_binary_shortlist(path, n_targets)
    else:
        read = _text_shortlist(path, named[1:], rows)
    if len(read.offsets) - 1 < int(sources.max()) + 1:
        raise ArtifactError(f"{path}: is of another vocabulary; use this model's own")
    ours = np.empty(n_targets, np.int32)
    places = np.flatnonzero(targets >= 0)
    ours[targets[places]] = places
    is_joint = rows[0].pieces == rows[1].pieces
    lists = []
    for place, n in enumerate(sources.tolist()):
        own = ours[read.targets[read.offsets[n] : read.offsets[n + 1]]] if n >= 0 else ours[:0]
        lists.append(np.unique(np.append(own, place) if is_joint and n >= 0 else own))
    # the first foreign ids are among the first of ours: those of special tokens stand before
    first = int(ours[: read.n_frequent].max(initial=-1)) + 1
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return (path,), Shortlist(first, offsets, np.concatenate(lists).astype(np.int32))


def _text_shortlist(
    path: Path, settings: Sequence[str], rows: tuple[Rows, Rows]
) -> LexicalShortlist:
    """Reads a shortlist in text, in foreign ids."""
    given = dict(zip(("n_frequent", "n_best", "threshold"), settings, strict=False))
    try:
        n_frequent, n_best = (int(given.get(name, 100)) for name in ("n_frequent", "n_best"))
        threshold = float(given.get("threshold", 0.0))
    except ValueError:
        raise ArtifactError(
            f"{path}: its settings ({', '.join(settings)}) are not numbers; correct the decoder's "
            "settings"
        ) from None
    ids = [dict(zip(side.pieces, side.foreign, strict=True)) for side in rows]
    unknown = [side.foreign[UNK_ID] for side in rows]
    return read_text_shortlist(
        path,
        lambda piece: ids[0].get(piece, unknown[0]),
        lambda piece: ids[1].get(piece, unknown[1]),
        max(rows[0].foreign) + 1,
        n_frequent=n_frequent,
        n_best=n_best,
        threshold=threshold,
    )


def renumbered(
    shortlist: Shortlist, sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> LexicalShortlist:
    """Puts a shortlist of tformer's into Marian's ids."""
    theirs = np.full(max(int(targets.max()), int(shortlist.targets.max(initial=0))) + 1, -1)
    theirs[targets] = np.arange(len(targets))
    lists = []
    for token in sources.tolist():
        own = theirs[shortlist.targets[shortlist.offsets[token] : shortlist.offsets[token + 1]]]
        lists.append(np.unique(own[own >= 0]))
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    n_frequent = int(theirs[: shortlist.first].max(initial=-1)) + 1
    return LexicalShortlist(n_frequent, offsets, np.concatenate(lists).astype(np.int64))


def read_binary_shortlist(path: Path, n_targets: int) -> LexicalShortlist:
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
