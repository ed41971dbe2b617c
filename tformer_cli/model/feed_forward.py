"""The position-wise feed-forward layer."""

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.dropout import Dropout


class FeedForward(nn.Module):
    """FFN(x) = activation(x·W₁ + b₁)·W₂ + b₂ (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.outer = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.activation = functional.relu if config.activation == "relu" else functional.gelu
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Maps (B, T, D) to (B, T, D), each position by itself."""
        # (B, T, D) -> (B, T, F) -> (B, T, D)
        outer: Tensor = self.outer(self.dropout(self.activation(self.inner(hidden))))
        return outer

    if TYPE_CHECKING:
        __call__ = forward
