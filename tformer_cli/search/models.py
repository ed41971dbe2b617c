"""Models as a search sees them: several that translate together, one with a shortlist.

To a search an ensemble is a model: its memory is the models' memories side by side, its cache holds
theirs, and its logits are log-probabilities, averaged in one of two spaces:

==============  ==================================================================================
probability     log Σ_m w_m·p_m(y): a token is likely if any model finds it likely
log             Σ_m w_m·log p_m(y), normalized again: every model has a veto
==============  ==================================================================================
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from tformer_cli.model.transfer import copy_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.model.cache import DecoderCache
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.search.config import EnsembleSpace
    from tformer_cli.search.engine import DecodingCache, DecodingModel


class EnsembleCache:
    """The caches of the models."""

    def __init__(self, caches: Sequence[DecoderCache]) -> None:
        """Takes a cache for each model."""
        self.caches = caches

    @property
    def beam_size(self) -> int:
        """W, rows for each sentence."""
        return self.caches[0].beam_size

    def reorder(self, rows: Tensor, sentences: Sequence[int]) -> None:
        """Keeps and rearranges rows; see `DecoderCache.reorder`."""
        for cache in self.caches:
            cache.reorder(rows, sentences)


class Ensemble:
    """Models that translate together, a `DecodingModel`."""

    def __init__(
        self,
        models: Sequence[Transformer],
        weights: Sequence[float] | None = None,
        space: EnsembleSpace = "probability",
    ) -> None:
        """Joins models."""
        weights = [1.0] * len(models) if weights is None else list(weights)
        if len(weights) != len(models):
            raise ValueError(f"must be {len(models)}, one per model, but there are {len(weights)}")
        if not all(0.0 < weight < math.inf for weight in weights):
            raise ValueError(f"must be numbers above 0, but are {weights}")
        self._models = list(models)
        self._weights = [weight / sum(weights) for weight in weights]
        self._space = space
        self._widths = [model.config.d_model for model in models]
        self.vocab_size, self.source_eos = models[0].vocab_size, models[0].source_eos
        # What one model cannot take, all together cannot
        self.max_positions = min(model.max_positions for model in models)

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Computes the memories (B, S, ΣD) of (B, S) token ids."""
        return torch.cat([model.encode(source, source_mask) for model in self._models], dim=-1)

    def start_cache(
        self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int
    ) -> EnsembleCache:
        """Prepares decoding step by step; see `Transformer.start_cache`."""
        parts = torch.split_with_sizes(memory, self._widths, dim=-1)
        return EnsembleCache(
            [
                model.start_cache(part.contiguous(), source_mask, beam_size, max_length)
                for model, part in zip(self._models, parts, strict=True)
            ]
        )

    def decode_step(self, tokens: Tensor, cache: EnsembleCache) -> Tensor:
        """Decodes one more position; returns (B·W, V) log-probabilities."""
        total: Tensor | None = None
        for model, part, weight in zip(self._models, cache.caches, self._weights, strict=True):
            # Each by itself, because logits of different models have no common scale
            own = model.decode_step(tokens, part).float().log_softmax(dim=-1)
            if self._space == "probability":
                own = own + math.log(weight)
                # In logarithms, where small probabilities do not vanish
                total = own if total is None else torch.logaddexp(total, own)
            else:
                total = own * weight if total is None else total + own * weight
        if total is None:
            raise ValueError("an ensemble needs at least one model")
        # A mean of probabilities sums to 1, one of logarithms does not
        return total if self._space == "probability" else total.log_softmax(dim=-1)


# A torch model whose next tokens come from a shortlist for each sentence.


class ShortlistedModel:
    """A `DecodingModel` that gives all other tokens no probability, whatever the search."""

    def __init__(self, model: DecodingModel, candidates: Sequence[Sequence[int]]) -> None:
        """Wraps a model."""
        self._model = model
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions
        self.source_eos = model.source_eos
        self.is_watched = getattr(model, "is_watched", False)
        self._is_listed = torch.zeros(len(candidates), model.vocab_size, dtype=torch.bool)
        for row, listed in zip(self._is_listed, candidates, strict=True):
            # Among listed sentences, one without a list may consist of all tokens
            row[list(listed) or slice(None)] = True

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
        # Before the search normalizes: probabilities are relative to the listed tokens
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

    def reorder(self, rows: Tensor, sentences: Sequence[int]) -> None:
        """See `DecodingCache`."""
        self.cache.reorder(rows, sentences)
        # By sentence: all rows of a sentence share its list
        device = self.is_listed.device
        self.is_listed = self.is_listed.index_select(0, copy_numbers(sentences, device))
