"""Numbers that occur more than once in a stream of any length, and where they occurred first."""

import os
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from tformer_cli.files.atomic import scratch_errors, scratch_file

Keys: TypeAlias = npt.NDArray[np.uint64]
# In place of a first place: not seen yet.
NEVER = -1
# Keys that are sorted together, about: 8 MB.
SORTED_AT_ONCE = 1 << 20
# Keys that are read together: 1 MB.
READ_AT_ONCE = 1 << 17


class KeyFiles:
    """Files of keys, one for each kind, that a first pass fills."""

    def __init__(self, n_kinds: int) -> None:
        self._files = [scratch_file() for _ in range(n_kinds)]

    def add(self, keys: Keys) -> None:
        """Adds keys: (kinds, pairs)."""
        with scratch_errors():
            for file, row in zip(self._files, keys, strict=True):
                file.write(row.tobytes())

    def find_repeats(self) -> list["Repeated"]:
        """Finds the keys of each kind that occur more than once, and closes the files."""
        tables = []
        for file in self._files:
            with file:
                tables.append(Repeated(_keys_that_recur(file)))
        return tables

    def close(self) -> None:
        for file in self._files:
            with suppress(OSError):  # no room for the rest, which no one reads any more
                file.close()


def _keys_that_recur(file: BinaryIO) -> Keys:
    """Reads a file once for each part of its keys: their hashes spread evenly over the parts."""
    with scratch_errors():
        n_keys = file.seek(0, os.SEEK_END) // 8
    # reading the file again for each part costs less than sorting it on the disk
    bits = max(0, (n_keys - 1) // SORTED_AT_ONCE).bit_length()
    parts = []
    for part in range(1 << bits):
        keys = np.concatenate([np.empty(0, dtype=np.uint64), *_keys_of_part(file, part, bits)])
        parts.append(repeated_keys(keys))
    return np.concatenate(parts)


def repeated_keys(keys: Keys) -> Keys:
    """Returns the keys that occur more than once, in order."""
    in_order = np.sort(keys)
    return np.unique(in_order[1:][in_order[1:] == in_order[:-1]])


def _keys_of_part(file: BinaryIO, part: int, bits: int) -> Iterator[Keys]:
    file.seek(0)
    while data := file.read(8 * READ_AT_ONCE):
        keys = np.frombuffer(data, dtype=np.uint64)
        yield keys[keys >> np.uint64(64 - bits) == part] if bits else keys


class Repeated:
    """Keys that occur more than once, each with the place where it was first seen."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._first = np.full(len(keys), NEVER, dtype=np.int64)

    def slots(self, keys: Keys) -> npt.NDArray[np.int64]:
        """Finds keys among those that occur more than once; -1 for the others."""
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        places = np.searchsorted(self._keys, keys)
        places[places == len(self._keys)] = 0
        return np.where(self._keys[places] == keys, places, -1)

    def first(self, slot: int) -> int:
        return int(self._first[slot])

    def see(self, slot: int, place: int) -> None:
        """Notes that the key of a slot is at a place, unless it was seen before."""
        if self._first[slot] == NEVER:
            self._first[slot] = place


# Signs that Unicode files under punctuation, but that carry meaning as symbols do: C#, 50%, km/h.
_SYMBOLS = "#%&*/@\\‰‱§¶†‡′※٪؉؊"


class _Kept(dict[int, int | None]):
    """Characters that count wherever they stand: letters, marks, digits and symbols."""

    def __missing__(self, code: int) -> int | None:
        is_kept = unicodedata.category(chr(code))[0] in "LMNS" and chr(code) != "`"
        kept = code if is_kept or chr(code) in _SYMBOLS else None
        self[code] = kept
        return kept


_KEPT = _Kept()
# Punctuation that is part of a number: between digits, a sign before one, the minus of a grade
# ("A-"), a point that begins one, the sign of an exponent (1e-5). Where \W is first, `re` skips
# words quickly.
_NUMBER_SIGNS = re.compile(
    r"(\W(?:(?<=\d\W)\W*(?=\d)"
    r"|(?<=[-‐‒–—])(?:(?<!\w.)(?=[^\w\s]?\d)|(?<=\b[^\W\d_].)(?!\w))"
    r"|(?<=[.,])(?<![\w.].)(?=\d)|(?<=\de[-‐‒–—])(?=\d)))"
)
_IN_NUMBERS = str.maketrans("-‐‒–—’", "−−−−−'")
# Behind a digit these are no digits of the same number: NFKC would make 102 of 10².
_RAISED = re.compile(r"(?<=\d)(?=[⁰¹²³⁴-⁹⁺⁻¼-¾⅐-⅞₀-₉])")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")


@lru_cache(maxsize=1 << 14)  # keys of many pairs are made before their checks
def normalize_text(text: str) -> str:
    """Normalizes a text for comparison: lower case and NFKC, without spaces and punctuation.

    Symbols count, and so do the signs and separators of numbers: $5, €5, -5 and 5 differ.
    """
    # ASCII is in that form already, and most text of many corpora is ASCII
    folded = text.casefold()
    if not text.isascii():
        visible = _RAISED.sub("^", _INVISIBLE.sub("", text))
        folded = unicodedata.normalize("NFKC", visible).casefold().replace("⁄", "/")
    parts = _NUMBER_SIGNS.split(folded)
    parts[::2] = (part.translate(_KEPT) for part in parts[::2])
    parts[1::2] = ("".join(part.split()).translate(_IN_NUMBERS) for part in parts[1::2])
    # texts of nothing but punctuation would all be the same empty text
    return "".join(parts) or text.strip()


def key_of(text: str) -> int:
    # 64 bits: two of ten million keys are equal by chance in one of 370,000 corpora
    return int.from_bytes(
        blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little"
    )


def keys_of_pair(source: str, target: str) -> tuple[int, int, int]:
    source, target = normalize_text(source), normalize_text(target)
    # the length tells "ab" + "c" from "a" + "bc"
    return key_of(f"{len(source)} {source}{target}"), key_of(source), key_of(target)
