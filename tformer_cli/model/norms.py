"""Norms of hidden states, over the model's width."""

from torch import nn

from tformer_cli.model.config import NormKind


class RMSNorm(nn.RMSNorm):
    """γ ⊙ x / √(mean(x²) + ε): neither centered nor shifted (Zhang & Sennrich 2019)."""

    bias: None = None
    """It has none."""


Norm = nn.LayerNorm | RMSNorm
"""A norm of either kind."""


def make_norm(kind: NormKind, d_model: int, epsilon: float, *, bias: bool) -> Norm:
    """Makes a norm over D; a layer norm may have a bias."""
    if kind == "rms":
        return RMSNorm(d_model, eps=epsilon)
    return nn.LayerNorm(d_model, eps=epsilon, bias=bias)
