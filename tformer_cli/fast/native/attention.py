"""Attention by the kernels, with its gradient, in sentences that lie one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tformer_cli.fast.native.operations import kernel_of, kind_of
from tformer_cli.fast.native.structs import AttentionPass, HeadRows

if TYPE_CHECKING:
    import ctypes

    from torch import Tensor

    from tformer_cli.model.operations import Spans


class NativeAttention:
    """Scaled dot-product attention of all heads."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Takes the library's functions."""
        self.attend = kernel_of(library, "tformer_attend")
        self.attend_backward = kernel_of(library, "tformer_attend_backward")

    def __call__(
        self,
        query: Tensor,
        memory: Tensor | None,
        n_heads: int,
        spans: Spans,
        turns: Tensor | None = None,
    ) -> Tensor:
        """Attends within sentences that lie one after the other.

        Args:
            query: (1, N, H·E) queries, or (1, N, 3·H·E) queries, keys and values.
            memory: (1, K, 2·H·E) keys and values, or None: they are behind the queries.
            n_heads: H.
            spans: which rows belong together.
            turns: (P, E) cosines and sines of all positions in a sentence, which turn queries and
                keys (see `RotaryPositions`), or None.

        Returns:
            (1, N, H·E) weighted means of values.
        """
        # A pass has one kind of number; another would be read as garbage
        if memory is not None and kind_of(memory) != kind_of(query):
            raise TypeError(f"queries are {query.dtype}, but keys and values {memory.dtype}")
        context: Tensor = _AttentionFunction.apply(  # type: ignore[no-untyped-call]
            self, query, memory, _Layout(spans, n_heads, turns)
        )
        return context


KEPT_KEYS = 192
"""From that many keys a sentence on, attention weights are not kept for the backward pass."""


class _Layout:
    """Addresses of sentences and their weights."""

    def __init__(self, spans: Spans, n_heads: int, turns: Tensor | None) -> None:
        """Computes it."""
        self.n_heads, self._is_causal = n_heads, spans.is_causal
        self._queries, self._keys = spans.queries.contiguous(), spans.keys.contiguous()
        n_queries, n_keys = self._queries.diff(), self._keys.diff()
        sides = (n_queries, n_keys)
        if not len(n_queries) or any(int(lengths.min()) < 1 for lengths in sides):
            raise ValueError("there must be at least one sentence, each with a token on both sides")
        self._most = int(n_queries.max()), int(n_keys.max())
        if turns is not None and len(turns) < max(self._most):
            raise ValueError(f"{len(turns)} positions for a sentence of {max(self._most)}")
        self._turns = turns
        self.n_queries, self.n_keys = int(self._queries[-1]), int(self._keys[-1])
        # Rows are whole vectors, of 16 numbers at most
        strides = (n_keys + 15) // 16 * 16
        self._weights = functional.pad((n_heads * n_queries * strides).cumsum(0), (1, 0))
        # Of long sentences they would take more memory than all else: the kernels make them twice
        is_kept = max(self._most) < KEPT_KEYS
        self.n_weights = int(self._weights[-1]) if is_kept else 0

    def attention(
        self, query: Tensor, memory: Tensor | None, weights: Tensor, context: Tensor
    ) -> AttentionPass:
        """Returns the address of everything; all tensors must stay alive until the pass is over."""
        joined = context.shape[2]
        attention = AttentionPass(
            n_sentences=len(self._queries) - 1,
            n_heads=self.n_heads,
            head_width=joined // self.n_heads,
            kind=kind_of(query),
            is_causal=self._is_causal,
            turns=None if self._turns is None else self._turns.data_ptr(),
            query_starts=self._queries.data_ptr(),
            key_starts=self._keys.data_ptr(),
            weight_starts=self._weights.data_ptr(),
            most_queries=self._most[0],
            most_keys=self._most[1],
            weights=weights.data_ptr(),
            context=_head_rows(context, 0, joined),
            n_threads=torch.get_num_threads(),
        )
        attention.query, attention.key, attention.value = _parts(query, memory, joined)
        return attention


# Profiles show this name for the time spent here
class _AttentionFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # what torch hands over has no public type
        native: NativeAttention,
        query: Tensor,
        memory: Tensor | None,
        layout: _Layout,
    ) -> Tensor:
        query = query.contiguous()
        memory = None if memory is None else memory.contiguous()
        joined = query.shape[2] // (3 if memory is None else 1)
        weights = torch.empty(layout.n_weights, dtype=torch.float32, device="cpu")
        context = query.new_empty(1, query.shape[1], joined)
        # Filling rows belong to no sentence, so the kernels never write them
        context[:, layout.n_queries :] = 0.0
        native.attend(layout.attention(query, memory, weights, context))
        ctx.native, ctx.layout = native, layout
        ctx.save_for_backward(query, memory, weights)
        return context

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
    ) -> tuple[None, Tensor, Tensor | None, None]:
        query, memory, weights = ctx.saved_tensors
        layout: _Layout = ctx.layout
        # The kernels step through memory, whatever torch's strides are
        gradient = gradient.contiguous()
        query_gradient = torch.empty_like(query)
        # Filling rows get no gradient, and memory holds anything
        query_gradient[:, layout.n_queries :] = 0.0
        memory_gradient = None
        if memory is not None:
            memory_gradient = torch.empty_like(memory)
            memory_gradient[:, layout.n_keys :] = 0.0
        attention = layout.attention(query, memory, weights, gradient)
        parts = _parts(query_gradient, memory_gradient, gradient.shape[2])
        attention.query_gradient, attention.key_gradient, attention.value_gradient = parts
        ctx.native.attend_backward(attention)
        return None, query_gradient, memory_gradient, None


def _parts(query: Tensor, memory: Tensor | None, joined: int) -> tuple[HeadRows, ...]:
    """Queries, keys and values, which are columns of one tensor or two."""
    if memory is None:
        return tuple(_head_rows(query, part, joined) for part in range(3))
    return (
        _head_rows(query, 0, joined),
        _head_rows(memory, 0, joined),
        _head_rows(memory, 1, joined),
    )


def _head_rows(tensor: Tensor, part: int, joined: int) -> HeadRows:
    start = tensor.data_ptr() + part * joined * tensor.element_size()
    return HeadRows(start, tensor.stride(1))
