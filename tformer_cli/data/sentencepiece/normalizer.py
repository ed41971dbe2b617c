"""Text before it is cut into pieces, as SentencePiece normalizes it.

Its table of replacements (`precompiled_charsmap`) is a trie in a double array (Aoe 1989), in the
format of the darts-clone library, followed by the replacements, each ended by a zero byte. At every
place the longest key that the text begins with there is replaced.
"""

import struct
from collections.abc import Iterator
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from tformer_cli.data.sentencepiece.spm_file import SPACE, USER_DEFINED, SpmModel, any_of
from tformer_cli.errors import DataError

LONGEST_KEY, LONGEST_REPLACEMENT, LARGEST_TRIE = 256, 1024, 1 << 24
"""Bytes; beyond any real table, they bound what a hostile one costs."""
Place = tuple[int, int]
"""First character, and the one after the last."""
Part = tuple[str, int, int]
"""Normalized text, and the place of the characters that it is from."""
_AT_ONCE = 1 << 12
"""Units whose children are sought together, in some megabytes."""
_LABEL, _HAS_VALUE = 0x800000FF, 0x100
"""Bits of a unit: the byte that leads to it, and whether a key ends there."""


class CharacterTable:
    """The replacements: the longest key at a place, and what stands for it."""

    def __init__(self, charsmap: bytes, where: str) -> None:
        """Reads a table; `where` is what messages call its file.

        Raises:
            DataError: if it is damaged.
        """
        self._where = where
        size = struct.unpack_from("<I", charsmap)[0] if len(charsmap) >= 4 else 0
        if size < 4 or size % 4 or size + 4 > len(charsmap) or size > LARGEST_TRIE:
            raise self._damaged()
        units = np.frombuffer(charsmap, "<u4", size // 4, 4).astype(np.int64)
        self.keeps_ascii = _keeps_ascii(units)
        self.keeps_spaces = not len(_children(units, _bases(units), np.array([0x20])))
        self._units: list[int] = units.tolist()
        self._texts = charsmap[4 + size :]

    def longest(self, text: bytes, at: int) -> tuple[int, str] | None:
        """The length of the longest key at a place, and its replacement.

        Raises:
            DataError: if the table is damaged.
        """
        units, found = self._units, None
        place = _offset(units[0])
        try:
            for end in range(at, min(len(text), at + LONGEST_KEY)):
                byte = text[end]
                place ^= byte
                unit = units[place]
                if unit & _LABEL != byte:
                    break
                place ^= _offset(unit)
                if unit & _HAS_VALUE:
                    found = end + 1, units[place] & 0x7FFFFFFF
        except IndexError:
            raise self._damaged() from None
        if found is None:
            return None
        end, start = found
        if text[end : end + 1] and text[end] & 0xC0 == 0x80:  # inside a character
            raise self._damaged()
        return end - at, self._replacement(start)

    def _replacement(self, start: int) -> str:
        end = self._texts.find(b"\0", start, start + LONGEST_REPLACEMENT)
        if end < 0:
            raise self._damaged()
        try:
            return self._texts[start:end].decode()
        except UnicodeDecodeError:
            raise self._damaged() from None

    def _damaged(self) -> DataError:
        return DataError(
            f"{self._where}: its table of replaced characters is damaged; restore the file"
        )


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


def _bases(units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the children of each unit lie, but for their labels; the root is the first."""
    bases: NDArray[np.int64] = (units >> 10) << ((units & 0x200) >> 6)
    bases[1:] ^= np.arange(1, len(units))
    return bases


def _children(
    units: NDArray[np.int64], bases: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The units that some of these bytes lead to."""
    places = (bases[:, None] ^ labels).ravel()
    expected = np.tile(labels, len(bases))
    is_inside = places < len(units)
    places, expected = places[is_inside], expected[is_inside]
    children: NDArray[np.int64] = places[units[places] & _LABEL == expected]
    return children


def _keeps_ascii(units: NDArray[np.int64]) -> bool:
    """Returns whether no key is made of printable ASCII alone."""
    bases, printable = _bases(units), np.arange(0x20, 0x7F)
    seen = np.zeros(len(units), dtype=bool)
    waiting = [bases[:1]]
    while waiting:
        reached = waiting.pop()
        if len(reached) > _AT_ONCE:
            waiting.append(reached[_AT_ONCE:])
        children = np.unique(_children(units, reached[:_AT_ONCE], printable))
        if (units[children] & _HAS_VALUE).any():
            return False
        children = children[~seen[children]]  # a damaged trie may lead back
        seen[children] = True
        if len(children):
            waiting.append(bases[children])
    return True


class Normalizer:
    """Normalizes text: replaces characters, removes spaces, writes spaces as `▁`."""

    def __init__(self, model: SpmModel, where: str) -> None:
        """Reads a model's settings; `where` is what messages call its file.

        Raises:
            DataError: if its table of replacements is damaged.
        """
        self._table = CharacterTable(model.charsmap, where) if model.charsmap else None
        fixed = model.of_type(USER_DEFINED)
        self._fixed = any_of(fixed) if fixed else None
        self._prefix = SPACE if model.add_dummy_prefix else ""
        self._removes_spaces = model.remove_extra_whitespaces
        has_own_ascii = any(piece.isascii() for piece in fixed)
        self._keeps_ascii = not has_own_ascii and (self._table is None or self._table.keeps_ascii)
        self.takes_words_apart = (
            self._keeps_ascii
            and model.add_dummy_prefix
            and model.remove_extra_whitespaces
            and (self._table is None or self._table.keeps_spaces)
        )
        """True if the words of a text, between single spaces, can be normalized one by one."""

    def normalize(self, text: str) -> str:
        """The text that is cut into pieces; empty if nothing is left."""
        if self._keeps_ascii and text.isascii() and text.isprintable():
            if self._removes_spaces:
                text = " ".join(text.split())
            return (self._prefix + text.replace(" ", SPACE)) if text else ""
        return "".join([part for part, _, _ in self._parts(text)])

    def normalize_with_places(self, text: str) -> tuple[str, list[Place]]:
        """The text that is cut into pieces, and the characters each of its characters is from.

        Returns:
            The normalized text, and for each of its characters where the original's begin and end;
            the space put before the text is from nothing.
        """
        parts = self._parts(text)
        places: list[Place] = []
        for new, start, end in parts:
            if len(new) == end - start:
                places += zip(range(start, end), range(start + 1, end + 1), strict=True)
            else:
                places += repeat((start, end), len(new))
        return "".join([part for part, _, _ in parts]), places

    def _parts(self, text: str) -> list[Part]:
        """The normalized text in parts, each with the characters that it is from."""
        parts = []
        removes = after_space = self._removes_spaces
        for new, start, end in self._replaced(text):
            if after_space:
                new = new.lstrip(" ")
            if new:
                after_space = removes and new[-1] == " "
                parts.append((new.replace(" ", SPACE), start, end))
            elif not parts and text[start:end].strip(" "):
                parts.append(("", start, end))  # not blank, although nothing is left of it
        if parts and self._prefix:
            parts.insert(0, (SPACE, 0, 0))
        while removes and parts:
            new, start, end = parts.pop()
            if kept := new.rstrip(SPACE):
                parts.append((kept, start, end))
                break
        return parts

    def _replaced(self, text: str) -> Iterator[Part]:
        """The text in parts after replacement, and where each begins and ends in it."""
        data, at, place = text.encode(), 0, 0
        while at < len(text):
            fixed = self._fixed.match(text, at) if self._fixed else None
            found = None
            if fixed is None and self._table is not None:
                found = self._table.longest(data, place)
            if found is None:
                end = fixed.end() if fixed else at + 1
                new = text[at:end]
                place += len(new.encode())
            else:
                length, new = found
                end = at + len(data[place : place + length].decode())
                place += length
            yield new, at, end
            at = end
