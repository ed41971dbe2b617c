"""Masks of attention: which keys each query may attend to."""

from typing import NamedTuple

import torch
from torch import Tensor


class Spans(NamedTuple):
    """Sentences that lie one after the other in a single row: each attends within its own."""

    queries: Tensor
    """(B + 1) where the queries of each sentence begin, and where the last one ends."""
    keys: Tensor
    """(B + 1) the same of the keys."""
    is_causal: bool
    """True if query i sees keys 0 … i alone."""
    positions: Tensor | None = None
    """(Q) place of each query in its sentence, from 0; None in cross-attention."""


class Mask(NamedTuple):
    """Which keys each query may attend to; every one of them unless a field says otherwise."""

    visible: Tensor | None = None
    """Boolean, broadcastable to (B, H, Q, K); True means "may attend"."""
    spans: Spans | None = None
    """Where each sentence lies, in batches without padding, which only `Operations` attend in."""


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
    return Mask(square.tril())
