"""Heads taken out of a model's weights: a smaller, ordinary model that computes the same.

A head that is switched off (ξ_h = 0) adds nothing to its layer's sum; so its rows of W_Q, W_K and
W_V and its columns of W_O can go. What remains of a layer without heads is the bias of W_O.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from tformer_cli.artifacts.tensors import shapes_alone
from tformer_cli.heads.names import HeadId, Kind, attentions
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer

_NAMES: dict[Kind, str] = {
    "enc": "encoder.layers.{}.self_attention",
    "dec": "decoder.layers.{}.self_attention",
    "cross": "decoder.layers.{}.cross_attention",
}


def prune_heads(model: Transformer, heads: Iterable[HeadId]) -> Transformer:
    if not model.config.projections:
        raise ValueError("heads without projections cannot be taken out: they have no weights")
    kept = _kept_heads(model, set(heads))
    weights = dict(model.state_dict())
    for (kind, layer), numbers in kept.items():
        name = _NAMES[kind].format(layer)
        weights |= _without(weights, name, numbers, model.config)
    with shapes_alone():
        pruned = Transformer(_pruned_config(model, kept), model.vocab_size)
    pruned.load_state_dict(weights, assign=True)
    return pruned.eval().requires_grad_(requires_grad=False)


def _kept_heads(model: Transformer, removed: set[HeadId]) -> dict[tuple[Kind, int], list[int]]:
    return {
        (kind, layer): [
            head for head in range(attention.n_heads) if HeadId(kind, layer, head) not in removed
        ]
        for kind, layer, attention in attentions(model)
    }


def _pruned_config(model: Transformer, kept: dict[tuple[Kind, int], list[int]]) -> ModelConfig:
    def of(kind: Kind) -> tuple[int, ...]:
        return tuple(len(heads) for (its_kind, _), heads in kept.items() if its_kind == kind)

    return replace(
        model.config,
        n_key_heads=0,
        encoder_heads=of("enc"),
        decoder_heads=of("dec"),
        cross_heads=of("cross"),
        bias_heads=_bias_heads(model, kept),
    )


def _bias_heads(model: Transformer, kept: dict[tuple[Kind, int], list[int]]) -> tuple[int, ...]:
    """Which biases of positions the heads of self-attention have that are left, if there are any.

    Their table is all layers' and stays whole.
    """
    return tuple(
        (attention.bias_heads or range(model.config.n_heads))[head]
        for kind, layer, attention in attentions(model)
        if attention.positions.biases
        for head in kept[kind, layer]
    )


def _without(
    weights: dict[str, Tensor], name: str, heads: list[int], config: ModelConfig
) -> dict[str, Tensor]:
    """The tensors of a layer with only the rows and columns of some heads.

    Heads that shared keys and values get their own.
    """
    width, joined = config.head_width, weights[f"{name}.out_projection.weight"].shape[1]
    n_sharing = config.n_heads // (config.n_key_heads or config.n_heads)

    def places(first: int, n_sharing: int = 1) -> Tensor:
        starts = [first + head // n_sharing * width for head in heads]
        return torch.tensor([start + e for start in starts for e in range(width)]).long()

    # which of the H·E columns of W_O stay, and which rows of W_Q, W_K and W_V below each other
    columns, keys = places(0), joined // n_sharing
    rows = torch.cat((columns, places(joined, n_sharing), places(joined + keys, n_sharing)))
    output = f"{name}.out_projection.weight"
    found = {output: weights[output][:, columns]}
    for part in (f"{name}.in_projection.weight", f"{name}.in_projection.bias"):
        if part in weights:
            found[part] = weights[part][rows]
    if f"{name}.relative.projection" in weights:
        found[f"{name}.relative.projection"] = weights[f"{name}.relative.projection"][columns]
    own = (f"{name}.similarity.", f"{name}.relative.content", f"{name}.relative.position")
    return found | {part: weights[part][heads] for part in weights if part.startswith(own)}
