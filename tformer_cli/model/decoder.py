"""The decoder stack: over whole sentences for training, one position at a time for decoding."""

from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.cache import DecoderCache, StepCache
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.dropout import Dropout
from tformer_cli.model.feed_forward import FeedForward
from tformer_cli.model.masks import key_mask
from tformer_cli.model.norm import layer_norm
from tformer_cli.model.unpadded import Spans

if TYPE_CHECKING:
    from collections.abc import Sequence


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention and a feed-forward layer (the paper, section 3.1)."""

    def __init__(
        self, config: ModelConfig, n_heads: int | None = None, n_cross_heads: int | None = None
    ) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.self_attention = MultiHeadAttention(config, n_heads)
        self.self_attention_norm = layer_norm(config)
        self.cross_attention = MultiHeadAttention(config, n_cross_heads)
        self.cross_attention_norm = layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = layer_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, hidden: Tensor, memory: Tensor, causal: Tensor | Spans, source_mask: Tensor | Spans
    ) -> Tensor:
        """Maps (B, T, D) to (B, T, D).

        Args:
            hidden: (B, T, D) hidden states.
            memory: (B, S, D) encoder output.
            causal: (T, T) causal mask; or where each sentence lies, in a single row.
            source_mask: (B, 1, 1, S) True where a source position is a token; or the same.
        """
        given = self._before(self.self_attention_norm, hidden)
        attended = self.self_attention(given, mask=causal)
        hidden, given = self._between(
            self.self_attention_norm, hidden, attended, self.cross_attention_norm
        )
        attended = self.cross_attention(given, memory, source_mask)
        hidden, given = self._between(
            self.cross_attention_norm, hidden, attended, self.feed_forward_norm
        )
        return self._after(self.feed_forward_norm, hidden, self.feed_forward(given))

    def step(self, hidden: Tensor, cache: StepCache, layer: int) -> Tensor:
        """Decodes one position for every row of the cache.

        Args:
            hidden: (B, W, D) hidden states of the current position; a sentence's hypotheses are
                queries to one memory.
            cache: keys and values of earlier positions; this position's are added.
            layer: index of this layer in the cache.

        Returns:
            (B, W, D) hidden states.
        """
        query, key, value = self.self_attention.project_all(
            self._before(self.self_attention_norm, hidden)
        )
        keys, values = cache.append(layer, key, value)
        attended = self.self_attention.attend(query, keys, values, cache.target_mask)
        hidden = self._after(self.self_attention_norm, hidden, attended)
        query = self.cross_attention.project_query(self._before(self.cross_attention_norm, hidden))
        key, value = cache.memory_heads[layer]
        attended = self.cross_attention.attend(query, key, value, key_mask(cache.source_mask))
        hidden = self._after(self.cross_attention_norm, hidden, attended)
        fed = self.feed_forward(self._before(self.feed_forward_norm, hidden))
        return self._after(self.feed_forward_norm, hidden, fed)

    def _before(self, norm: nn.LayerNorm, hidden: Tensor) -> Tensor:
        normed: Tensor = norm(hidden) if self.is_pre_norm else hidden
        return normed

    def _after(self, norm: nn.LayerNorm, hidden: Tensor, output: Tensor) -> Tensor:
        if self.is_pre_norm:
            return self.dropout.added(hidden, output)
        return self.dropout.added_and_normed(hidden, output, norm, rounds=False)[1]

    def _between(
        self, norm: nn.LayerNorm, hidden: Tensor, output: Tensor, next_norm: nn.LayerNorm
    ) -> tuple[Tensor, Tensor]:
        """Ends one sub-layer and begins the next: the hidden states, and what the next is given."""
        if self.is_pre_norm:
            return self.dropout.added_and_normed(hidden, output, next_norm, rounds=True)
        hidden = self._after(norm, hidden, output)
        return hidden, hidden

    if TYPE_CHECKING:
        __call__ = forward


class Decoder(nn.Module):
    """A stack of decoder layers, with a final norm where the layers are pre-norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        heads = zip(config.layer_heads.decoder, config.layer_heads.cross, strict=True)
        layers = nn.ModuleList(DecoderLayer(config, *n_heads) for n_heads in heads)
        self.layers = cast(
            "Sequence[DecoderLayer]", layers
        )  # what torch's types do not say of a ModuleList
        self.final_norm = layer_norm(config) if config.norm == "pre" else nn.Identity()

    def forward(
        self, hidden: Tensor, memory: Tensor, causal: Tensor | Spans, source_mask: Tensor | Spans
    ) -> Tensor:
        """Maps embedded target tokens (B, T, D) to hidden states (B, T, D).

        Args:
            hidden: (B, T, D) embedded target tokens.
            memory: (B, S, D) encoder output.
            causal: (T, T) causal mask; or where each sentence lies, in a single row.
            source_mask: (B, 1, 1, S) True where a source position is a token; or the same.
        """
        for layer in self.layers:
            hidden = layer(hidden, memory, causal, source_mask)
        normed: Tensor = self.final_norm(hidden)
        return normed

    def start_cache(
        self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int
    ) -> DecoderCache:
        """Projects the memory (B, S, D) once for every layer and starts an empty cache."""
        memory_heads = []
        for layer in self.layers:
            key, value = layer.cross_attention.project_memory(memory)
            # contiguous (B, H, S, E), as every later step reads them
            memory_heads.append((key.contiguous(), value.contiguous()))
        n_heads = max(layer.self_attention.n_heads for layer in self.layers)
        return DecoderCache(memory_heads, source_mask, beam_size, max_length, n_heads)

    def step(self, hidden: Tensor, cache: StepCache) -> Tensor:
        """Decodes one position: embedded tokens (B·W, 1, D) to hidden states (B·W, 1, D)."""
        # (B·W, 1, D) -> (B, W, D)
        grouped = hidden.view(cache.n_sentences, cache.beam_size, -1)
        for index, layer in enumerate(self.layers):
            grouped = layer.step(grouped, cache, index)
        cache.advance()
        normed: Tensor = self.final_norm(grouped)
        # (B, W, D) -> (B·W, 1, D)
        return normed.view(hidden.shape)

    if TYPE_CHECKING:
        __call__ = forward
