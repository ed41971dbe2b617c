"""Norms of hidden states, over the model's width."""

from torch import nn

from tformer_cli.model.methods import NORMS, NormKind, load_method


class RMSNorm(nn.RMSNorm):
    """γ ⊙ x / √(mean(x²) + ε): neither centered nor shifted (Zhang & Sennrich 2019)."""

    bias: None = None
    """It has none."""


Norm = nn.LayerNorm | RMSNorm
"""A norm of either kind."""


def make_norm(kind: NormKind, d_model: int, epsilon: float, *, bias: bool) -> Norm:
    """Makes a norm over D; a layer norm may have a bias."""
    row = NORMS[kind]
    norm: Norm = load_method(row)(d_model, eps=epsilon, **({"bias": bias} if row.has_bias else {}))
    return norm
