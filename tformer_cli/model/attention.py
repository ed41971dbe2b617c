"""Scaled dot-product attention, plain and fused, and the multi-head layer built on it.

Attention(Q, K, V) = softmax(Q·Kᵀ / √E + bias)·V (Vaswani et al. 2017, section 3.2; the paper has no
bias). The plain formula is the oracle: the fused kernels must agree with it, and a tap recomputes
weights with it, and leaves the model's path untouched (`MultiHeadAttention.tap`).
"""

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.cache import DecoderCache
from tformer_cli.model.operations import (
    IdentityProjection,
    Linear,
    Operations,
    Spans,
    by_sentence,
    dropout,
)
from tformer_cli.model.positions import Places, Positions
from tformer_cli.model.similarity import Similarity

FUSED_FROM_KEYS = 192
"""On a CPU the fused kernel wins only from about this many keys on: below, its blocks are mostly
empty and the plain formula's small batched products are faster."""
FUSED_FROM_QUERIES = 16
"""With fewer, as in a beam, its bits depend on the other sentences, on several threads."""


class Mask(NamedTuple):
    """Which keys each query may attend to; every one of them unless a field says otherwise."""

    visible: Tensor | None = None
    """Boolean, broadcastable to (B, H, Q, K); True means "may attend"."""
    spans: Spans | None = None
    """Where each sentence lies, in batches without padding, which only `Operations` attend in."""
    is_causal: bool = False
    """True if position i sees positions 0 … i and no others; a kernel then reads no mask."""


EVERYTHING = Mask()
"""Each query attends to all keys."""


def key_mask(is_token: Tensor) -> Mask:
    """Hides padding: (B, K), True where a key is a token, becomes visible (B, 1, 1, K)."""
    return Mask(is_token[:, None, None, :])


def causal_mask(n_positions: int, device: torch.device | None = None) -> Mask:
    """Lets position i attend to positions 0 … i (Vaswani et al. 2017, section 3.2.3).

    Returns:
        A mask with visible (T, T).
    """
    square = torch.ones(n_positions, n_positions, dtype=torch.bool, device=device)
    return Mask(square.tril(), is_causal=True)


def segment_mask(
    n_earlier: int,
    n_positions: int,
    segment: int,
    memory: int,
    device: torch.device | None = None,
) -> Mask:
    """Lets each position attend to its segment up to itself and to what is remembered before it.

    So one pass computes what passes of segment after segment do, each with the states of the
    `memory` positions before it (Dai et al. 2019, section 3.2): those are the states that the
    positions had in their own segments.

    Args:
        n_earlier: keys before the first position.
        n_positions: T; segments begin at the first.
        segment: positions of a segment.
        memory: positions before a segment that it attends to.
        device: of the mask.

    Returns:
        A mask with visible (T, n_earlier + T).
    """
    keys = torch.arange(-n_earlier, n_positions, device=device)
    # Queries count from 0, so that a division finds the segment of each
    queries = keys[n_earlier:, None]
    return Mask((keys <= queries) & (keys >= queries // segment * segment - memory))


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Computes softmax(scale·Q·Kᵀ + bias) over the keys a query may attend to.

    Args:
        query: (B, H, Q, E) queries.
        key: (B, H, K, E) keys.
        mask: boolean, broadcastable to (B, H, Q, K); True means "may attend".
        bias: broadcastable to (B, H, Q, K), added to the scaled scores.
        scale: factor of the scores; None: 1/√E.

    Returns:
        (B, H, Q, K) weights. Rows sum to 1 and hidden cells are exactly 0; a row with every key
        hidden is all zeros rather than NaN.
    """
    weights = _softmax_of_scores(query, key, mask, bias, scale)
    # A softmax over nothing but -∞ is NaN
    return weights if mask is None else weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


def _softmax_of_scores(
    query: Tensor, key: Tensor, mask: Tensor | None, bias: Tensor | None, scale: float | None
) -> Tensor:
    """The formula of attention weights; NaN in rows with every key hidden."""
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    # Queries are scaled, for they are fewer numbers than the scores
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    return torch.softmax(scores, dim=-1)


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout_rate: float = 0.0,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Computes attention by the formula; the oracle of `fused_attention`.

    Args:
        query: (B, H, Q, E) queries.
        key: (B, H, K, E) keys.
        value: (B, H, K, E) values.
        mask: boolean, broadcastable to (B, H, Q, K); every query must see at least one key.
        dropout_rate: chance of dropping a weight (training only).
        bias: broadcastable to (B, H, Q, K), added to the scaled scores.
        scale: factor of the scores; None: 1/√E.

    Returns:
        (B, H, Q, E) the values summed with the weights.
    """
    weights = dropout(_softmax_of_scores(query, key, mask, bias, scale), dropout_rate)
    # Under autocast a softmax is float32, whatever the values are
    return torch.matmul(weights.to(value.dtype), value)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout_rate: float = 0.0,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Computes the same as `plain_attention` in one fused kernel of torch.

    With `is_causal` the mask is the causal one, and the kernel skips its hidden half.
    """
    is_causal = is_causal and bias is None
    if is_causal:
        mask = None
    if bias is not None:  # the kernel adds a mask of numbers
        bias = bias.to(query.dtype)
        mask = bias if mask is None else torch.where(mask, bias, -math.inf)
    if mask is not None and query.device.type != "cpu":
        mask = _align_mask(mask, query)
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout_rate,
        is_causal=is_causal,
        scale=scale,
    )


def _align_mask(mask: Tensor, query: Tensor) -> Tensor:
    """Turns a mask into numbers to add, whose rows begin at multiples of 8."""
    # The kernels of a GPU need them so. torch would ask for each width whether it is a multiple,
    # and compiled layers would be compiled for both answers.
    n_keys = mask.shape[-1]
    width = n_keys // 8 * 8 + 8  # always more: nothing to pad would be a case of its own, too
    if mask.dtype != torch.bool:
        return functional.pad(mask, (0, width - n_keys))[..., :n_keys]
    return query.new_full((*mask.shape[:-1], width), -math.inf)[..., :n_keys].masked_fill_(mask, 0)


class AttentionTap(NamedTuple):
    """Inputs and outputs of a call of a layer, as a tap receives them."""

    query: Tensor
    """(B, H, Q, E) queries as they are compared, turned by their positions and made ready by the
    similarity."""
    key: Tensor
    """(B, H, K, E) keys, likewise."""
    value: Tensor
    """(B, H, K, E) values."""
    mask: Tensor | None
    """Boolean, broadcastable to (B, H, Q, K), True means "may attend"; None: everything."""
    context: Tensor
    """(B, H, Q, E) the weighted values as the model's own path computed them."""
    scale: float
    """Factor of the scores, before the bias."""
    bias: Tensor | None = None
    """Broadcastable to (B, H, Q, K), what is added to the scores; None: nothing."""

    def weights(self, dtype: torch.dtype | None = None) -> Tensor:
        """Computes (B, H, Q, K) the weights again, in a type of number other than the model's."""
        dtype = dtype or self.query.dtype
        query, key = self.query.to(dtype), self.key.to(dtype)
        return attention_weights(query, key, self.mask, bias=self.bias, scale=self.scale)


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
    unless heads were pruned or have another width, as in T5. Where several heads share keys
    and values (Ainslie et al. 2023, "GQA") W_K and W_V have fewer rows.
    """

    operations: Operations | None = None
    """Attention used in training; None: torch's."""
    positions: Positions
    """Positions of self-attention."""
    gate: Tensor | None = None
    """Factors ξ on each head's weighted values before W_O, broadcastable to (B, H, Q, E): (H, 1, 1)
    for all sentences, (B, H, 1, 1) for each its own; 0 switches a head off. None: nothing is
    multiplied."""
    shift: Tensor | None = None
    """Numbers added after the gate, broadcastable likewise: where the gate is 0 they replace what a
    head computed. None: nothing is added."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        head_width: int,
        *,
        n_key_heads: int = 0,
        has_projections: bool = True,
        similarity: Similarity | None = None,
        positions: Positions | None = None,
        bias_heads: Sequence[int] = (),
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        """Creates a layer.

        Args:
            d_model: D.
            n_heads: H; 0 leaves the bias of W_O.
            head_width: E.
            n_key_heads: heads of keys and values, which divide H; 0: H.
            has_projections: whether there are W_Q, W_K, W_V and W_O; else H·E is D.
            similarity: how queries and keys are compared; None: by the scaled dot product.
            positions: what positions do to queries, keys and scores of self-attention; None:
                nothing.
            bias_heads: which heads' biases of positions these heads have; empty: all of them.
            dropout: rate of the weights.
            bias: whether projections have biases.
        """
        super().__init__()
        self.n_heads = n_heads
        self.head_width = head_width
        self.similarity = Similarity(n_heads, head_width) if similarity is None else similarity
        self.dropout_rate = dropout
        self.n_key_heads = n_key_heads or n_heads
        joined, keys = n_heads * head_width, self.n_key_heads * head_width
        self.row_counts = (joined, keys, keys)
        self.in_projection: Linear | IdentityProjection
        self.out_projection: Linear | IdentityProjection
        with warnings.catch_warnings():  # a layer without heads has matrices without elements
            warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
            if has_projections:
                self.in_projection = Linear(d_model, joined + 2 * keys, bias=bias)
                self.out_projection = Linear(joined, d_model, bias=bias)
            else:
                self.in_projection, self.out_projection = (
                    IdentityProjection(d_model, 3),
                    IdentityProjection(d_model, 1),
                )
        # Not a child module: layers share it with the embedding, which its parameters are named by
        self.__dict__["positions"] = positions or Positions()
        self.relative = self.positions.of_layer(n_heads, head_width)
        self.bias_heads = list(bias_heads)
        self._listeners: list[Callable[[AttentionTap], None]] = []

    @property
    def has_taps(self) -> bool:
        """True if anybody listens."""
        return bool(self._listeners)

    @property
    def is_edited(self) -> bool:
        """True if there is a gate or a shift."""
        return self.gate is not None or self.shift is not None

    @property
    def is_plain(self) -> bool:
        """True if this is the paper's plain formula: no bias, dropout, gate, tap or shared keys."""
        has_dropout = self.training and self.dropout_rate > 0.0
        is_watched = bool(self._listeners) or self.is_edited
        is_papers = self.is_scaled_product and self.n_key_heads == self.n_heads
        return (
            is_papers
            and self.has_projections
            and not (has_dropout or is_watched or self.positions.biases or self.relative)
        )

    @property
    def has_projections(self) -> bool:
        """True if there are W_Q, W_K, W_V and W_O."""
        return isinstance(self.in_projection, Linear)

    @property
    def is_scaled_product(self) -> bool:
        """True if queries and keys are compared as in the paper."""
        return type(self.similarity) is Similarity

    def tap(self, listener: Callable[[AttentionTap], None]) -> TapHandle:
        """Hands `listener` every later call's queries, keys, values, mask and result.

        The path the model takes stays as it is. In evaluation mode nothing random happens, so what
        the listener recomputes is what the model used.
        """
        self._listeners.append(listener)
        return TapHandle(self._listeners, len(self._listeners) - 1)

    def forward(
        self,
        hidden: Tensor,
        memory: Tensor | None = None,
        mask: Mask = EVERYTHING,
        earlier: Tensor | None = None,
    ) -> Tensor:
        """Attends from `hidden` to `memory`, or to itself.

        Args:
            hidden: (B, Q, D) where the queries come from.
            memory: (B, K, D) where keys and values come from; None: `hidden` (self-attention).
            mask: which keys each query may attend to; with spans only while training by
                `operations`.
            earlier: (B, M, D) of self-attention what is before `hidden`: the first M keys and
                values; None: nothing.

        Returns:
            (B, Q, D) output of the projection W_O.
        """
        if mask.spans is not None:
            if self.operations is None or not self.is_plain:
                raise ValueError(
                    "packed attention (without padding) needs `operations`, and only packed "
                    "attention takes them"
                )
            return self.operations.attend_within(self, hidden, memory, mask.spans)
        bias = None
        if memory is None:
            n_earlier = 0 if earlier is None else earlier.shape[1]
            if earlier is not None:
                # States of an earlier pass may have another precision
                hidden = torch.cat((earlier.to(hidden.dtype), hidden), dim=1)
            n_positions = hidden.shape[1]
            query, key, value = self.project_all(hidden, slice(0, n_positions))
            query = query[:, :, n_earlier:]
            at = torch.arange(n_positions, device=hidden.device)
            bias = self.position_bias(query, at[n_earlier:], at)
        else:
            # Without bias: it would compare positions of two languages
            query = self.project_query(hidden)
            key, value = self.project_memory(memory)
        return self.attend(query, key, value, mask.visible, bias, is_causal=mask.is_causal)

    def project_all(self, hidden: Tensor, at: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Projects (B, Q, D) to queries, keys and values in one product.

        Args:
            hidden: (B, Q, D).
            at: positions, which turn queries and keys; as a tensor (B, 1, Q).

        Returns:
            (B, H, Q, E) queries; keys and values likewise, of as many heads as keys have.
        """
        parts = self.in_projection(hidden).split_with_sizes(self.row_counts, dim=-1)
        query, key, value = map(self._split_heads, parts)
        if self.positions.turns:
            query, key = (
                self.positions.rotate_heads(query, at),
                self.positions.rotate_heads(key, at),
            )
        if self.relative is not None:
            query = self.relative.queries(query)
        return self.similarity.queries(query), self.similarity.keys(key), value

    def position_bias(self, query: Tensor, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Computes what positions add to the scaled scores of these heads.

        Args:
            query: (B, H, Q, E) queries as they are compared.
            queries: (…, Q) their positions, or one of all.
            keys: (K) positions of the keys.

        Returns:
            Broadcastable to (B, H, Q, K); None: nothing.
        """
        if self.relative is not None:
            # Within the scaled sum (Dai et al. 2019, section 3.3)
            return self.relative.bias(query, queries, keys) * self.similarity.scale
        if not self.positions.biases:
            return None
        bias = self.positions.bias(queries, keys)
        # A layer without heads picks none of them
        return bias[..., self.bias_heads, :, :] if self.bias_heads or not self.n_heads else bias

    def step_bias(self, query: Tensor, cache: DecoderCache) -> Tensor | None:
        """Computes the bias of one position's scores, (B, H, W, K) or (H, 1, K); None: no bias."""
        if self.relative is None and not self.positions.biases:
            return None
        keys = cache.key_positions
        return self.position_bias(query, torch.tensor([cache.length], device=keys.device), keys)

    def project_query(self, hidden: Tensor) -> Tensor:
        """Projects (B, Q, D) to queries (B, H, Q, E)."""
        query = self._split_heads(self.in_projection.part(hidden, slice(self.row_counts[0])))
        return self.similarity.queries(query)

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Projects (B, K, D) to keys and values in one product, of as many heads as keys have."""
        both = self.in_projection.part(memory, slice(self.row_counts[0], None))
        key, value = both.chunk(2, dim=-1)
        return self.similarity.keys(self._split_heads(key)), self._split_heads(value)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        bias: Tensor | None = None,
        *,
        is_causal: bool = False,
    ) -> Tensor:
        """Attends with projected heads and joins them.

        Args:
            query: (B, H, Q, E) queries.
            key: (B, ·, K, E) keys, of as many heads as keys have.
            value: (B, ·, K, E) values.
            mask: boolean, broadcastable to (B, H, Q, K).
            bias: likewise, added by positions to the scaled scores.
            is_causal: whether the mask is the causal one.

        Returns:
            (B, Q, D) output of the projection W_O.
        """
        if self.n_key_heads != self.n_heads:
            n_sharing = self.n_heads // self.n_key_heads
            key, value = (part.repeat_interleave(n_sharing, dim=1) for part in (key, value))
        dropout_rate = self.dropout_rate if self.training else 0.0
        is_fused = query.is_cuda or (
            key.shape[-2] >= FUSED_FROM_KEYS and query.shape[-2] >= FUSED_FROM_QUERIES
        )
        # A layer whose heads are all pruned is nothing for the fused kernels.
        attention: Callable[..., Tensor] = (
            fused_attention if is_fused and self.n_heads else plain_attention
        )
        scale, own_bias = self.similarity.scale, self.similarity.bias(query, key)
        if own_bias is not None:
            bias = own_bias if bias is None else own_bias + bias
        if bias is not None:
            attention = functools.partial(attention, bias=bias)
        if torch.is_grad_enabled():
            if is_causal and is_fused and self.n_heads:
                attention = functools.partial(attention, is_causal=True)
            context = attention(query, key, value, mask, dropout_rate, scale=scale)
        else:
            context = by_sentence(attention, query, key, value, mask, dropout_rate, scale)
        for listener in tuple(self._listeners):  # one may end its own tap
            listener(AttentionTap(query, key, value, mask, context, scale, bias))
        # After the taps, which are to see what a head computes even where it is switched off
        if self.gate is not None:
            context = context * self.gate.to(context.dtype)
        if self.shift is not None:
            context = context + self.shift.to(context.dtype)
        # (B, H, Q, E) -> (B, Q, H, E) -> (B, Q, H·E) -> (B, Q, D)
        return self.out_projection(context.transpose(1, 2).flatten(2))

    def _split_heads(self, projected: Tensor) -> Tensor:
        # (B, Q, H·E) -> (B, Q, H, E) -> (B, H, Q, E)
        n_heads = projected.shape[-1] // self.head_width
        split = projected.view(*projected.shape[:-1], n_heads, self.head_width)
        return split.transpose(1, 2)

    if TYPE_CHECKING:
        __call__ = forward
