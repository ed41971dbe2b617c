"""What stands where a model has no projections."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tformer_cli.model.operations import ALL_ROWS


class Copies(nn.Module):
    """Hands on what it is given, several times side by side: a product without weights.

    Attention without projections compares hidden states themselves, each head its own numbers of
    them. Whoever reads the matrix finds identities below each other.
    """

    bias: None = None
    """It has none."""

    def __init__(self, width: int, n_copies: int) -> None:
        super().__init__()
        self.in_features, self.n_copies = width, n_copies

    @property
    def weight(self) -> Tensor:
        """(n_copies·width, width) the matrix that it stands for."""
        return torch.eye(self.in_features).repeat(self.n_copies, 1)

    def forward(self, values: Tensor) -> Tensor:
        """Maps (…, K) to (…, n_copies·K)."""
        return self.part(values)

    def part(self, values: Tensor, rows: slice = ALL_ROWS) -> Tensor:
        """Maps (…, K) to (…, n), with the n rows of the matrix that are named; whole copies."""
        first, last, _ = rows.indices(self.n_copies * self.in_features)
        return torch.cat([values] * ((last - first) // self.in_features), dim=-1)

    if TYPE_CHECKING:
        __call__ = forward
