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
½A beside a residual column of ½. As its authors say, in a masked decoder the first tokens gain by
being seen from everywhere. Of a language model there is R_l alone, of its decoder. ALTI takes
contributions instead of weights (see `sublayers`). Nothing here depends on how many heads a layer
has, or layers a stack; a layer without heads passes its input on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tformer_cli.errors import UsageError
from tformer_cli.heads.names import KINDS, HeadId, Inspected, Kind, LayerId
from tformer_cli.inspect.capture.forced import AttentionMaps
from tformer_cli.inspect.weighting.sublayers import (
    AttentionSublayer,
    contributions,
    norm_residual,
    observe_sublayers,
    value_norms,
)
from tformer_cli.inspect.weighting.weighting import WeightingName
from tformer_cli.model.encoder_only import EncoderOnly


@dataclass(frozen=True, kw_only=True)
class LayerMixing:
    """By how much each attention and its residual sum mix positions; rows sum to 1, float64."""

    enc: tuple[Tensor, ...]
    """For each encoder layer (S, S)."""
    dec: tuple[Tensor, ...]
    """For each decoder layer's self-attention (T, T)."""
    cross: tuple[Tensor, ...]
    """For each decoder layer's cross-attention (T, S + 1); the last column is the residual."""


@dataclass(frozen=True, kw_only=True)
class RolledOut:
    """Shares of the tokens in the states after each layer, of 1, float64."""

    enc: tuple[Tensor, ...]
    """For each encoder layer (S, S): source tokens in the encoder's states."""
    prefix: tuple[Tensor, ...]
    """For each decoder layer (T, T): tokens read by the decoder in its states."""
    source: tuple[Tensor, ...]
    """For each decoder layer (T, S): source tokens in the decoder's states."""


def roll_out(mixing: LayerMixing) -> RolledOut:
    """Multiplies layers together, the first one first."""
    encoder = roll_out_stack(mixing.enc)
    if not mixing.dec:  # a classifier
        return RolledOut(enc=tuple(encoder), prefix=(), source=())
    if not mixing.cross:  # a language model
        return RolledOut(enc=(), prefix=tuple(roll_out_stack(mixing.dec)), source=())
    memory = encoder[-1]
    n_prefix, n_source = len(mixing.dec[0]), len(memory)
    prefix = torch.eye(n_prefix, dtype=torch.float64)
    source = torch.zeros(n_prefix, n_source, dtype=torch.float64)
    prefixes, sources = [], []
    for own, cross in zip(mixing.dec, mixing.cross, strict=True):
        kept = cross[:, -1:] * own
        prefix, source = kept @ prefix, cross[:, :-1] @ memory + kept @ source
        total = prefix.sum(dim=-1, keepdim=True) + source.sum(dim=-1, keepdim=True)
        prefix, source = prefix / total, source / total  # 1 but for rounding
        prefixes.append(prefix)
        sources.append(source)
    return RolledOut(enc=tuple(encoder), prefix=tuple(prefixes), source=tuple(sources))


def roll_out_stack(layers: Sequence[Tensor]) -> list[Tensor]:
    """Multiplies the matrices (S, S) of one stack together: the product up to each layer."""
    products: list[Tensor] = []
    for layer in layers:
        rolled = layer @ products[-1] if products else layer
        rolled = rolled / rolled.sum(dim=-1, keepdim=True)  # 1 but for rounding
        products.append(rolled)
    return products


def attention_mixing(maps: AttentionMaps) -> LayerMixing:
    """Mixes as attention rollout does: half the mean of the heads, half the position itself."""
    return LayerMixing(
        enc=tuple(map(_with_itself, maps.enc)),
        dec=tuple(map(_with_itself, maps.dec)),
        cross=tuple(map(_beside_itself, maps.cross)),
    )


def _with_itself(weights: Tensor) -> Tensor:
    """½ of the mean over the heads of (H, Q, Q), ½ the identity."""
    itself = torch.eye(weights.shape[-1], dtype=torch.float64)
    return (weights.double().mean(dim=0) + itself) / 2 if len(weights) else itself


def _beside_itself(weights: Tensor) -> Tensor:
    """(H, Q, K) to (Q, K + 1): ½ of the mean over the heads, and ½ in the last column."""
    n_heads, n_queries, n_keys = weights.shape
    mixed = torch.zeros(n_queries, n_keys + 1, dtype=torch.float64)
    mixed[:, :-1] = weights.double().mean(dim=0) / 2 if n_heads else 0.0
    mixed[:, -1] = 0.5 if n_heads else 1.0
    return mixed


def weighted_maps(model: Inspected, maps: AttentionMaps, weighting: WeightingName) -> AttentionMaps:
    """Gives the maps of a sentence pair in the terms of a weighting."""
    if weighting == "alpha":
        return maps
    if weighting in {"rollout", "alti"} and not can_roll_out(model):
        raise UsageError(
            f"{weighting}: a recurrent unit is in place of the decoder's self-attention, and what "
            "it passes on from token to token is not measured; choose --weights alpha or norm of "
            "inspect-heads"
        )
    if weighting == "rollout":
        return rollout_maps(maps)
    sublayers = observe_sublayers(model, maps.source_ids, maps.target_input_ids)
    return _norm_maps(maps, sublayers) if weighting == "norm" else alti_maps(maps, sublayers)


def can_roll_out(model: Inspected) -> bool:
    """Returns whether all that mixes positions is attention."""
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
    found = {(s.kind, s.layer): contributions(s) for s in sublayers}
    shares: dict[Kind, tuple[Tensor, ...]] = {
        kind: tuple(one.shares for place, one in found.items() if place[0] == kind)
        for kind in KINDS
    }
    mixing = LayerMixing(enc=shares["enc"], dec=shares["dec"], cross=shares["cross"])
    return _rolled_out(maps, mixing, {place: one.residual for place, one in found.items()})


def _norm_maps(maps: AttentionMaps, sublayers: list[AttentionSublayer]) -> AttentionMaps:
    layers: dict[Kind, list[Tensor]] = {kind: [] for kind in KINDS}
    residuals = {}
    for sublayer in sublayers:
        norms = value_norms(sublayer)
        layers[sublayer.kind].append(norms)
        residual = norm_residual(sublayer)
        for head in range(len(norms)):
            residuals[HeadId(sublayer.kind, sublayer.layer, head)] = residual
    return _with_layers(maps, layers, residuals)


def _rolled_out(
    maps: AttentionMaps, mixing: LayerMixing, residuals: dict[tuple[Kind, int], float]
) -> AttentionMaps:
    rolled = roll_out(mixing)
    layers = {"enc": rolled.enc, "dec": rolled.prefix, "cross": rolled.source}
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
    """Returns whether an attention is part of what a layer's map was multiplied from."""
    if kind == "enc":
        return place[0] == "enc" and place[1] <= layer
    return place[0] == "enc" or place[1] <= layer


def _with_layers(
    maps: AttentionMaps, layers: dict[Kind, list[Tensor]], residuals: dict[HeadId, float]
) -> AttentionMaps:
    def in_float32(kind: Kind) -> tuple[Tensor, ...]:
        return tuple(layer.to(torch.float32) for layer in layers[kind])

    return replace(
        maps,
        enc=in_float32("enc"),
        dec=in_float32("dec"),
        cross=in_float32("cross"),
        residuals=residuals,
    )
