"""A corpus split into files for training, validation and testing that share no sentence."""

from array import array
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tformer_cli.errors import DataError
from tformer_cli.files.atomic import directory_aside
from tformer_cli.plugins.corpora_tools.quality.checks import is_same_text
from tformer_cli.plugins.corpora_tools.quality.clean_data import (
    REPORT,
    check_output,
    corpus_of_files,
    report_text,
)
from tformer_cli.plugins.corpora_tools.quality.examine import Progress
from tformer_cli.plugins.corpora_tools.quality.given import GivenData
from tformer_cli.plugins.corpora_tools.quality.minhash import (
    PAIRS_AT_ONCE,
    NearDuplicates,
    signatures_of_texts,
)
from tformer_cli.plugins.corpora_tools.quality.repeats import (
    Keys,
    Repeated,
    keys_of_pair,
    repeated_keys,
)
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import text_files
from tformer_cli.text.lines import ending_of
from tformer_cli.wording import count_of, is_blank

SCHEMA = "tformer.datasplit/1"
TRAIN, VALID, TEST = 0, 1, 2


SETS = {TRAIN: "train", VALID: "valid", TEST: "test"}


class TooFewApartError(DataError):
    """Too few pairs share no sentence with others to make the sets of them."""


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """Counts of each set."""

    pairs: dict[str, int]
    seed: int
    files: list[str]
    not_utf8: int = 0
    """Lines with bytes that are not UTF-8, which U+FFFD stands for in what is written."""

    def summary(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **vars(self)}


def split_data(
    inputs: GivenData,
    output: Path,
    *,
    n_valid: int,
    n_test: int,
    near: bool = False,
    seed: int = 1,
    progress: Progress | None = None,
) -> SplitReport:
    """Writes a corpus as three, whole or not at all; lines are kept as by `clean_data`."""
    corpus = corpus_of_files(inputs)
    check_output(output, SCHEMA)
    corpora = replace(inputs, keeps_rows=True)
    keys, is_poor = array("Q"), bytearray()
    texts = inputs.kind.texts
    # keys have two rows in any case, so that all kinds of corpora take one path
    both = texts if len(texts) == 2 else texts * 2  # a label or no source links no examples
    with ExitStack() as stack:
        similar = [stack.enter_context(closing(NearDuplicates())) for _ in texts if near]
        for _, chunk in corpora.chunks(progress):
            for record in chunk:
                of_sides = keys_of_pair(*record.pair)[1:]
                keys.extend(of_sides[place] for place in both)
                sides = [record.pair[place] for place in texts]
                is_copy = len(sides) == 2 and is_same_text(sides[0], sides[1])
                is_poor.append(is_copy or any(map(is_blank, sides)))
            for place, index in zip(texts, similar, strict=False):
                index.add_signatures(signatures_of_texts([record.pair[place] for record in chunk]))
        of_pairs = np.frombuffer(keys, dtype=np.uint64).reshape(-1, 2).T
        if near:
            labels = labels_of_similar(similar, len(of_pairs[0]))
            of_pairs = np.concatenate([of_pairs, labels[np.newaxis].astype(np.uint64)])
        sets = assign(of_pairs, n_valid, n_test, seed, np.frombuffer(is_poor, dtype=bool))
    names = set_names(corpus)
    files = [name for files_of_set in names.values() for name in files_of_set]
    with directory_aside(output) as aside:
        with ExitStack() as stack:
            streams = [stack.enter_context((aside / name).open("wb")) for name in files]
            n_sides, place = len(names[SETS[TRAIN]]), 0
            for _, chunk in corpora.chunks(progress, len(sets)):
                for record in chunk:
                    first = int(sets[place]) * n_sides
                    for number, line in enumerate(record.lines):
                        streams[first + number].write(line.encode() + b"\n")
                    place += 1
        counts = Counter(sets.tolist())
        report = SplitReport(
            pairs={name: counts[number] for number, name in SETS.items()},
            seed=seed,
            files=files,
            not_utf8=corpora.counts.not_utf8,
        )
        (aside / REPORT).write_bytes(report_text(report.summary()))
    return report


def set_names(corpus: CorpusConfig) -> dict[str, list[str]]:
    """Names of the files of each set."""
    return {name: [f"{name}{end}" for end in _endings(corpus)] for name in SETS.values()}


def _endings(corpus: CorpusConfig) -> list[str]:
    """Endings of the files: those of the corpus's, else its sides."""
    if corpus.dataset:
        return [".jsonl"]
    endings = [ending_of(file) for file in text_files(corpus)]
    if len(endings) == 1:
        return [endings[0] or ".txt"]
    if len(set(endings)) < len(endings) or not all(endings):
        return [".source", ".target"]
    return endings


# Of a set, pairs that may belong together in it; one pair may always.
LARGEST_SHARE = 0.01
Labels = npt.NDArray[np.int64]


def assign(
    keys: Keys,
    n_valid: int,
    n_test: int,
    seed: int,
    is_poor: npt.NDArray[np.bool_] | slice = slice(0),
) -> npt.NDArray[np.uint8]:
    """Chooses a set for each pair; those `is_poor` marks are held out if there are no others."""
    sets = np.full(keys.shape[1], TRAIN, dtype=np.uint8)
    labels = components(keys)
    known, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    # by the text and not by its place: a corpus that grows keeps most of its held-out pairs
    by_text = _mix(keys[0][first] ^ _mix(keys[1][first]), seed)
    order = np.lexsort((by_text, np.isin(known, labels[is_poor])))
    chosen = {TEST: n_test, VALID: n_valid}
    of_label = np.full(keys.shape[1], TRAIN, dtype=np.uint8)
    place = 0
    for name, wanted in chosen.items():
        # one large group, such as all greetings, would make a test set of one kind
        most = max(1, int(LARGEST_SHARE * wanted))
        n_taken = 0
        while n_taken < wanted:
            if place == len(order):
                counts = f"{count_of(n_test, 'pair')} and {count_of(n_valid, 'pair')}"
                raise TooFewApartError(
                    "--valid, --test: there are too few pairs whose sentences are in no other pair "
                    f"to hold out {counts}; hold out fewer{', or omit --near' * (len(keys) > 2)}"
                )
            group = order[place]
            place += 1
            if sizes[group] <= min(most, wanted - n_taken):
                of_label[first[group]] = name
                n_taken += int(sizes[group])
    sets[:] = of_label[labels]
    return sets


def components(keys: Keys) -> Labels:
    labels = np.arange(keys.shape[1], dtype=np.int64)
    linked = np.zeros(keys.shape[1], dtype=bool)
    for side in keys:
        linked |= Repeated(repeated_keys(side)).slots(side) >= 0
    # most pairs share nothing with others: only the linked ones are grouped
    places = np.flatnonzero(linked)
    if not len(places):
        return labels
    groups = [_groups(side[places]) for side in keys]
    firsts = np.arange(len(places), dtype=np.int64)
    while True:
        before = firsts.copy()
        for order, starts, sizes in groups:
            # the least label of each group goes to all of it
            firsts[order] = np.repeat(np.minimum.reduceat(firsts[order], starts), sizes)
        firsts = firsts[firsts]  # a label is a place: its own label is as low or lower
        if np.array_equal(firsts, before):
            break
    labels[places] = places[firsts]
    return labels


def labels_of_similar(sides: Sequence[NearDuplicates], n_pairs: int) -> Labels:
    """Labels pairs that are nearly the same on one side, directly or through others."""
    parents = np.arange(n_pairs, dtype=np.int64)

    def first_of(place: int) -> int:
        while parents[place] != place:
            parents[place] = place = parents[parents[place]]
        return place

    for side in sides:
        side.finish()
        for start in range(0, n_pairs, PAIRS_AT_ONCE):
            places = range(start, min(start + PAIRS_AT_ONCE, n_pairs))
            side.look_up(places)
            for row, place in enumerate(places):
                for other in side.like(row):
                    parents[first_of(place)] = first_of(other)
                side.see(row)
    return np.array([first_of(place) for place in range(n_pairs)], dtype=np.int64)


def _groups(keys: Keys) -> Sequence[Labels]:
    """Places in the order of their keys, where each key begins there, and how often it is."""
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
    return order, starts, np.diff(np.append(starts, len(keys)))


def _mix(keys: Keys, seed: int = 0) -> Keys:
    """Mixes numbers of 64 bits (the finalizer of SplitMix64, Steele et al. 2014)."""
    mixed = keys + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % (1 << 64))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    hashes: Keys = mixed ^ (mixed >> np.uint64(31))
    return hashes
