"""A text cut into blocks of tokens, whatever its lines are."""

from collections.abc import Iterable

from tformer_cli.data.tokenizer import TokenizerSide

SHORTEST_BLOCK = 2
"""Tokens of a block: something to read, and something to predict from it."""


class TextStream:
    """Cuts a text that comes in parts into blocks of equally many tokens.

    Parts are tokenized one by one, and no token spans two of them.
    """

    def __init__(self, side: TokenizerSide, block_length: int) -> None:
        """Takes what tokenizes, and the tokens of a block."""
        self._side = side
        self._length = max(SHORTEST_BLOCK, block_length)
        self._left: list[int] = []

    def add(self, lines: Iterable[str]) -> list[list[int]]:
        """Adds lines, each with its line end; returns the blocks that are full."""
        ids = [*self._left, *self._side.encode_phrases([joined(lines)])[0]]
        n_blocks = len(ids) // self._length
        self._left = ids[n_blocks * self._length :]
        starts = range(0, n_blocks * self._length, self._length)
        return [ids[start : start + self._length] for start in starts]

    def rest(self) -> list[int]:
        """Returns the last, shorter block; nothing if too little is left for one."""
        return self._left if len(self._left) >= SHORTEST_BLOCK else []


def joined(lines: Iterable[str]) -> str:
    """Puts lines together, with their line ends."""
    return "".join(f"{line}\n" for line in lines)
