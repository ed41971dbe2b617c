"""ALTI: how much each token contributes to the output of one attention and its residual sum.

The output of query i is a sum of vectors, one for each token, and biases (see `sublayers`):

    y_i = Σ_j T_i(m_j) + L_i(b_O) + β,   T_i(m_j) = L_i(Σ_h A^h_ij f_h(m_j) + [j = i] x_i)

and without L and β in a pre-norm model. The contribution of j is by how much its vector brings the
sum nearer, in the 1-norm, as a share of all (Ferrando, Gállego & Costa-jussà 2022, "Measuring the
Mixing of Contextual Information in the Transformer", section 3):

    c_ij ∝ max(0, ‖y_i‖₁ − ‖y_i − T_i(m_j)‖₁),   Σ_j c_ij = 1

In cross-attention, where x_i is not a row of m, the residual is a column of its own, the last one
(ALTI+: Ferrando, Gállego, Alastruey, Escolano & Costa-jussà 2022, "Towards Opening the Black Box of
Neural Machine Translation", section 3). The feed-forward layer works on each position by itself and
is omitted, as there. The published code divides by the deviation that divides by D − 1; layer norm
divides by D, and so does this.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tformer_cli.inspection.weighting.sublayers import AttentionSublayer

MOST_NUMBERS = 1 << 22
"""Most numbers of the vectors T_i(m_j) at a time; in float64 32 MiB."""


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """Contributions of each token to each output of a sub-layer."""

    shares: Tensor
    """(Q, K) float64; in cross-attention (Q, K + 1), the last column the position itself. At least
    0, rows sum to 1. A row in which no vector brings the sum nearer is the position itself."""
    residual: float
    """max |Σ_j T_i(m_j) + biases − y_i|, by how much the vectors miss the model's own output."""


def contributions(sublayer: AttentionSublayer) -> Contributions:
    """Computes the contributions of one attention and its residual sum."""
    weights, transformed = sublayer.weights(), sublayer.transformed()
    n_queries, n_keys = weights.shape[1:]
    at_a_time = max(1, MOST_NUMBERS // ((n_keys + 1) * sublayer.stream.shape[-1]))
    shares, residuals = [], []
    for start in range(0, n_queries, at_a_time):
        rows = slice(start, min(start + at_a_time, n_queries))
        vectors = _vectors(sublayer, weights[:, rows], transformed, rows)
        output = vectors.sum(dim=1) + _biases(sublayer, rows)
        residuals.append((output - sublayer.output[rows]).abs().max().item())
        shares.append(_shares(vectors, output, _own_columns(sublayer, rows)))
    return Contributions(shares=torch.cat(shares), residual=max(residuals))


def _vectors(
    sublayer: AttentionSublayer, weights: Tensor, transformed: Tensor, rows: slice
) -> Tensor:
    """Computes T_i(m_j) of some queries: (Q, K, D), or (Q, K + 1, D) in cross-attention."""
    # (H, Q, K) and (H, K, D) -> (Q, K, D)
    vectors = torch.einsum("hqk,hkd->qkd", weights, transformed)
    stream = sublayer.stream[rows]
    if sublayer.kind == "cross":
        vectors = torch.cat((vectors, stream[:, None]), dim=1)
    else:
        vectors[torch.arange(len(stream)), _own_columns(sublayer, rows)] += stream
    return vectors if sublayer.norm is None else sublayer.norm.apply(vectors, rows)


def _biases(sublayer: AttentionSublayer, rows: slice) -> Tensor:
    """Rest of the output besides the tokens' vectors, (Q, D)."""
    bias = sublayer.out_bias.expand(rows.stop - rows.start, -1)
    norm = sublayer.norm
    return bias if norm is None else norm.apply(bias, rows) + norm.shift


def _own_columns(sublayer: AttentionSublayer, rows: slice) -> Tensor:
    """(Q) the column that holds each query's residual."""
    if sublayer.kind == "cross":
        return torch.full((rows.stop - rows.start,), sublayer.key.shape[1])
    return torch.arange(rows.start, rows.stop)


def _shares(vectors: Tensor, output: Tensor, own: Tensor) -> Tensor:
    """Turns vectors (Q, K, D) that add up to outputs (Q, D), but for biases, into shares (Q, K)."""
    length = output.norm(p=1, dim=-1, keepdim=True)
    nearer = (length - (output[:, None] - vectors).norm(p=1, dim=-1)).clamp(min=0.0)
    total = nearer.sum(dim=-1, keepdim=True)
    itself = torch.nn.functional.one_hot(own, nearer.shape[1]).double()
    return torch.where(total > 0.0, nearer / total.where(total > 0.0, 1.0), itself)
