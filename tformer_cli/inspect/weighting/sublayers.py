"""Every attention of a model with its residual sum, taken apart by the tokens it reads.

An attention and the sum after it compute, for query i (Vaswani et al. 2017, section 3):

    r_i = x_i + Σ_j Σ_h A^h_ij f_h(m_j) + b_O,   f_h(m) = (m·W_V^h + b_V^h)·W_O^h

(Kobayashi et al. 2020, equation 4), where x is the residual stream and m what values are projected
from: x itself, in a pre-norm model LN(x), in cross-attention the encoder's output. A post-norm
model then takes LN(r_i). With the deviation σ_i of r_i at hand, that is linear too:

    LN(r_i) = L_i(r_i) + β,   L_i(v) = γ ⊙ (v − mean(v)) / σ_i,   σ_i = √(var(r_i) + ε)

with the variance that divides by D (Ba et al. 2016; Kobayashi et al. 2021, section 3). An RMS norm
takes no mean off: L_i(v) = γ ⊙ v / σ_i, σ_i = √(mean(r²) + ε), and there is no β. So each
token's part of the output is known, and the parts and the biases add up to it exactly.

The inputs are the model's own, recorded in one forced pass; what is made of them is computed in
float64 and compared with the model's outputs.

ALTI: how much each token contributes to the output of one attention and its residual sum.

The output of query i is a sum of vectors, one for each token, and biases:

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

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tformer_cli.heads.names import Inspected, Kind, attentions
from tformer_cli.inspect.capture.observed import Observed, observe, place_of
from tformer_cli.model.attention import attention_weights
from tformer_cli.model.norms import Norm


@dataclass(frozen=True, kw_only=True)
class LinearNorm:
    """A norm with its deviations held fast: L_i(v) = γ ⊙ (v − mean(v)) / σ_i."""

    deviation: Tensor
    """(Q) σ_i."""
    scale: Tensor
    """(D) γ."""
    shift: Tensor
    """(D) β, which LN adds and L does not."""
    is_centered: bool
    """True if the mean is taken off; an RMS norm leaves it."""

    def apply(self, vectors: Tensor, rows: slice = slice(None)) -> Tensor:
        """Applies L_i to vectors of the queries in `rows`: (Q, …, D) to (Q, …, D)."""
        deviation = self.deviation[rows].view(-1, *[1] * (vectors.dim() - 1))
        if self.is_centered:
            vectors = vectors - vectors.mean(dim=-1, keepdim=True)
        return self.scale * vectors / deviation


@dataclass(frozen=True, kw_only=True)
class AttentionSublayer:
    """One attention and its residual sum for one sentence pair, in float64 on the CPU."""

    kind: Kind
    layer: int
    query: Tensor
    """(H, Q, E) queries."""
    key: Tensor
    """(H, K, E) keys."""
    value: Tensor
    """(H, K, E) values m_j·W_V^h + b_V^h, times the head's gate if it has one."""
    mask: Tensor | None
    """Boolean, broadcastable to (1, H, Q, K), True means "may attend"; None: everything."""
    scale: float
    """Factor of the scores, before the bias."""
    bias: Tensor | None
    """Broadcastable to (1, H, Q, K), what is added to the scores; None: nothing."""
    out_weight: Tensor
    """(H, E, D) W_O of each head."""
    out_bias: Tensor
    """(D) b_O; 0 where the model has none."""
    stream: Tensor
    """(Q, D) x, the residual stream."""
    norm: LinearNorm | None
    """The layer norm after the sum; None in a pre-norm model, which has none there."""
    attended: Tensor
    """(Q, D) the attention's output as the model computed it."""
    output: Tensor
    """(Q, D) the sub-layer's output as the model computed it: the sum, after its norm if any."""

    def weights(self) -> Tensor:
        """Computes (H, Q, K) the attention weights A."""
        return attention_weights(
            self.query[None], self.key[None], self.mask, bias=self.bias, scale=self.scale
        )[0]

    def transformed(self) -> Tensor:
        """Computes (H, K, D) the vectors f_h(m_j)."""
        return torch.matmul(self.value, self.out_weight)


def observe_sublayers(
    model: Inspected, source_ids: Sequence[int], target_input_ids: Sequence[int]
) -> list[AttentionSublayer]:
    """Runs one sentence pair through a model and takes down every attention and its sum.

    Args:
        model: the model, in evaluation mode.
        source_ids: (S) source tokens, the end of sentence last.
        target_input_ids: (T) what the decoder reads, the begin of sentence first.
    """
    layers = [(kind, layer) for kind, layer, _ in attentions(model)]
    observed = observe(model, source_ids, target_input_ids, layers)
    return [_sublayer(model, *layer, one) for layer, one in zip(layers, observed, strict=True)]


def value_norms(sublayer: AttentionSublayer) -> Tensor:
    """Computes norm-based weights ‖A_ij f_h(m_j)‖₂ of every head: (H, Q, K), float64.

    They say how much each token brings, not only how much it is looked at: heads are known to look
    hard at tokens whose vector is nearly zero (Kobayashi et al. 2020, "Attention is Not Only a
    Weight", section 3).
    """
    # the weight is a scalar, at least 0: it comes out of the norm
    lengths: Tensor = sublayer.transformed().norm(dim=-1)
    # (H, Q, K) · (H, 1, K)
    return sublayer.weights() * lengths.unsqueeze(-2)


def norm_residual(sublayer: AttentionSublayer) -> float:
    """Measures how far Σ_j Σ_h A_ij f_h(m_j) + b_O is from the attention's output in the model."""
    # (H, Q, K) · (H, K, D) -> (H, Q, D) -> (Q, D)
    summed = (sublayer.weights() @ sublayer.transformed()).sum(dim=0) + sublayer.out_bias
    return (summed - sublayer.attended).abs().max().item()


def _sublayer(model: Inspected, kind: Kind, layer: int, observed: Observed) -> AttentionSublayer:
    place, tap, value = place_of(model, kind, layer), observed.tap, observed.value
    attention = place.attention
    if attention.gate is not None:
        value = value * attention.gate.detach().cpu().double().view(-1, 1, 1)
    weight, bias = attention.out_projection.weight, attention.out_projection.bias
    normed, summed = observed.normed, observed.stream + observed.attended
    return AttentionSublayer(
        kind=kind,
        layer=layer,
        query=observed.query,
        key=observed.key,
        value=value,
        mask=None if tap.mask is None else tap.mask.cpu(),
        scale=tap.scale,
        bias=None if tap.bias is None else tap.bias.cpu().double(),
        # (D, H·E) -> (H·E, D) -> (H, E, D)
        out_weight=weight.detach().cpu().double().t().reshape(*value.shape[::2], len(weight)),
        out_bias=_vector(bias, len(weight)),
        stream=observed.stream,
        norm=None if normed is None else _linear(place.own_norm, summed),
        attended=observed.attended,
        output=observed.summed if normed is None else normed,
    )


def _linear(norm: Norm, summed: Tensor) -> LinearNorm:
    """Takes the layer norm of sums (Q, D) as a linear map."""
    width = summed.shape[-1]
    is_centered = isinstance(norm, nn.LayerNorm)
    variance = summed.var(dim=-1, correction=0) if is_centered else summed.square().mean(dim=-1)
    return LinearNorm(
        deviation=(variance + (norm.eps or 0.0)).sqrt(),
        scale=norm.weight.detach().cpu().double(),
        shift=_vector(norm.bias, width),
        is_centered=is_centered,
    )


def _vector(bias: Tensor | None, width: int) -> Tensor:
    if bias is None:
        return torch.zeros(width, dtype=torch.float64)
    return bias.detach().cpu().double()


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
