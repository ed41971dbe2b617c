"""A text without lines, as a row of blocks of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tformer_cli.text.tokenizer import TokenizerSide

SHORTEST_BLOCK = 2


class TextStream:
    """Cuts a text in parts into blocks of equally many tokens; no token spans two parts."""

    def __init__(self, side: TokenizerSide, block_length: int) -> None:
        self._side = side
        self._length = max(SHORTEST_BLOCK, block_length)
        self._left: list[int] = []

    def add(self, lines: Iterable[str]) -> list[list[int]]:
        """Adds lines, each with its line end; returns the blocks that are full."""
        ids = [*self._left, *self._side.encode_phrases([join_lines(lines)])[0]]
        n_blocks = len(ids) // self._length
        self._left = ids[n_blocks * self._length :]
        starts = range(0, n_blocks * self._length, self._length)
        return [ids[start : start + self._length] for start in starts]

    def rest(self) -> list[int]:
        """Returns the last, shorter block; nothing if too little is left for one."""
        return self._left if len(self._left) >= SHORTEST_BLOCK else []


def join_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
