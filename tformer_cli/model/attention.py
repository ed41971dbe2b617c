"""Scaled dot-product attention, plain and fused, and the multi-head layer built on it.

Attention(Q, K, V) = softmax(Q·Kᵀ / √E)·V (Vaswani et al. 2017, section 3.2). The plain formula is
the oracle: the fused kernels must agree with it, and whoever wants to see the weights recomputes
them with it beside the untouched path (`MultiHeadAttention.tap`).
"""

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.dropout import dropout
from tformer_cli.model.linear import Linear
from tformer_cli.model.operations import Operations
from tformer_cli.model.repeatable import by_sentence
from tformer_cli.model.unpadded import Spans

FUSED_FROM_KEYS = 192
"""On a CPU the fused kernel wins only from about this many keys on: below, its blocks are mostly
empty and the plain formula's small batched products are faster."""
FUSED_FROM_QUERIES = 16
"""With fewer, as in a beam, its bits depend on the sentences beside, on several threads."""


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """Computes softmax(Q·Kᵀ / √E) over the keys a query may attend to.

    Args:
        query: (B, H, Q, E) queries.
        key: (B, H, K, E) keys.
        mask: boolean, broadcastable to (B, H, Q, K); True means "may attend".

    Returns:
        (B, H, Q, K) weights. Rows sum to 1 and hidden cells are exactly 0; a row with every key
        hidden is all zeros rather than NaN.
    """
    scores = torch.matmul(query * (1.0 / math.sqrt(query.shape[-1])), key.transpose(-2, -1))
    if mask is None:
        return torch.softmax(scores, dim=-1)
    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    return weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout_rate: float = 0.0,
    *,
    scale: float | None = None,
) -> Tensor:
    """Computes attention by the formula; the oracle of `fused_attention`.

    Args:
        query: (B, H, Q, E) queries.
        key: (B, H, K, E) keys.
        value: (B, H, K, E) values.
        mask: boolean, broadcastable to (B, H, Q, K); every query must see at least one key.
        dropout_rate: chance of dropping a weight (training only).
        scale: factor of the scores; None: 1/√E.

    Returns:
        (B, H, Q, E) the values summed with the weights.
    """
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    weights = dropout(torch.softmax(scores, dim=-1), dropout_rate)
    return torch.matmul(weights.to(value.dtype), value)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout_rate: float = 0.0,
    *,
    scale: float | None = None,
) -> Tensor:
    """Computes the same as `plain_attention` in one fused kernel of torch."""
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout_rate, scale=scale
    )


class AttentionTap(NamedTuple):
    """Inputs and outputs of a call of a layer, as a tap receives them."""

    query: Tensor
    """(B, H, Q, E) queries."""
    key: Tensor
    """(B, H, K, E) keys."""
    value: Tensor
    """(B, H, K, E) values."""
    mask: Tensor | None
    """Boolean, broadcastable to (B, H, Q, K), True means "may attend"; None: everything."""
    context: Tensor
    """(B, H, Q, E) the weighted values as the model's own path computed them."""


class TapHandle:
    """Ends a tap when `remove` is called."""

    def __init__(self, listeners: list[Callable[[AttentionTap], None]], index: int) -> None:
        self._listeners = listeners
        self._listener = listeners[index]

    def remove(self) -> None:
        """Stops handing anything to the listener; a second call does nothing."""
        if self._listener in self._listeners:
            self._listeners.remove(self._listener)


class MultiHeadAttention(nn.Module):
    """Multi-head attention: MultiHead(Q, K, V) = Concat(head₁ … head_H)·W_O.

    Source: Vaswani et al. 2017, section 3.2.2. The projections W_Q, W_K and W_V of all heads lie
    in one matrix of 3·H·E rows, so that self-attention needs one product instead of three. H·E is D
    unless heads were pruned.
    """

    operations: Operations | None = None
    """Attention used in training; None: torch's."""
    gate: Tensor | None = None
    """Factors ξ on each head's weighted values before W_O, broadcastable to (B, H, Q, E): (H, 1, 1)
    for all sentences, (B, H, 1, 1) for each its own; 0 switches a head off. None: nothing is
    multiplied."""

    def __init__(self, config: ModelConfig, n_heads: int | None = None) -> None:
        """Creates a layer.

        Args:
            config: the model's shape.
            n_heads: heads of this layer, if not `config.n_heads`; 0 leaves the bias of W_O.
        """
        super().__init__()
        self.n_heads = config.n_heads if n_heads is None else n_heads
        self.head_width = config.head_width
        self.dropout_rate = config.attention_dropout
        joined = self.n_heads * self.head_width
        with warnings.catch_warnings():  # a layer without heads has matrices without elements
            warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
            self.in_projection = Linear(config.d_model, 3 * joined, bias=config.bias)
            self.out_projection = Linear(joined, config.d_model, bias=config.bias)
        self._listeners: list[Callable[[AttentionTap], None]] = []

    @property
    def has_taps(self) -> bool:
        """True if anybody listens."""
        return bool(self._listeners)

    @property
    def is_plain(self) -> bool:
        """True if this is the formula and nothing else: no dropout of weights, gates or taps."""
        has_dropout = self.training and self.dropout_rate > 0.0
        return not (has_dropout or self._listeners) and self.gate is None

    def tap(self, listener: Callable[[AttentionTap], None]) -> TapHandle:
        """Hands `listener` every later call's queries, keys, values, mask and result.

        The path the model takes stays as it is. In evaluation mode nothing random happens, so what
        the listener recomputes is what the model used.
        """
        self._listeners.append(listener)
        return TapHandle(self._listeners, len(self._listeners) - 1)

    def forward(
        self, hidden: Tensor, memory: Tensor | None = None, mask: Tensor | Spans | None = None
    ) -> Tensor:
        """Attends from `hidden` to `memory`, or to itself.

        Args:
            hidden: (B, Q, D) where the queries come from.
            memory: (B, K, D) where keys and values come from; None: `hidden` (self-attention).
            mask: boolean, broadcastable to (B, H, Q, K); True means "may attend". Or where each
                sentence lies in a single row (B = 1), while training by `operations`.

        Returns:
            (B, Q, D) output of the projection W_O.
        """
        if isinstance(mask, Spans):
            return self._attend_within(hidden, memory, mask)
        if memory is None:
            query, key, value = self.project_all(hidden)
        else:
            query = self.project_query(hidden)
            key, value = self.project_memory(memory)
        return self.attend(query, key, value, mask)

    def project_all(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Projects (B, Q, D) to queries, keys and values, (B, H, Q, E) each, in one product."""
        query, key, value = self.in_projection(hidden).chunk(3, dim=-1)
        return self._split_heads(query), self._split_heads(key), self._split_heads(value)

    def project_query(self, hidden: Tensor) -> Tensor:
        """Projects (B, Q, D) to queries (B, H, Q, E)."""
        joined = self.n_heads * self.head_width
        return self._split_heads(self.in_projection.part(hidden, slice(joined)))

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Projects (B, K, D) to keys and values, (B, H, K, E) each, in one product."""
        joined = self.n_heads * self.head_width
        key, value = self.in_projection.part(memory, slice(joined, None)).chunk(2, dim=-1)
        return self._split_heads(key), self._split_heads(value)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attends with projected heads and joins them.

        Args:
            query: (B, H, Q, E) queries.
            key: (B, H, K, E) keys.
            value: (B, H, K, E) values.
            mask: boolean, broadcastable to (B, H, Q, K).

        Returns:
            (B, Q, D) output of the projection W_O.
        """
        dropout_rate = self.dropout_rate if self.training else 0.0
        is_fused = query.is_cuda or (
            key.shape[-2] >= FUSED_FROM_KEYS and query.shape[-2] >= FUSED_FROM_QUERIES
        )
        # A layer whose heads are all pruned is nothing for the fused kernels.
        attention = fused_attention if is_fused and self.n_heads else plain_attention
        if torch.is_grad_enabled():
            context = attention(query, key, value, mask, dropout_rate)
        else:
            context = by_sentence(attention, query, key, value, mask, dropout_rate)
        for listener in tuple(self._listeners):
            listener(AttentionTap(query, key, value, mask, context))
        if self.gate is not None:
            context = context * self.gate.to(context.dtype)
        # (B, H, Q, E) -> (B, Q, H, E) -> (B, Q, H·E) -> (B, Q, D)
        return self.out_projection(context.transpose(1, 2).flatten(2))

    def _attend_within(self, hidden: Tensor, memory: Tensor | None, spans: Spans) -> Tensor:
        """Attends within sentences that lie one after the other, (1, Q, D) to (1, Q, D)."""
        if self.operations is None or not self.is_plain:
            raise ValueError(
                "packed attention (without padding) needs `operations`, and only packed "
                "attention takes them"
            )
        if memory is None:
            query, key_value = self.in_projection(hidden), None
        else:
            joined = self.n_heads * self.head_width
            query = self.in_projection.part(hidden, slice(joined))
            key_value = self.in_projection.part(memory, slice(joined, None))
        context = query  # of no width, if there is no head
        if self.n_heads:
            context = self.operations.attention(query, key_value, self.n_heads, spans)
        return self.out_projection(context)

    def _split_heads(self, projected: Tensor) -> Tensor:
        # (B, Q, H·E) -> (B, Q, H, E) -> (B, H, Q, E)
        n_sentences, n_positions, _ = projected.shape
        split = projected.view(n_sentences, n_positions, self.n_heads, self.head_width)
        return split.transpose(1, 2)

    if TYPE_CHECKING:
        __call__ = forward
