"""A model of torch's whose next tokens come from a shortlist for each sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.decoding.engine import DecodingCache, DecodingModel


class ShortlistedModel:
    """A `DecodingModel` that gives all other tokens no probability, whatever the search."""

    def __init__(self, model: DecodingModel, candidates: Sequence[Sequence[int]]) -> None:
        """Wraps a model."""
        self._model = model
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions
        self.source_eos = model.source_eos
        self._is_listed = torch.zeros(len(candidates), model.vocab_size, dtype=torch.bool)
        for row, some in zip(self._is_listed, candidates, strict=True):
            row[list(some) or slice(None)] = True

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """See `DecodingModel`."""
        return self._model.encode(source, source_mask)

    def start_cache(
        self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int
    ) -> ShortlistedCache:
        """See `DecodingModel`; every sentence may be there several times in a row."""
        cache = self._model.start_cache(memory, source_mask, beam_size, max_length)
        n_times = len(memory) // len(self._is_listed)
        is_listed = self._is_listed.to(memory.device).repeat_interleave(n_times, dim=0)
        return ShortlistedCache(cache, is_listed)

    def decode_step(self, tokens: Tensor, cache: ShortlistedCache) -> Tensor:
        """See `DecodingModel`."""
        logits = self._model.decode_step(tokens, cache.cache)
        n_times = len(logits) // len(cache.is_listed)
        is_listed = cache.is_listed.repeat_interleave(n_times, dim=0)
        return logits.masked_fill(~is_listed, float("-inf"))


class ShortlistedCache:
    """A model's cache, and which tokens each of its sentences may consist of."""

    def __init__(self, cache: DecodingCache, is_listed: Tensor) -> None:
        """Takes the cache of B sentences and (B, V) booleans."""
        self.cache: Any = cache
        self.is_listed = is_listed

    @property
    def beam_size(self) -> int:
        """See `DecodingCache`."""
        n_rows: int = self.cache.beam_size
        return n_rows

    def reorder(self, rows: Tensor, sentences: Tensor) -> None:
        """See `DecodingCache`."""
        self.cache.reorder(rows, sentences)
        self.is_listed = self.is_listed[sentences]
