"""Layers of a Transformer and stacks of them.

One kind of layer serves all stacks. Without cross-attention it is the encoder's, or with a causal
mask that of a decoder-only language model; with it, the decoder's. A stack computes whole
sentences, or one position at a time with a cache of the positions before it.
"""

import copy
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tformer_cli.model.attention import EVERYTHING, Mask, MultiHeadAttention, key_mask
from tformer_cli.model.cache import DecoderCache
from tformer_cli.model.feed_forward import FeedForward
from tformer_cli.model.methods import NormKind
from tformer_cli.model.norms import Norm, make_norm
from tformer_cli.model.operations import Dropout
from tformer_cli.model.recurrence import Recurrence

if TYPE_CHECKING:
    from collections.abc import Sequence


class Layer(nn.Module):
    """Self-attention, perhaps cross-attention, and a feed-forward layer, each with residual, norm.

    A recurrent unit may take the place of self-attention; then there is `recurrence` with its
    `recurrence_norm`, and neither `self_attention` nor its norm.

    Post-norm computes norm(x + sublayer(x)) as the paper does (Vaswani et al. 2017, section 3.1);
    pre-norm computes x + sublayer(norm(x)), which trains deep stacks without a warm-up (Xiong et
    al. 2020).
    """

    self_attention: MultiHeadAttention
    """Attention of the hidden states to themselves; missing where there is a recurrence."""
    self_attention_norm: Norm
    """Its norm."""
    recurrence: Recurrence | None
    """The recurrent unit, if the layer has one."""
    recurrence_norm: Norm
    """Its norm; missing where there is none."""
    cross_attention: MultiHeadAttention | None
    """Attention to the memory, if the layer has any."""
    cross_attention_norm: Norm | None
    """Its norm."""

    def __init__(
        self,
        first: MultiHeadAttention | Recurrence,
        feed_forward: FeedForward,
        cross_attention: MultiHeadAttention | None = None,
        *,
        is_pre_norm: bool = False,
        norm_kind: NormKind = "layer",
        norm_epsilon: float = 1e-5,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        """Joins sub-layers.

        Args:
            first: self-attention or a recurrent unit.
            feed_forward: the last sub-layer.
            cross_attention: attention to a memory, between the two.
            is_pre_norm: whether norms stand before sub-layers instead of after the sums.
            norm_kind: the kind of norms.
            norm_epsilon: added to the variance in norms.
            dropout: rate of each sub-layer's output.
            bias: whether layer norms have biases.
        """
        super().__init__()
        d_model = feed_forward.inner.in_features

        def norm() -> Norm:
            return make_norm(norm_kind, d_model, norm_epsilon, bias=bias)

        self.is_pre_norm = is_pre_norm
        # Two names for the first sub-layer, since weights are stored by them
        self.recurrence = None
        if isinstance(first, Recurrence):
            self.recurrence, self.recurrence_norm = first, norm()
        else:
            self.self_attention, self.self_attention_norm = first, norm()
        self.cross_attention = cross_attention
        self.cross_attention_norm = None if cross_attention is None else norm()
        self.feed_forward = feed_forward
        self.feed_forward_norm = norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        hidden: Tensor,
        mask: Mask = EVERYTHING,
        memory: Tensor | None = None,
        memory_mask: Mask = EVERYTHING,
        earlier: Tensor | None = None,
    ) -> Tensor:
        """Maps (B, T, D) to (B, T, D).

        Args:
            hidden: (B, T, D) hidden states.
            mask: of self-attention.
            memory: (B, S, D) what cross-attention attends to, if the layer has any.
            memory_mask: of cross-attention.
            earlier: (B, M, D) hidden states of what was before; see `MultiHeadAttention.forward`.
        """
        norm = self.first_norm
        normed = self._before(norm, hidden)
        if self.recurrence is None:
            # Kept as they entered the layer, the states have not passed its norm
            earlier = None if earlier is None else self._before(norm, earlier)
            output = self.self_attention(normed, mask=mask, earlier=earlier)
        else:
            output = self.recurrence(normed, mask)
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            hidden, normed = self._between(norm, hidden, output, self.cross_attention_norm)
            output = self.cross_attention(normed, memory, memory_mask)
            norm = self.cross_attention_norm
        # The sum and the next norm together: faster code computes both in one pass
        hidden, normed = self._between(norm, hidden, output, self.feed_forward_norm)
        return self._after(self.feed_forward_norm, hidden, self.feed_forward(normed))

    def step(self, hidden: Tensor, cache: DecoderCache, layer: int) -> Tensor:
        """Computes one position for every row of the cache.

        Args:
            hidden: (B, W, D) hidden states of the current position; a sentence's hypotheses are
                queries to one memory.
            cache: keys and values of earlier positions, or their state; this position's are added.
            layer: index of this layer in the cache.

        Returns:
            (B, W, D) hidden states.
        """
        norm = self.first_norm
        normed = self._before(norm, hidden)
        if self.recurrence is None:
            attention = self.self_attention
            query, key, value = attention.project_all(normed, slice(cache.length, cache.length + 1))
            keys, values = cache.append(layer, key, value)
            bias = attention.step_bias(query, cache)
            output = attention.attend(query, keys, values, cache.target_mask, bias)
        else:
            state = cache.states.get(layer)
            output, cache.states[layer] = self.recurrence.step(normed, state)
        hidden = self._after(norm, hidden, output)
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            attention, norm = self.cross_attention, self.cross_attention_norm
            # Only queries: `start_cache` has projected the memory once for all steps
            query = attention.project_query(self._before(norm, hidden))
            visible = key_mask(cache.source_mask).visible
            attended = attention.attend(query, *cache.memory_heads[layer], visible)
            hidden = self._after(norm, hidden, attended)
        norm = self.feed_forward_norm
        return self._after(norm, hidden, self.feed_forward(self._before(norm, hidden)))

    @property
    def first_norm(self) -> Norm:
        """The norm of self-attention or of the recurrent unit."""
        return self.self_attention_norm if self.recurrence is None else self.recurrence_norm

    def _before(self, norm: Norm, hidden: Tensor) -> Tensor:
        normed: Tensor = norm(hidden) if self.is_pre_norm else hidden
        return normed

    def _after(self, norm: Norm, hidden: Tensor, output: Tensor) -> Tensor:
        if self.is_pre_norm:
            return self.dropout.add_residual(hidden, output)
        # Not rounded: after the norm comes the next sum
        return self.dropout.add_and_normalize(hidden, output, norm, rounds=False)[1]

    def _between(
        self, norm: Norm, hidden: Tensor, output: Tensor, next_norm: Norm
    ) -> tuple[Tensor, Tensor]:
        """Ends one sub-layer and begins the next: the hidden states, and what the next is given."""
        if self.is_pre_norm:
            # Rounded: only matrices are multiplied by this norm
            return self.dropout.add_and_normalize(hidden, output, next_norm, rounds=True)
        hidden = self._after(norm, hidden, output)
        return hidden, hidden

    if TYPE_CHECKING:
        __call__ = forward


class DecoderLayer(Layer):
    """A layer that has cross-attention; that of a language model has none, and is a `Layer`."""

    cross_attention: MultiHeadAttention
    cross_attention_norm: Norm


AnyLayer = TypeVar("AnyLayer", bound=Layer)


class Stack(nn.Module, Generic[AnyLayer]):
    """Layers one after the other, with a final norm where they are pre-norm, or always."""

    recomputes = False
    """True if the backward pass computes each layer again instead of keeping what it needs of it
    (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")."""

    def __init__(self, layers: Iterable[AnyLayer], *, has_final_norm: bool = False) -> None:
        """Stacks layers that are alike but for their heads; there is at least one."""
        super().__init__()
        # torch's types do not say what a ModuleList holds
        self.layers = cast("Sequence[AnyLayer]", nn.ModuleList(layers))
        last = self.layers[-1]
        self.final_norm = (
            copy.deepcopy(last.feed_forward_norm)  # of the same kind, width and epsilon
            if last.is_pre_norm or has_final_norm
            else nn.Identity()
        )

    def forward(
        self,
        hidden: Tensor,
        mask: Mask = EVERYTHING,
        memory: Tensor | None = None,
        memory_mask: Mask = EVERYTHING,
        *,
        first: int = 0,
        earlier: "Sequence[Tensor]" = (),
        entering: list[Tensor] | None = None,
    ) -> Tensor:
        """Maps embedded tokens (B, T, D) to hidden states (B, T, D).

        Args:
            hidden: (B, T, D) embedded tokens, or what enters layer `first`.
            mask: of self-attention.
            memory: (B, S, D) what cross-attention attends to, if the layers have any.
            memory_mask: of cross-attention.
            first: the layer that is computed first.
            earlier: for each layer (B, M, D) what entered it before; empty: nothing.
            entering: takes what enters each layer.
        """
        # A slice would make a new ModuleList at every call
        for number, layer in enumerate(self.layers[first:] if first else self.layers, first):
            if entering is not None:
                entering.append(hidden)
            before = earlier[number] if earlier else None
            compute: Any = layer
            if self.recomputes and torch.is_grad_enabled():
                # With the random numbers of the first time, so that dropout drops the same values
                compute = partial(checkpoint, layer, use_reentrant=False)
            hidden = compute(hidden, mask, memory, memory_mask, before)
        normed: Tensor = self.final_norm(hidden)
        return normed

    def start_cache(
        self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int
    ) -> DecoderCache:
        """Projects the memory (B, S, D) once for every layer and starts an empty cache."""
        memory_heads = []
        for layer in self.layers:
            if layer.cross_attention is not None:
                key, value = layer.cross_attention.project_memory(memory)
                # contiguous (B, H, S, E), as every later step reads them
                memory_heads.append((key.contiguous(), value.contiguous()))
        n_heads = [
            layer.self_attention.n_key_heads if layer.recurrence is None else 0
            for layer in self.layers
        ]
        return DecoderCache(memory_heads, source_mask, beam_size, max_length, n_heads)

    def step(self, hidden: Tensor, cache: DecoderCache) -> Tensor:
        """Computes one position: embedded tokens (B·W, 1, D) to hidden states (B·W, 1, D)."""
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
