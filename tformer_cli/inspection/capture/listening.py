"""Attention weights of a running model, recomputed beside the untouched path."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from tformer_cli.inspection.capture.heads import Kind, attentions
from tformer_cli.model.attention import AttentionTap, attention_weights
from tformer_cli.model.transformer import Transformer

Place = tuple[Kind, int]
"""The kind and the layer of an attention."""


class Heard(NamedTuple):
    """Values computed beside one call of one attention layer."""

    weights: Tensor
    """(B, H, Q, K) float32."""
    errors: Tensor
    """(B, H, Q) max |A·V − context| of each row."""


def recomputed(tap: AttentionTap) -> Heard:
    """Computes the weights of a tapped call by the plain formula, and how far they are off."""
    weights = attention_weights(tap.query.float(), tap.key.float(), tap.mask)
    difference = torch.matmul(weights, tap.value.float()) - tap.context.float()
    return Heard(weights.cpu(), difference.abs().amax(dim=-1).cpu())


@contextmanager
def listening(
    model: Transformer,
    kinds: Collection[Kind],
    recompute: Callable[[AttentionTap], Heard] = recomputed,
) -> Iterator[dict[Place, Heard]]:
    """Keeps what every attention of some kinds does last, until the end of the block."""
    heard: dict[Place, Heard] = {}

    def listener_of(place: Place) -> Callable[[AttentionTap], None]:
        def listen(tap: AttentionTap) -> None:
            heard[place] = recompute(tap)

        return listen

    handles = []
    try:
        for kind, layer, attention in attentions(model):
            if kind in kinds:
                handles.append(attention.tap(listener_of((kind, layer))))
        yield heard
    finally:
        for handle in handles:
            handle.remove()
