"""Words cut by the merges of subword-nmt and fastBPE.

Sennrich et al. 2016, "Neural machine translation of rare words with subword units". A file of codes
has a merge a line, the earlier the better; fastBPE writes how often it was counted behind. The end
of a word is marked by `</w>`: as a symbol of its own in files without a version, else on the last
character.
"""

from collections.abc import Mapping
from itertools import pairwise

from tformer_cli.data.config import MOST_PIECES
from tformer_cli.errors import DataError

END = "</w>"
CONTINUES = "@@"
"""Ends each piece of a word but its last."""
_VERSION = "#version: "
_MOST_CACHED = 1 << 16


class SubwordCodes:
    """A list of merges."""

    def __init__(self, text: str, where: str) -> None:
        """Reads a file of codes."""
        self.text = text
        lines = text.rstrip("\n").split("\n", MOST_PIECES + 1)
        self._ends_apart = not lines[0].startswith(_VERSION) and len(lines[0].split(" ")) < 3
        if lines[0].startswith(_VERSION):
            if lines[0].removeprefix(_VERSION).strip() != "0.2":
                raise DataError(f"{where}: is of an unknown version; use codes of version 0.2")
            del lines[0]
        self.ranks = _ranks(lines, where)
        """The place of each merge."""
        self._cut: dict[str, tuple[str, ...]] = {}

    def cut(self, word: str) -> tuple[str, ...]:
        """Cuts a word, without spaces, into pieces; all but the last end with `@@`."""
        found = self._cut.get(word)
        if found is None:
            *inner, last = self._merged(word)
            found = (*(piece + CONTINUES for piece in inner), last)
            if len(self._cut) >= _MOST_CACHED:
                self._cut.clear()
            self._cut[word] = found
        return found

    def _merged(self, word: str) -> list[str]:
        if len(word) == 1:
            return [word]
        symbols = [*word, END] if self._ends_apart else [*word[:-1], word[-1] + END]
        none = MOST_PIECES
        while len(symbols) > 1:
            rank_of = self.ranks.get
            ranks = [rank_of(pair, none) for pair in pairwise(symbols)]
            best = min(ranks)
            if best == none:
                break
            symbols = _joined(symbols, ranks, best)
        last = symbols.pop().removesuffix(END)
        return [*symbols, last] if last else symbols


def _ranks(lines: list[str], where: str) -> Mapping[tuple[str, str], int]:
    if len(lines) > MOST_PIECES:
        raise DataError(f"{where}: has more than {MOST_PIECES:,} merges; use a file of codes")
    ranks: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines):
        parts = line.strip("\r ").split(" ")
        if len(parts) == 3 and parts[2].isdecimal():
            del parts[2]  # how often fastBPE counted it
        if len(parts) != 2 or not all(parts):
            raise DataError(
                f"{where}: its merge {number + 1} is not two symbols; use a file of subword-nmt "
                "or fastBPE codes"
            )
        ranks.setdefault((parts[0], parts[1]), number)
    return ranks


def _joined(symbols: list[str], ranks: list[int], best: int) -> list[str]:
    """Joins each pair of a rank, from the left; pairs that overlap a joined one stay."""
    found, place = [], 0
    while place < len(symbols):
        is_joined = place < len(ranks) and ranks[place] == best
        found.append("".join(symbols[place : place + 1 + is_joined]))
        place += 1 + is_joined
    return found
