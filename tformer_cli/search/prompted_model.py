"""A language model that continues prompts: it has read them before the search begins.

Searches begin every hypothesis with `<s>`. Here the prompt stands in the place of the source and of
that first token, so that limits, rules and log-probabilities are those of the continuation alone,
and a prompt's keys are held once, however many hypotheses continue it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from tformer_cli.search.engine import StoredModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.engine import DecodingCache, DecodingModel, SearchedModel


@dataclass
class PromptedCache:
    """The cache of the model and what it says after the prompts."""

    cache: DecodingCache
    """Of the model; the prompts are in it."""
    logits: Tensor | None
    """(B, V) logits of the first tokens; None once the search has had them."""

    @property
    def beam_size(self) -> int:
        """W, rows for each sentence."""
        return self.cache.beam_size

    def reorder(self, rows: Tensor, sentences: Tensor) -> None:
        """Keeps and rearranges rows; see `DecoderCache.reorder`."""
        self.cache.reorder(rows, sentences)


class PromptedModel:
    """A `DecodingModel` whose sources are prompts, those of a batch in torch equally long."""

    source_eos = False

    def __init__(
        self, model: SearchedModel, on_token: Callable[[Sequence[int]], None] | None = None
    ) -> None:
        """Takes a language model."""
        self.model = model
        """The language model."""
        self.on_token = on_token
        """The listener, called with tokens; it may change for each search."""
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions

    @property
    def _in_torch(self) -> DecodingModel:
        """The language model, made if need be."""
        if isinstance(self.model, StoredModel):
            return self.model.make()
        return cast("DecodingModel", self.model)

    def within(self, config: DecodingConfig, n_prompt: int) -> DecodingConfig:
        """Settings of the search for a prompt of this length, within the positions left."""
        left = self.max_positions - n_prompt
        if left < 1:
            raise ValueError(
                f"a prompt may have at most {self.max_positions - 1} tokens, but has {n_prompt}"
            )
        most = min(config.max_length or left, left)
        return replace(config, max_length=most, min_length=min(config.min_length, most))

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Returns the tokens of the prompts, (B, P)."""
        lengths = source_mask.sum(dim=1)
        longest = int(lengths.max())
        if not bool((lengths == longest).all()):
            raise ValueError("prompts that are continued together must be equally long")
        return source[:, :longest]

    def start_cache(
        self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int
    ) -> PromptedCache:
        """Reads the prompts, (B, P), one position after the other; each has one row at first."""
        n_read = memory.shape[1]
        model = self._in_torch
        nothing = model.encode(memory, source_mask[:, :n_read])
        cache = model.start_cache(nothing, source_mask, beam_size, n_read + max_length - 1)
        logits = None
        for position in range(n_read):
            logits = model.decode_step(memory[:, position], cache)
        return PromptedCache(cache, logits)

    def decode_step(self, tokens: Tensor, cache: PromptedCache) -> Tensor:
        """Reads one more token of each row; the first, `<s>`, stands for the prompt."""
        if cache.logits is not None:
            logits, cache.logits = cache.logits, None
            return logits
        if self.on_token is not None:
            self.on_token(tokens.tolist())
        return self._in_torch.decode_step(tokens, cache.cache)
