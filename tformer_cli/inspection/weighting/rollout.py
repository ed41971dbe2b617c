"""Layers multiplied together: what the tokens of both sentences contribute to every hidden state.

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
contributions instead of weights (see `alti`). Nothing here depends on how many heads a layer has,
or layers a stack; a layer without heads passes its input on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tformer_cli.inspection.capture.forced import AttentionMaps


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
