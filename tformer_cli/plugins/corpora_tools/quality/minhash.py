"""Pairs that are nearly the same as an earlier one, by MinHash with bands (Broder 1997).

The Jaccard similarity of two pairs' four-letter sequences is the chance that a random function has
the same least value on both. Of `HASHES` functions `ROWS` make a band; pairs that agree in a whole
band are compared (Leskovec et al., Mining of Massive Datasets, section 3.4).
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice

import numpy as np
import numpy.typing as npt

from tformer_cli.files.atomic import scratch_errors, scratch_file
from tformer_cli.plugins.corpora_tools.quality.repeats import (
    NEVER,
    KeyFiles,
    Keys,
    Repeated,
    key_of,
    normalize_text,
)
from tformer_cli.text.corpora import SentencePair
from tformer_cli.wording import is_blank

HASHES, ROWS, GRAM = 64, 4, 4
BANDS = HASHES // ROWS
LEAST_SIMILARITY = 0.7
"""Share of equal hashes, an estimate of the similarity, from which on pairs are nearly the same."""
BETWEEN_SIDES = "\x00"
# Pairs whose hashes are computed together: their numbers fit a processor's cache.
PAIRS_AT_ONCE = 256

Signatures = npt.NDArray[np.uint32]
_BYTES = 4 * HASHES
"""Bytes of a pair's signature."""

_NUMBERS = np.random.default_rng(1).integers(1, 1 << 63, (2, HASHES), dtype=np.uint64) * 2 + 1
_MULTIPLIERS, _SUMMANDS = _NUMBERS
_POWERS = np.array([pow(0x9E3779B97F4A7C15, n, 1 << 64) for n in range(GRAM)], dtype=np.uint64)


def signatures(pairs: Sequence[SentencePair]) -> Signatures:
    """Computes the least hashes of pairs, as `signatures_of_texts` those of texts."""
    return _signatures([BETWEEN_SIDES.join(map(normalize_text, pair)) for pair in pairs])


def signatures_of_texts(texts: Sequence[str]) -> Signatures:
    """Computes the least hashes of texts by a·x + b modulo 2^64 (Dietzfelbinger 1996)."""
    return _signatures([*map(normalize_text, texts)])


def bands(block: Signatures) -> Keys:
    """Makes a key of each band of signatures: (BANDS, pairs)."""
    rows = block.reshape(len(block), BANDS, ROWS).astype(np.uint64)
    keys = np.zeros((len(block), BANDS), dtype=np.uint64)
    for row in range(ROWS):
        keys = (keys ^ rows[:, :, row]) * _MULTIPLIERS[row]
        # products mix into the upper bits only; a band is compared by all of them
        keys ^= keys >> np.uint64(29)
    return keys.T


class NearDuplicates:
    """Signatures in a file, and an index of their bands."""

    def __init__(self) -> None:
        # 256 bytes a pair would not fit memory for hundreds of millions of pairs
        self._file = scratch_file()
        self._bands = KeyFiles(BANDS)
        self._repeated: list[Repeated] = []
        self._n_looked_up = 0
        self._looked_up: Signatures = np.empty((0, HASHES), dtype=np.uint32)
        self._places = Places()
        self._slots: npt.NDArray[np.int64] = np.empty((0, BANDS), dtype=np.int64)

    def add(self, pairs: Sequence[SentencePair]) -> None:
        self.add_signatures(signatures(pairs))

    def add_signatures(self, block: Signatures) -> None:
        """Stores the signatures of pairs or texts in the first pass: (pairs, HASHES)."""
        with scratch_errors():
            self._file.write(block.tobytes())
        self._bands.add(bands(block))

    def finish(self) -> None:
        with scratch_errors():
            self._file.flush()
        self._repeated = self._bands.find_repeats()

    def look_up(self, places: Sequence[int]) -> None:
        """Finds the bands of the next pairs of the second pass."""
        block = self._looked_up = self._read(self._n_looked_up, len(places))
        self._places.extend(places)
        self._n_looked_up += len(places)
        rows = (table.slots(keys) for table, keys in zip(self._repeated, bands(block), strict=True))
        self._slots = np.stack(list(rows), axis=1)

    def before(self, number: int) -> tuple[int, float] | None:
        """Finds the most similar earlier pair of those that a band was first seen in."""
        similar = self.like(number)
        if not similar:
            return None
        best = max(similar, key=lambda earlier: similar[earlier])
        return self._places.of(best), similar[best]

    def like(self, number: int) -> dict[int, float]:
        """Finds similar earlier pairs among those that a band was first seen in."""
        slots = self._slots[number]
        # the first pair of a band stands for all of it: else a text that recurs a million times
        # would be compared with each of them
        candidates = {
            self._repeated[band].first(slots[band]) for band in np.flatnonzero(slots >= 0)
        } - {NEVER}
        if not candidates:
            return {}
        numbers = sorted(candidates)
        before = np.concatenate([self._read(earlier, 1) for earlier in numbers])
        similar = (before == self._looked_up[number]).mean(axis=1).tolist()
        return {
            earlier: share
            for earlier, share in zip(numbers, similar, strict=True)
            if share >= LEAST_SIMILARITY
        }

    def see(self, number: int) -> None:
        """Remembers a kept pair, for those that follow."""
        for band in np.flatnonzero(self._slots[number] >= 0):
            self._repeated[band].see(self._slots[number, band], self._number(number))

    def close(self) -> None:
        with suppress(OSError):  # no room for the rest, which no one reads any more
            self._file.close()
        self._bands.close()

    def _number(self, number: int) -> int:
        """The number among all pairs of one of those looked up."""
        return self._n_looked_up - len(self._slots) + number

    def _read(self, number: int, n_pairs: int) -> Signatures:
        """Reads the signatures of pairs that follow each other: (pairs, HASHES)."""
        self._file.seek(number * _BYTES)
        numbers = np.frombuffer(self._file.read(n_pairs * _BYTES), dtype=np.uint32)
        return numbers.reshape(-1, HASHES)


class SimilarTexts:
    """An index in memory of some texts, 0.4 KB for each, that others are compared with."""

    def __init__(self, block: Signatures) -> None:
        keys = bands(block)
        self._signatures = block
        self._orders = keys.argsort(axis=1).astype(np.int32)
        self._keys = np.take_along_axis(keys, self._orders, axis=1)

    def similarities(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Estimates how similar texts are to the most similar of the index that shares a band."""
        block, best = signatures_of_texts(texts), np.zeros(len(texts))
        for keys, order, ours in zip(self._keys, self._orders, bands(block), strict=True):
            starts, ends = np.searchsorted(keys, ours), np.searchsorted(keys, ours, side="right")
            for place in np.flatnonzero(starts < ends):
                theirs = self._signatures[order[starts[place] : ends[place]]]
                best[place] = max(best[place], (theirs == block[place]).mean(axis=1).max())
        return np.where(best >= LEAST_SIMILARITY, best, 0.0)


class Places:
    """Places of the pairs of a stream, by number; most are right behind the one before."""

    def __init__(self) -> None:
        self._n_pairs = 0
        self._starts: list[int] = []
        self._first: list[int] = []

    def extend(self, places: Sequence[int]) -> None:
        for number, place in enumerate(places, self._n_pairs):
            if not self._starts or place - self._first[-1] != number - self._starts[-1]:
                self._starts.append(number)
                self._first.append(place)
        self._n_pairs += len(places)

    def of(self, number: int) -> int:
        run = bisect_right(self._starts, number) - 1
        return self._first[run] + number - self._starts[run]


def _signatures(texts: Sequence[str]) -> Signatures:
    parts = [
        _signatures_of_chunk(texts[n : n + PAIRS_AT_ONCE])
        for n in range(0, len(texts), PAIRS_AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.empty((0, HASHES), dtype=np.uint32)


def _signatures_of_chunk(texts: Sequence[str]) -> Signatures:
    texts = [text.ljust(GRAM) for text in texts]
    lengths = np.array([len(text) for text in texts])
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    codes = codes.astype(np.uint64) + np.uint64(1)
    n_grams = len(codes) - GRAM + 1
    grams = np.zeros(n_grams, dtype=np.uint64)
    for place, power in enumerate(_POWERS):
        grams += codes[place : place + n_grams] * power
    grams ^= grams >> np.uint64(31)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    # Sequences that reach into the next pair get the value of the pair's first one
    owners = np.repeat(np.arange(len(texts)), lengths)[:n_grams]
    reaching = np.arange(n_grams) > (starts + lengths - GRAM)[owners]
    grams[reaching] = grams[starts[owners[reaching]]]
    block = np.empty((len(texts), HASHES), dtype=np.uint32)
    for number in range(HASHES):
        # only the upper half of a product is as good as random
        hashes = (grams * _MULTIPLIERS[number] + _SUMMANDS[number]) >> np.uint64(32)
        block[:, number] = np.minimum.reduceat(hashes, starts)
    return block


READ_AT_ONCE = 4096
"""Sentences whose signatures are computed together."""


class HeldOut:
    """Keys of sentences, and with `near` their signatures."""

    def __init__(self, sentences: Iterable[str] = (), *, near: bool = False) -> None:
        keys, parts = set[int](), [signatures_of_texts([])]
        filled = (sentence for sentence in sentences if not is_blank(sentence))
        while batch := list(islice(filled, READ_AT_ONCE)):
            # repeated sentences need one signature
            new = {key_of(normalize_text(sentence)): sentence for sentence in batch}
            if near:
                parts.append(signatures_of_texts([new[key] for key in new.keys() - keys]))
            keys |= new.keys()
        self.keys = frozenset(keys)
        self._similar = SimilarTexts(np.concatenate(parts)) if near and keys else None

    def nearly(self, texts: Sequence[str]) -> list[float]:
        """Returns how similar each text is to a sentence; 0 if not nearly the same."""
        if self._similar is None:
            return [0.0] * len(texts)
        similarities: list[float] = self._similar.similarities(texts).tolist()
        return similarities
