"""Keys and values of a decoder at work in tensors whose shapes never change.

`DecoderCache` grows by a position a step and shrinks when a sentence ends. Here every sentence has
a place, is at a position of its own, and the next one takes its place when it ends. So a step is
the same operations on the same memory each time, and asks the device nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class FixedCache:
    """Keys and values of every decoder layer for P places with W hypotheses each.

    Rows are place-major: row = place · W + slot. As in `DecoderCache`, keys stay where they were
    written, and a table says which of a place's keys are a slot's own past.
    """

    beam_size: int
    """W."""
    n_keys: int
    """Keys of a place that steps look at, W for each position; the tensors may have more."""
    memory_heads: list[tuple[Tensor, Tensor]]
    """For each layer the keys and values of the memory, (P, H, S, E) each."""
    source_mask: Tensor
    """(P, S) True where a source position is a token."""
    heads: list[tuple[Tensor, Tensor]]
    """For each layer the keys and values of the target, (P, room·W, H, E) each."""
    positions: Tensor
    """(P) the position that is decoded next."""
    ancestors: Tensor
    """(P, W, room·W) which keys are a slot's own past, its key of the next position included."""

    @classmethod
    def empty(
        cls, model: Transformer, n_places: int, beam_size: int, room: int, memory: Tensor
    ) -> FixedCache:
        """Makes the tensors, for sentences that are `put` later.

        Args:
            model: the model.
            n_places: P.
            beam_size: W.
            room: positions that are decoded at most.
            memory: (·, S, D) some encoder output, which shows shape and precision.
        """
        n_source = memory.shape[1]
        memory_heads, heads = [], []
        for layer in model.decoder.layers:
            key, _ = layer.cross_attention.project_memory(memory[:1])
            _, n_heads, _, width = key.shape
            shape = (n_places, n_heads, n_source, width)
            memory_heads.append((key.new_zeros(shape), key.new_zeros(shape)))
            shape = (n_places, room * beam_size, layer.self_attention.n_key_heads, width)
            heads.append((key.new_zeros(shape), key.new_zeros(shape)))
        like = memory.device
        source_mask = torch.zeros(n_places, n_source, dtype=torch.bool, device=like)
        source_mask[:, 0] = True  # an empty place, too, is computed
        ancestors = torch.zeros(
            n_places, beam_size, room * beam_size, dtype=torch.bool, device=like
        )
        ancestors[:, :, :beam_size] = torch.eye(beam_size, dtype=torch.bool, device=like)
        return cls(
            beam_size=beam_size,
            n_keys=room * beam_size,
            memory_heads=memory_heads,
            source_mask=source_mask,
            heads=heads,
            positions=torch.zeros(n_places, dtype=torch.int64, device=like),
            ancestors=ancestors,
        )

    @property
    def n_sentences(self) -> int:
        """P, places."""
        return len(self.positions)

    @property
    def length(self) -> Tensor:
        """(P·W) the position that each row decodes next."""
        return self.positions.repeat_interleave(self.beam_size)

    @property
    def target_mask(self) -> Tensor:
        """(P, 1, W, K) which keys of `append` each slot may attend to."""
        return self.ancestors[:, None, :, : self.n_keys]

    @property
    def key_positions(self) -> Tensor:
        """(K) the position of each key of `append`."""
        keys = torch.arange(self.n_keys, device=self.positions.device)
        return keys // self.beam_size

    @property
    def states(self) -> dict[int, Tensor]:
        """No layer is recurrent: the engine refuses such models."""
        return {}

    def own_keys(self) -> Tensor:
        """(P, W) which keys are those of the position that is decoded next."""
        slots = torch.arange(self.beam_size, device=self.positions.device)
        return self.positions.unsqueeze(1) * self.beam_size + slots

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Writes the heads of a layer for each place's position.

        Args:
            layer: index of the decoder layer.
            key: (P, H, W, E) keys.
            value: (P, H, W, E) values.

        Returns:
            Keys and values of the place's slots, (P, H, K, E) each; see `target_mask`.
        """
        places = torch.arange(self.n_sentences, device=key.device).unsqueeze(1)
        own = self.own_keys()
        found = []
        for kept, new in zip(self.heads[layer], (key, value), strict=True):
            # (P, H, W, E) -> (P, W, H, E), and back: (P, K, H, E) -> (P, H, K, E)
            kept.index_put_((places, own), new.transpose(1, 2))
            found.append(kept[:, : self.n_keys].transpose(1, 2))
        return found[0], found[1]

    def advance(self) -> None:
        """Does nothing: places continue one by one, by `follow`."""

    def follow(self, slots: Tensor, is_continued: Tensor) -> None:
        """Rearranges slots after a step of the search and continues to the next position.

        Args:
            slots: (P, W) which old slot each new one continues.
            is_continued: (P) which places continue; the others stay where they are, and are not
            read.
        """
        chosen = slots.unsqueeze(2).expand_as(self.ancestors)
        self.ancestors.copy_(self.ancestors.gather(1, chosen))
        self.positions.add_(is_continued)
        own = self.own_keys().unsqueeze(2)
        self.ancestors.scatter_(2, own, torch.ones_like(own, dtype=torch.bool))

    def put(self, model: Transformer, places: Tensor, memory: Tensor, source_mask: Tensor) -> None:
        """Lets new sentences take places.

        Args:
            model: the model.
            places: (N) which; more rows of the memory than places are skipped.
            memory: (≥ N, S, D) encoder output.
            source_mask: (≥ N, S) True where a source position is a token.
        """
        n = len(places)
        for layer, kept in zip(model.decoder.layers, self.memory_heads, strict=True):
            for tensor, new in zip(kept, layer.cross_attention.project_memory(memory), strict=True):
                tensor.index_copy_(0, places, new[:n].contiguous())
        self.source_mask.index_copy_(0, places, source_mask[:n])
        self.positions.index_fill_(0, places, 0)
        self.ancestors.index_fill_(0, places, value=False)
        slots = torch.arange(self.beam_size, device=places.device)
        own = torch.ones((), dtype=torch.bool, device=places.device)  # a plain True would wait
        self.ancestors.index_put_((places.unsqueeze(1), slots, slots), own)
