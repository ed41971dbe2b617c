"""Norm-based weights: how much each token really brings, not only how much it is looked at.

A head's weight A_ij says how much of f_h(m_j) enters the sum; the vector itself may be long or
short, and heads are known to look hard at tokens whose vector is nearly zero. So the weight of key
j for query i is taken to be ‖A_ij f_h(m_j)‖₂ (Kobayashi et al. 2020, "Attention is Not Only a
Weight", section 3).
"""

from torch import Tensor

from tformer_cli.inspection.weighting.sublayers import AttentionSublayer


def value_norms(sublayer: AttentionSublayer) -> Tensor:
    """Computes ‖A_ij f_h(m_j)‖₂ for every head: (H, Q, K), float64."""
    # the weight is a scalar, at least 0: it comes out of the norm
    lengths: Tensor = sublayer.transformed().norm(dim=-1)
    # (H, Q, K) · (H, 1, K)
    return sublayer.weights() * lengths.unsqueeze(-2)


def norm_residual(sublayer: AttentionSublayer) -> float:
    """Measures how far Σ_j Σ_h A_ij f_h(m_j) + b_O is from the attention's output in the model.

    Returns:
        The largest difference of all queries and components.
    """
    # (H, Q, K) · (H, K, D) -> (H, Q, D) -> (Q, D)
    summed = (sublayer.weights() @ sublayer.transformed()).sum(dim=0) + sublayer.out_bias
    return (summed - sublayer.attended).abs().max().item()
