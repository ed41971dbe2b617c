"""The maps of a sentence in other terms than attention weights: norms, rollout, ALTI."""

from dataclasses import replace

import torch
from torch import Tensor

from tformer_cli.errors import UsageError
from tformer_cli.inspection.capture.forced import AttentionMaps
from tformer_cli.inspection.capture.heads import KINDS, HeadId, Inspected, Kind, LayerId
from tformer_cli.inspection.weighting.alti import contributions
from tformer_cli.inspection.weighting.rollout import LayerMixing, attention_mixing, roll_out
from tformer_cli.inspection.weighting.sublayers import (
    AttentionSublayer,
    norm_residual,
    observe_sublayers,
    value_norms,
)
from tformer_cli.inspection.weighting.weighting import WeightingName
from tformer_cli.model.encoder_only import EncoderOnly


def weighted_maps(model: Inspected, maps: AttentionMaps, weighting: WeightingName) -> AttentionMaps:
    """Gives the maps of a sentence pair in the terms of a weighting.

    Args:
        model: the model, in evaluation mode.
        maps: the attention weights of the pair.
        weighting: the terms.

    Raises:
        UsageError: for rollout and ALTI, if the decoder is recurrent.

    Returns:
        Maps with the same tokens, float32; their residuals are what `Weighting.residual` says. Of
        layers instead of heads, H is 1 and a map's name is a `LayerId`.
    """
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
    """Rolls attention weights out."""
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
