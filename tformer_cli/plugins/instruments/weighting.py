"""The maps of a sentence in other terms than attention weights: norms, rollout, ALTI.

Layers multiplied together: what the tokens of both sentences contribute to every hidden state.

Each layer mixes positions by some matrix whose rows sum to 1. Rolled out, the encoder's state i
after layer l is made of the source tokens by row i of

    R_l = C_l · R_{l−1},   R_0 = I

(Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3). A decoder layer
mixes twice: its self-attention by C_self over the prefix, its cross-attention by C_cross over the
encoder's states, with the decoder's own state as one more column, c_res. So its states are made of
source tokens S and of prefix tokens P by

    S_l = C_cross · R + diag(c_res) · C_self · S_{l−1},   S_0 = 0
    P_l =               diag(c_res) · C_self · P_{l−1},   P_0 = I

with R of the last encoder layer; the rows of S_l and P_l together sum to 1 (ALTI+: Ferrando et al.
2022, "Towards Opening the Black Box of Neural Machine Translation", section 3).

For attention rollout the matrices are ½A + ½I, with A the mean over the heads; in cross-attention
½A next to a residual column of ½. As its authors say, in a masked decoder the first tokens gain by
being seen from everywhere. A language model has only R_l, of its decoder. ALTI takes
contributions instead of weights (below). Nothing here depends on how many heads a layer
has, or layers a stack; a layer without heads passes its input on.

Every attention of a model with its residual sum, taken apart by the tokens it reads.

An attention and the sum after it compute, for query i (Vaswani et al. 2017, section 3):

    r_i = x_i + Σ_j Σ_h A^h_ij f_h(m_j) + b_O,   f_h(m) = (m·W_V^h + b_V^h)·W_O^h

(Kobayashi et al. 2020, equation 4), where x is the residual stream and m what values are projected
from: x itself, in a pre-norm model LN(x), in cross-attention the encoder's output. A post-norm
model then takes LN(r_i). With the deviation σ_i of r_i at hand, that is linear too:

    LN(r_i) = L_i(r_i) + β,   L_i(v) = γ ⊙ (v − mean(v)) / σ_i,   σ_i = √(var(r_i) + ε)

with the variance that divides by D (Ba et al. 2016; Kobayashi et al. 2021, section 3). An RMS norm
subtracts no mean: L_i(v) = γ ⊙ v / σ_i, σ_i = √(mean(r²) + ε), and there is no β. So each
token's part of the output is known, and the parts and the biases add up to it exactly.

The inputs are the model's own, recorded in one forced pass; everything else is computed in
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
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tformer_cli.errors import UsageError
from tformer_cli.heads.names import KINDS, HeadId, Inspected, Kind, LayerId, attentions
from tformer_cli.inspect.capture.maps import AttentionMaps, Weights
from tformer_cli.inspect.weighting import WeightingName
from tformer_cli.kinds import reads_names
from tformer_cli.model.attention import attention_weights
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.model.methods import POOLINGS, PoolingRow
from tformer_cli.model.norms import Norm
from tformer_cli.plugins.instruments.observed import Observed, exact, observe, place_of


@dataclass(frozen=True, kw_only=True)
class LinearNorm:
    """A norm with its deviations held fast: L_i(v) = γ ⊙ (v − mean(v)) / σ_i."""

    deviation: Tensor  # (Q) σ_i
    scale: Tensor  # (D) γ
    shift: Tensor  # (D) β, which LN adds and L does not
    is_centered: bool  # True if the mean is taken off; an RMS norm leaves it

    @classmethod
    def of(cls, norm: Norm, rows: Tensor) -> "LinearNorm":
        """Takes a norm of rows (Q, D) as a linear map."""
        is_centered, bias = isinstance(norm, nn.LayerNorm), norm.bias
        variance = rows.var(dim=-1, correction=0) if is_centered else rows.square().mean(dim=-1)
        return cls(
            deviation=(variance + (norm.eps or 0.0)).sqrt(),
            scale=exact(norm.weight),
            shift=exact(torch.zeros_like(norm.weight) if bias is None else bias),
            is_centered=is_centered,
        )

    def apply(self, vectors: Tensor, rows: slice = slice(None)) -> Tensor:
        """Applies L_i to vectors of the queries in `rows`: (Q, …, D) to (Q, …, D)."""
        deviation = self.deviation[rows].view(-1, *[1] * (vectors.dim() - 1))
        if self.is_centered:
            vectors = vectors - vectors.mean(dim=-1, keepdim=True)
        return self.scale * vectors / deviation


@dataclass(frozen=True, kw_only=True)
class AttentionSublayer(Observed):
    """An observed attention and its residual sum; values are times the head's gate, if any."""

    kind: Kind
    layer: int
    out_weight: Tensor  # (H, E, D) W_O of each head
    out_bias: Tensor  # (D) b_O; 0 where the model has none
    norm: LinearNorm | None  # After the sum; None in a pre-norm model
    output: Tensor  # (Q, D) the model's own: the sum, after its norm if any

    def weights(self) -> Tensor:
        mask, bias = (None if t is None else t.cpu() for t in (self.tap.mask, self.tap.bias))
        bias = None if bias is None else bias.double()
        both = self.query[None], self.key[None]
        return attention_weights(*both, mask, bias=bias, scale=self.tap.scale)[0]

    def transform_values(self) -> Tensor:
        return torch.matmul(self.value, self.out_weight)


def observe_sublayers(
    model: Inspected, source_ids: Sequence[int], target_input_ids: Sequence[int]
) -> list[AttentionSublayer]:
    """Runs a pair as `forced_pass` does and takes down every attention and its sum."""
    layers = [(kind, layer) for kind, layer, _ in attentions(model)]
    observed = observe(model, source_ids, target_input_ids, layers)
    return [_sublayer(model, *layer, call) for layer, call in zip(layers, observed, strict=True)]


def value_norms(sublayer: AttentionSublayer) -> Tensor:
    """Computes norm-based weights ‖A_ij f_h(m_j)‖₂ of every head: (H, Q, K), float64.

    They say how much each token brings, not only how much it is looked at: heads are known to look
    hard at tokens whose vector is nearly zero (Kobayashi et al. 2020, "Attention is Not Only a
    Weight", section 3).
    """
    # the weight is a scalar, at least 0: it comes out of the norm
    lengths: Tensor = sublayer.transform_values().norm(dim=-1)
    # (H, Q, K) · (H, 1, K)
    return sublayer.weights() * lengths.unsqueeze(-2)


def norm_residual(sublayer: AttentionSublayer) -> float:
    # (H, Q, K) · (H, K, D) -> (H, Q, D) -> (Q, D)
    summed = (sublayer.weights() @ sublayer.transform_values()).sum(dim=0) + sublayer.out_bias
    return (summed - sublayer.attended).abs().max().item()


def _sublayer(model: Inspected, kind: Kind, layer: int, observed: Observed) -> AttentionSublayer:
    place, value = place_of(model, kind, layer), observed.value
    attention = place.attention
    if attention.gate is not None:
        value = value * exact(attention.gate).view(-1, 1, 1)
    weight, bias = attention.out_projection.weight, attention.out_projection.bias
    normed, summed = observed.normed, observed.stream + observed.attended
    return AttentionSublayer(
        **vars(observed) | {"value": value},
        kind=kind,
        layer=layer,
        # (D, H·E) -> (H·E, D) -> (H, E, D)
        out_weight=exact(weight).t().reshape(*value.shape[::2], len(weight)),
        out_bias=exact(weight.new_zeros(len(weight)) if bias is None else bias),
        norm=None if normed is None else LinearNorm.of(place.own_norm, summed),
        output=observed.summed if normed is None else normed,
    )


MOST_NUMBERS = 1 << 22  # Most numbers of the vectors T_i(m_j) at a time; in float64 32 MiB


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """Contributions of each token to each output of a sub-layer."""

    shares: Tensor
    """(Q, K) float64; in cross-attention (Q, K + 1), the last column the position itself. At least
    0, rows sum to 1. A row in which no vector brings the sum nearer is the position itself."""
    residual: float  # max |Σ_j T_i(m_j) + biases − y_i|


def contributions(sublayer: AttentionSublayer) -> Contributions:
    weights, transformed = sublayer.weights(), sublayer.transform_values()
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


class Pooled(NamedTuple):
    """The vector that an encoder pools from its last hidden states; see `EncoderOnly.pool`."""

    config: ModelConfig

    @property
    def _row(self) -> PoolingRow:
        return POOLINGS[self.config.pooling]

    @property
    def _first(self) -> int:
        """The first state of the mean: the class token of an image is not part of it."""
        return int(self.config.class_token)

    @property
    def unit(self) -> str:
        return "patches" if reads_names(self.config) else "tokens"

    def of(self, states: Tensor) -> Tensor:
        """Pools states (S, D): the first (D), their mean (D), or both in a row (2D)."""
        mean = states[self._first :].mean(dim=0)
        return torch.cat(self._row.parts(states[0], mean))

    def row(self, rows: Tensor) -> Tensor:
        """Takes the vector's row (S) out of a map (S, S); the mean of both where there are two."""
        pooled = self.of(rows)
        return pooled.view(2, -1).mean(dim=0) if self._row.is_joined else pooled

    @property
    def row_name(self) -> str:
        first = "class token" if self.config.class_token else "first patch"
        return " and ".join(self._row.parts(first, "mean of the patches"))

    def formula(self, n_states: int) -> str:
        n_tokens = n_states - self._first
        mean = f"1/{n_tokens} · Σ_i h_i" + (", i > 0" if self._first else "")
        parts = ", ".join(self._row.parts("h_0", mean))
        return f"m = [{parts}]" if self._row.is_joined else f"m = {parts}"

    def says(self, n_states: int) -> str:
        mean = f"the mean over the {n_states - self._first} {self.unit}"
        token = "first patch" if reads_names(self.config) else "first token"
        first = f"that of the {'class token' if self._first else token}"
        return ", then ".join(self._row.parts(first, mean))


Layers = dict[Kind, list[Tensor]]  # A float64 matrix for each layer of each kind


def roll_out(mixing: Layers) -> Layers:
    """Multiplies layers, the first one first: shares of source tokens and, in dec, of the prefix.

    Rows of `mixing` sum to 1; the last column of cross, (T, S + 1), is the residual.
    """
    encoder = roll_out_stack(mixing["enc"])
    if not mixing["cross"]:  # a classifier or a language model
        return {"enc": encoder, "dec": roll_out_stack(mixing["dec"]), "cross": []}
    memory = encoder[-1]
    n_prefix, n_source = len(mixing["dec"][0]), len(memory)
    prefix = torch.eye(n_prefix, dtype=torch.float64)
    source = torch.zeros(n_prefix, n_source, dtype=torch.float64)
    rolled: Layers = {"enc": encoder, "dec": [], "cross": []}
    for own, cross in zip(mixing["dec"], mixing["cross"], strict=True):
        kept = cross[:, -1:] * own
        prefix, source = kept @ prefix, cross[:, :-1] @ memory + kept @ source
        total = prefix.sum(dim=-1, keepdim=True) + source.sum(dim=-1, keepdim=True)
        prefix, source = prefix / total, source / total  # 1 but for rounding
        rolled["dec"].append(prefix)
        rolled["cross"].append(source)
    return rolled


def roll_out_stack(layers: Sequence[Tensor]) -> list[Tensor]:
    """Multiplies the matrices (S, S) of one stack together: the product up to each layer."""
    products: list[Tensor] = []
    for layer in layers:
        rolled = layer @ products[-1] if products else layer
        rolled = rolled / rolled.sum(dim=-1, keepdim=True)  # 1 but for rounding
        products.append(rolled)
    return products


def attention_mixing(maps: AttentionMaps) -> Layers:
    own: Layers = {"enc": [*map(_with_itself, maps.enc)], "dec": [*map(_with_itself, maps.dec)]}
    return own | {"cross": [*map(_beside_itself, maps.cross)]}


def _with_itself(weights: Weights) -> Tensor:
    """½ of the mean over the heads of (H, Q, Q), ½ the identity."""
    itself = torch.eye(weights.shape[-1], dtype=torch.float64)
    return (_mean(weights) + itself) / 2 if len(weights) else itself


def _mean(weights: Weights) -> Tensor:
    return torch.from_numpy(weights).double().mean(dim=0)


def _beside_itself(weights: Weights) -> Tensor:
    """(H, Q, K) to (Q, K + 1): ½ of the mean over the heads, and ½ in the last column."""
    n_heads, n_queries, n_keys = weights.shape
    mixed = torch.zeros(n_queries, n_keys + 1, dtype=torch.float64)
    mixed[:, :-1] = _mean(weights) / 2 if n_heads else 0.0
    mixed[:, -1] = 0.5 if n_heads else 1.0
    return mixed


def weighted_maps(model: Inspected, maps: AttentionMaps, weighting: WeightingName) -> AttentionMaps:
    if weighting == "alpha":
        return maps
    if weighting in {"rollout", "alti"} and not can_roll_out(model):
        raise UsageError.of(
            "{}: a recurrent unit replaces the decoder's self-attention, and what "
            "it passes from token to token is not measured; choose {weights} alpha or norm of "
            "inspect-heads",
            weighting,
        )
    if weighting == "rollout":
        return rollout_maps(maps)
    sublayers = observe_sublayers(model, maps.source_ids, maps.target_input_ids)
    return _norm_maps(maps, sublayers) if weighting == "norm" else alti_maps(maps, sublayers)


def can_roll_out(model: Inspected) -> bool:
    return isinstance(model, EncoderOnly) or all(
        layer.recurrence is None for layer in model.decoder.layers
    )


def rollout_maps(maps: AttentionMaps) -> AttentionMaps:
    residuals: dict[tuple[Kind, int], float] = {}
    for head, residual in maps.residuals.items():
        place = head.kind, head.layer
        residuals[place] = max(residual, residuals.get(place, 0.0))
    return _rolled_out(maps, attention_mixing(maps), residuals)


def alti_maps(maps: AttentionMaps, sublayers: list[AttentionSublayer]) -> AttentionMaps:
    """Rolls ALTI's contributions out; of `maps` only the tokens are taken."""
    parts = {(s.kind, s.layer): contributions(s) for s in sublayers}
    mixing: Layers = {
        kind: [part.shares for place, part in parts.items() if place[0] == kind] for kind in KINDS
    }
    return _rolled_out(maps, mixing, {place: part.residual for place, part in parts.items()})


def _norm_maps(maps: AttentionMaps, sublayers: list[AttentionSublayer]) -> AttentionMaps:
    layers: Layers = {kind: [] for kind in KINDS}
    residuals = {}
    for sublayer in sublayers:
        norms = value_norms(sublayer)
        layers[sublayer.kind].append(norms)
        residual = norm_residual(sublayer)
        for head in range(len(norms)):
            residuals[HeadId(sublayer.kind, sublayer.layer, head)] = residual
    return _with_layers(maps, layers, residuals)


def _rolled_out(
    maps: AttentionMaps, mixing: Layers, residuals: dict[tuple[Kind, int], float]
) -> AttentionMaps:
    layers = roll_out(mixing)
    named: dict[HeadId, float] = {
        LayerId(kind, layer, 0): max(
            (residual for place, residual in residuals.items() if _is_below(place, kind, layer)),
            default=0.0,
        )
        for kind in KINDS
        for layer in range(len(layers[kind]))
    }
    return _with_layers(maps, {kind: [m[None] for m in layers[kind]] for kind in KINDS}, named)


def _is_below(place: tuple[Kind, int], kind: Kind, layer: int) -> bool:
    """Tells if an attention is a factor of a layer's map."""
    if kind == "enc":
        return place[0] == "enc" and place[1] <= layer
    return place[0] == "enc" or place[1] <= layer


def _with_layers(
    maps: AttentionMaps, layers: Layers, residuals: dict[HeadId, float]
) -> AttentionMaps:
    enc, dec, cross = (tuple(tensor.float().numpy() for tensor in layers[kind]) for kind in KINDS)
    return replace(maps, enc=enc, dec=dec, cross=cross, residuals=residuals)
