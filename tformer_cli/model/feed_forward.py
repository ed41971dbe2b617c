"""The position-wise feed-forward layer."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.methods import ACTIVATIONS, Activation, load_method
from tformer_cli.model.operations import Dropout, Linear, Operations, by_rows


def swish(values: Tensor) -> Tensor:
    """Computes x·σ(x) = x / (1 + e^-x), SiLU (Hendrycks & Gimpel 2016, section 4)."""
    if torch.is_grad_enabled():
        return functional.silu(values)
    # torch's kernel rounds the last values of a tensor otherwise, so that bits would depend on
    # the other rows of the batch
    return values / (1.0 + torch.exp(-values))


def gelu_tanh(values: Tensor) -> Tensor:
    """Computes ½x·(1 + tanh u) = x·σ(2u), u = √(2/π)·(x + 0.044715x³) (Hendrycks & Gimpel 2016)."""
    if torch.is_grad_enabled():
        return functional.gelu(values, approximate="tanh")
    # as of `swish`
    doubled = values * (1.0 + 0.044715 * values * values) * (2.0 * math.sqrt(2.0 / math.pi))
    return values / (1.0 + torch.exp(-doubled))


def activation_function(kind: Activation) -> Callable[[Tensor], Tensor]:
    """Returns the function between the two products."""
    function: Callable[[Tensor], Tensor] = load_method(ACTIVATIONS[kind])
    return function


class FeedForward(nn.Module):
    """FFN(x) = activation(x·W₁ + b₁)·W₂ + b₂ (Vaswani et al. 2017, section 3.3).

    Gated it is (activation(x·W + b) ⊙ (x·W₁ + b₁))·W₂ + b₂ (Shazeer 2020, "GLU Variants").
    """

    operations: Operations | None = None
    """Operations used where gradients are needed; None: torch's."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Activation = "relu",
        gated: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        """Creates a layer.

        Args:
            d_model: D.
            d_ff: F.
            activation: between the products.
            gated: whether there is a gate, W and b.
            dropout: rate after the activation.
            bias: whether b₁, b₂ and b are there.
        """
        super().__init__()
        self.inner = Linear(d_model, d_ff, bias=bias)
        self.outer = Linear(d_ff, d_model, bias=bias)
        self.gate = Linear(d_model, d_ff, bias=bias) if gated else None
        self.activation = activation_function(activation)
        self._is_in_products = ACTIVATIONS[activation].is_in_products
        self.dropout = Dropout(dropout)

    @property
    def _is_plain(self) -> bool:
        """True if this is the paper's formula and nothing else."""
        has_dropout = self.training and self.dropout.rate > 0.0
        is_adapted = self.inner.low_ranks is not None or self.outer.low_ranks is not None
        is_papers = self._is_in_products and self.gate is None  # `Operations` know no other
        return is_papers and not (has_dropout or is_adapted)

    def forward(self, hidden: Tensor) -> Tensor:
        """Maps (B, T, D) to (B, T, D), each position by itself."""
        if self.operations is not None and torch.is_grad_enabled() and self._is_plain:
            first, second = self.inner, self.outer
            return self.operations.feed_forward(
                hidden, (first.weight, first.bias), (second.weight, second.bias)
            )
        return self._compute(hidden) if torch.is_grad_enabled() else by_rows(self._compute, hidden)

    def _compute(self, hidden: Tensor) -> Tensor:
        # (…, D) -> (…, F) -> (…, D)
        first = self.inner if self.gate is None else self.gate
        if self._is_in_products:
            inner = first.part(hidden, relu=True)
        else:
            inner = self.activation(first(hidden))
        if self.gate is not None:
            inner = inner * self.inner(hidden)
        return self.outer(self.dropout(inner))

    if TYPE_CHECKING:
        __call__ = forward
