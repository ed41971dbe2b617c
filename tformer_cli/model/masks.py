"""Attention masks: boolean, True means "may attend"."""

import torch
from torch import Tensor


def key_mask(visible: Tensor) -> Tensor:
    """Turns (B, K), True where a key is a token and not padding, into (B, 1, 1, K)."""
    return visible[:, None, None, :]


def causal_mask(n_positions: int, device: torch.device | None = None) -> Tensor:
    """Lets position i attend to positions 0 … i (Vaswani et al. 2017, section 3.2.3).

    Returns:
        (T, T) boolean.
    """
    return torch.ones(n_positions, n_positions, dtype=torch.bool, device=device).tril()
