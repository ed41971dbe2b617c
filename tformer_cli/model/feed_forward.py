"""The position-wise feed-forward layer."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.dropout import Dropout
from tformer_cli.model.linear import Linear
from tformer_cli.model.operations import Operations
from tformer_cli.model.repeatable import by_rows


class FeedForward(nn.Module):
    """FFN(x) = activation(x·W₁ + b₁)·W₂ + b₂ (Vaswani et al. 2017, section 3.3)."""

    operations: Operations | None = None
    """Operations used where gradients are needed; None: torch's."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff, bias=config.bias)
        self.outer = Linear(config.d_ff, config.d_model, bias=config.bias)
        self.is_relu = config.activation == "relu"
        self.dropout = Dropout(config.activation_dropout)

    @property
    def _is_plain(self) -> bool:
        """True if this is the paper's formula and nothing else."""
        return self.is_relu and not (self.training and self.dropout.rate > 0.0)

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
        inner = self.inner.part(hidden, relu=self.is_relu)
        return self.outer(self.dropout(inner if self.is_relu else functional.gelu(inner)))

    if TYPE_CHECKING:
        __call__ = forward
