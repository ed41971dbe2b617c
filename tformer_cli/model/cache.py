"""Keys, values and states of a decoder at work, so that each step computes one position only.

A search moves hypotheses between the slots of a sentence at every step. Here their keys and values
stay where they were written; what moves is a boolean table that says which of the sentence's keys
are a slot's own past. So a step of the search costs a few bytes a key instead of a copy of all of
them, and attention reads a sentence's keys once for its W slots.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tformer_cli.model.transfer import copy_numbers, copy_to_device

FIRST_POSITIONS = 16
"""Positions there is room for at first; the room doubles when it is used up."""


class DecoderCache:
    """Keys and values of every decoder layer for B sentences with W hypotheses each.

    Rows are sentence-major: row = sentence · W + slot. Keys and values of the memory are held once
    a sentence, not once a hypothesis, as are those of the target: attention sees the W
    hypotheses of a sentence as W query positions.
    """

    def __init__(
        self,
        memory_heads: list[tuple[Tensor, Tensor]],
        source_mask: Tensor,
        beam_size: int,
        max_length: int,
        n_heads: list[int],
    ) -> None:
        """Starts an empty cache.

        Args:
            memory_heads: for each layer the keys and values of the memory, (B, H, S, E) each; they
                become the cache's own and may be overwritten. Empty without cross-attention.
            source_mask: (B, S) True where a source position is a token.
            beam_size: W, rows for each sentence.
            max_length: positions that will be decoded at most.
            n_heads: heads of keys of the self-attention of each layer; 0 of a recurrent one.
        """
        # Pruned layers leave room unused
        self._n_layers, self._most_heads = len(n_heads), max(n_heads)
        self.memory_heads = memory_heads
        self.source_mask = source_mask
        self.beam_size = beam_size
        self.max_length = max_length
        self.length = 0
        self.states: dict[int, Tensor] = {}
        """State (B, W, D) of each recurrent layer by its number."""
        self._n_keys = 0
        self._slots: list[int] = []  # of each earlier position that is kept
        # (L, 2, B, H, room, E), a position's W slots one after the other; made at the first step,
        # which knows the precision
        self._heads: Tensor | None = None
        # (B, W, keys) which keys a slot descends from; None while there is one slot: all of them
        self._ancestors: Tensor | None = None
        self._open_position()

    @property
    def n_sentences(self) -> int:
        """B, sentences that are still decoded."""
        return self.source_mask.shape[0]

    @property
    def target_mask(self) -> Tensor | None:
        """(B, 1, W, K) which keys of `append` each slot may attend to; None: all."""
        return None if self._ancestors is None else self._ancestors.unsqueeze(1)

    @property
    def key_positions(self) -> Tensor:
        """(K) the position of each key of `append`."""
        n_keys = torch.tensor([*self._slots, self.beam_size])
        first = self.length - len(self._slots)
        positions = torch.arange(first, first + len(n_keys)).repeat_interleave(n_keys)
        return copy_to_device([positions], self.source_mask.device)[0]

    def forget(self, first: int) -> None:
        """Drops the keys of positions before `first`, which no later one attends to."""
        n_old = first - (self.length - len(self._slots))
        if n_old <= 0:
            return
        n_keys = sum(self._slots[:n_old])
        self._slots = self._slots[n_old:]
        self._n_keys -= n_keys
        if self._heads is not None:
            self._heads = self._heads[..., n_keys:, :]  # a view, no copy
        if self._ancestors is not None:
            self._ancestors = self._ancestors[:, :, n_keys:]

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the current position's heads of a layer.

        Args:
            layer: index of the decoder layer.
            key: (B, H, W, E) keys of position `length`.
            value: (B, H, W, E) values of position `length`.

        Returns:
            All keys and values of the sentence's slots, (B, H, K, E) each; see `target_mask`.
        """
        if self.length >= self.max_length:
            raise ValueError(f"the cache holds max_length = {self.max_length} positions")
        heads = self._room_for(key)
        n_heads = key.shape[1]  # of a pruned layer fewer than there is room for
        stop = self._n_keys + self.beam_size
        heads[layer, 0, :, :n_heads, self._n_keys : stop] = key
        heads[layer, 1, :, :n_heads, self._n_keys : stop] = value
        return heads[layer, 0, :, :n_heads, :stop], heads[layer, 1, :, :n_heads, :stop]

    def advance(self) -> None:
        """Continues to the next position, once every layer has appended the current one."""
        self.length += 1
        self._slots.append(self.beam_size)
        self._n_keys += self.beam_size
        self._open_position()

    def reorder(self, rows: Tensor, sentences: Sequence[int]) -> None:
        """Keeps and rearranges rows after a step of the search.

        Sentences that stay in their place cost nothing, so holes are best filled from the end.

        Args:
            rows: (B'·W') for each new row the old row that it continues.
            sentences: (B') for each new sentence its old index, B' at most B; sentences omitted
                are dropped. Numbers of the host, so that no step waits for a device.
        """
        beam_size = len(rows) // max(1, len(sentences))
        past = self._past(rows, len(sentences), beam_size)
        for layer, state in self.states.items():
            kept = state.flatten(0, 1).index_select(0, rows)
            self.states[layer] = kept.view(len(sentences), beam_size, -1)
        # Most steps end no sentence, and then nothing moves
        if len(sentences) != self.n_sentences or any(
            place != origin for place, origin in enumerate(sentences)
        ):
            self._keep_sentences(sentences)
        self.beam_size = beam_size
        self._ancestors = past
        self._open_position()

    def _past(self, rows: Tensor, n_sentences: int, beam_size: int) -> Tensor | None:
        """(B', W', keys) what the new rows descend from, without the position that is open."""
        if self._ancestors is not None:
            past = self._ancestors[:, :, : self._n_keys].flatten(0, 1)
            return past.index_select(0, rows).view(n_sentences, beam_size, -1)
        if beam_size == 1:
            return None
        shape = (n_sentences, beam_size, self._n_keys)
        return torch.ones(shape, dtype=torch.bool, device=rows.device)

    def _open_position(self) -> None:
        """Makes every slot see its own key of the current position."""
        if self._ancestors is None and self.beam_size == 1:  # its own past is all there is
            return
        device = self.source_mask.device
        own = torch.eye(self.beam_size, dtype=torch.bool, device=device)
        own = own.expand(self.n_sentences, -1, -1)
        past = own[:, :, :0] if self._ancestors is None else self._ancestors[:, :, : self._n_keys]
        self._ancestors = torch.cat((past, own), dim=2)

    def _keep_sentences(self, sentences: Sequence[int]) -> None:
        """Moves the sentences that change their place, in place, and forgets the rest."""
        moves = [(place, origin) for place, origin in enumerate(sentences) if place != origin]
        columns = [torch.tensor(column, dtype=torch.int64) for column in zip(*moves, strict=True)]
        n_kept, device = len(sentences), self.source_mask.device
        if columns:
            places, origins = copy_to_device(columns, device)
            if self._heads is not None:
                self._heads.index_copy_(2, places, self._heads.index_select(2, origins))
            # In place, which moves only the sentences that fill a hole
            for heads in (part for pair in self.memory_heads for part in pair):
                heads.index_copy_(0, places, heads.index_select(0, origins))
        if self._heads is not None:
            self._heads = self._heads[:, :, :n_kept]
        self.memory_heads = [(key[:n_kept], value[:n_kept]) for key, value in self.memory_heads]
        self.source_mask = self.source_mask.index_select(0, copy_numbers(sentences, device))

    def _room_for(self, key: Tensor) -> Tensor:
        n_keys = self._n_keys + self.beam_size
        if self._heads is None or n_keys > self._heads.shape[4]:
            n_left = self.max_length - self.length
            n_sentences, _, _, head_width = key.shape
            # Room doubles, so that a long text is copied only a few times
            more = self.beam_size * min(max(FIRST_POSITIONS, len(self._slots)), n_left)
            shape = (self._n_layers, 2, n_sentences, self._most_heads, more, head_width)
            old = None if self._heads is None else self._heads[..., : self._n_keys, :]
            block = key.new_empty(shape)  # nothing behind the last position is read
            self._heads = block if old is None else torch.cat((old, block), dim=4)
        return self._heads


def fill_from_end(kept: list[int]) -> list[int]:
    """Orders the sentences that stay so that the fewest of them move in the cache.

    Args:
        kept: indices of the sentences that stay.

    Returns:
        The same indices; those below their number stand at their own place.
    """
    places = set(kept)
    movers = iter(sorted(index for index in kept if index >= len(kept)))
    return [place if place in places else next(movers) for place in range(len(kept))]
