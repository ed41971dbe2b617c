"""Keys and values of a decoder at work, so that each step computes one position only."""

import torch
from torch import Tensor

BLOCK = 16
"""Positions by which the cache grows."""


class DecoderCache:
    """Keys and values of every decoder layer for B sentences with W hypotheses each.

    Rows are sentence-major: row = sentence · W + slot. Keys and values of the memory are held once
    a sentence, not once a hypothesis: cross-attention sees the W hypotheses of a sentence as W
    query positions.
    """

    def __init__(
        self,
        memory_heads: list[tuple[Tensor, Tensor]],
        source_mask: Tensor,
        beam_size: int,
        max_length: int,
    ) -> None:
        """Starts an empty cache.

        Args:
            memory_heads: for each layer the keys and values of the memory, (B, H, S, E) each.
            source_mask: (B, S) True where a source position is a token.
            beam_size: W, rows for each sentence.
            max_length: positions that will be decoded at most.
        """
        self.memory_heads = memory_heads
        self.source_mask = source_mask
        self.beam_size = beam_size
        self.max_length = max_length
        self.length = 0
        # (L, 2, B·W, H, capacity, E); made at the first step, which knows the precision
        self._heads: Tensor | None = None

    @property
    def n_sentences(self) -> int:
        """B, sentences that are still decoded."""
        return self.source_mask.shape[0]

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the current position's heads of a layer.

        Args:
            layer: index of the decoder layer.
            key: (B·W, H, 1, E) keys of position `length`.
            value: (B·W, H, 1, E) values of position `length`.

        Returns:
            Keys and values of positions 0 … `length`, (B·W, H, length + 1, E) each.
        """
        heads = self._room_for(key)
        heads[layer, 0, :, :, self.length] = key[:, :, 0]
        heads[layer, 1, :, :, self.length] = value[:, :, 0]
        stop = self.length + 1
        return heads[layer, 0, :, :, :stop], heads[layer, 1, :, :, :stop]

    def reorder(self, rows: Tensor, sentences: Tensor) -> None:
        """Keeps and rearranges rows after a step of the search.

        Args:
            rows: (B'·W') for each new row the old row that it continues.
            sentences: (B') for each new sentence its old index; sentences left out are dropped.
        """
        if self._heads is not None:
            self._heads = _select_rows(self._heads, rows)
        if len(sentences) != self.n_sentences:
            self.memory_heads = [
                (key.index_select(0, sentences), value.index_select(0, sentences))
                for key, value in self.memory_heads
            ]
            self.source_mask = self.source_mask.index_select(0, sentences)
        self.beam_size = len(rows) // max(1, len(sentences))

    def _room_for(self, key: Tensor) -> Tensor:
        if self._heads is None or self.length == self._heads.shape[4]:
            n_rows, n_heads, _, head_width = key.shape
            more = min(BLOCK, self.max_length - self.length)
            if more < 1:
                raise ValueError(f"the cache holds max_length = {self.max_length} positions")
            block = key.new_zeros(len(self.memory_heads), 2, n_rows, n_heads, more, head_width)
            self._heads = block if self._heads is None else torch.cat((self._heads, block), dim=4)
        return self._heads


def _select_rows(heads: Tensor, rows: Tensor) -> Tensor:
    """Selects along the rows of (L, 2, B·W, H, T, E), as whole rows of a matrix: one copy each."""
    n_layers, n_sides, n_rows = heads.shape[:3]
    stacks = torch.arange(n_layers * n_sides, device=rows.device).unsqueeze(1)
    # (L·2, 1) and (B'·W') -> (L·2·B'·W'): where each new row lies in the flat matrix
    flat_rows = (stacks * n_rows + rows).flatten()
    selected = heads.view(n_layers * n_sides * n_rows, -1).index_select(0, flat_rows)
    return selected.view(n_layers, n_sides, len(rows), *heads.shape[3:])
