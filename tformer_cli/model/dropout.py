"""Dropout (Srivastava et al. 2014) whose random numbers cost little on a CPU.

torch's CPU dropout draws one random number for every value; at translation's sizes this is a sixth
of a training step. Here a 64-bit draw serves four values: each 16-bit part is compared with the
rate, so that the rate is met to 1/65536. On other devices torch's own kernel is used.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.operations import Operations

_LEVELS = 1 << 16


def keep_mask(shape: torch.Size, rate: float) -> Tensor:
    """Draws a boolean mask on the CPU that is False with chance `rate`, from torch's generator."""
    n_values = shape.numel()
    draws = torch.empty((n_values + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    threshold = round(rate * _LEVELS) - _LEVELS // 2
    return (draws.view(torch.int16)[:n_values] >= threshold).view(shape)


def dropout(values: Tensor, rate: float) -> Tensor:
    """Zeroes each value with chance `rate` and scales the rest by 1 / (1 - rate)."""
    if rate == 0.0:
        return values
    if values.device.type != "cpu":
        return functional.dropout(values, rate)
    kept_share = 1.0 - round(rate * _LEVELS) / _LEVELS
    return values * keep_mask(values.shape, rate).to(values.dtype).div_(kept_share)


class Dropout(nn.Module):
    """Dropout as a module: active while training, the identity otherwise."""

    operations: Operations | None = None
    """Operations used in training; None: torch's."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """Drops values of a tensor of any shape."""
        if not self.training or self.rate == 0.0:
            return values
        if self.operations is not None:
            return self.operations.dropout(values, self.rate)
        return dropout(values, self.rate)

    def added(self, hidden: Tensor, values: Tensor) -> Tensor:
        """Computes hidden + dropout(values), the residual sum of a sub-layer."""
        if self.training and self.rate > 0.0 and self.operations is not None:
            return self.operations.add_dropout(hidden, values, self.rate)
        return hidden + self(values)

    def added_and_normed(
        self, hidden: Tensor, values: Tensor, norm: nn.LayerNorm, *, rounds: bool
    ) -> tuple[Tensor, Tensor]:
        """Computes hidden + dropout(values) and its layer norm.

        Args:
            hidden: (…, D).
            values: (…, D), in which values are dropped.
            norm: over D.
            rounds: whether nothing is done with the norm but multiply it by matrices.
        """
        if self.training and self.operations is not None and torch.is_grad_enabled():
            return self.operations.add_dropout_norm(hidden, values, self.rate, norm, rounds=rounds)
        summed = self.added(hidden, values)
        return summed, norm(summed)

    if TYPE_CHECKING:
        __call__ = forward
