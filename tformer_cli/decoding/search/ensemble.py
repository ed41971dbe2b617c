"""Several models of one vocabulary that translate together, as if they were one.

To a search an ensemble is a model: its memory is the models' memories side by side, its cache holds
theirs, and its logits are log-probabilities, averaged in one of two spaces:

==============  ==================================================================================
probability     log Σ_m w_m·p_m(y): a token is likely if any model finds it likely
log             Σ_m w_m·log p_m(y), normalized again: every model has a veto
==============  ==================================================================================
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.model.cache import DecoderCache
    from tformer_cli.model.transformer import Transformer

EnsembleSpace = Literal["probability", "log"]


class EnsembleCache:
    """The caches of the models."""

    def __init__(self, caches: Sequence[DecoderCache]) -> None:
        """Takes a cache for each model."""
        self.caches = caches

    @property
    def beam_size(self) -> int:
        """W, rows for each sentence."""
        return self.caches[0].beam_size

    def reorder(self, rows: Tensor, sentences: Tensor) -> None:
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
            raise ValueError(f"must be {len(models)}, one per model, but are {len(weights)}")
        if not all(0.0 < weight < math.inf for weight in weights):
            raise ValueError(f"must be numbers above 0, but are {weights}")
        self._models = list(models)
        self._weights = [weight / sum(weights) for weight in weights]
        self._space = space
        self._widths = [model.config.d_model for model in models]
        self.vocab_size, self.source_eos = models[0].vocab_size, models[0].source_eos
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
            own = model.decode_step(tokens, part).float().log_softmax(dim=-1)
            if self._space == "probability":
                own = own + math.log(weight)
                total = own if total is None else torch.logaddexp(total, own)
            else:
                total = own * weight if total is None else total + own * weight
        if total is None:
            raise ValueError("an ensemble needs at least one model")
        return total if self._space == "probability" else total.log_softmax(dim=-1)
