"""Positions of tokens: sinusoidal and learned positions."""

import math

import torch
from torch import Tensor, nn

from tformer_cli.model.config import ModelConfig


def sinusoids(n_positions: int, d_model: int) -> Tensor:
    """Computes the fixed position vectors of Vaswani et al. 2017, section 3.5.

    PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos(p / 10000^(2i/D)), computed in float64
    and rounded once, so that late positions keep their digits.

    Returns:
        (n_positions, D) float32.
    """
    position = torch.arange(n_positions, dtype=torch.float64).unsqueeze(1)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position * torch.exp(-math.log(10_000.0) * even / d_model)
    # two (P, D/2) -> (P, D/2, 2) -> (P, D): sine and cosine alternate
    return torch.stack((torch.sin(angle), torch.cos(angle)), dim=-1).flatten(1).float()


class SinusoidalPositions(nn.Module):
    """Sinusoids, computed as far as they were asked for; no parameter, not in the weights file."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.max_positions = config.max_positions
        self.d_model = config.d_model
        self._table = torch.empty(0, config.d_model, device="cpu")

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Returns the vectors of positions start … stop - 1, (stop - start, D)."""
        if self._table.shape[0] < stop or self._table.device != device:
            n_positions = min(max(256, 2 * stop), max(stop, self.max_positions))
            self._table = sinusoids(n_positions, self.d_model).to(device)
        return self._table[start:stop]


class LearnedPositions(nn.Module):
    """One learned vector for each position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(config.max_positions, config.d_model))

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Returns the vectors of positions start … stop - 1, (stop - start, D)."""
        return self.table[start:stop].to(device)
