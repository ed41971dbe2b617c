"""Lexical shortlists of Marian's models, in tformer's ids."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tformer_cli.converters.assembly import Rows
from tformer_cli.converters.formats.lexical_shortlist import (
    LexicalShortlist,
    read_binary_shortlist,
    read_text_shortlist,
)
from tformer_cli.converters.marian.source import MarianSource, names_of
from tformer_cli.data.tokenizer import UNK_ID
from tformer_cli.decoding.shortlist import Shortlist
from tformer_cli.errors import ArtifactError


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
