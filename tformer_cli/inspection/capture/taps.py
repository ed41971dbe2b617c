"""Attention weights of a running model, recomputed beside the untouched path."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar, overload

import torch
from torch import Tensor

from tformer_cli.inspection.capture.heads import KINDS, Inspected, Kind, attentions
from tformer_cli.model.attention import AttentionTap

T = TypeVar("T")
Place = tuple[Kind, int]
"""The kind and the layer of an attention."""


class TappedAttention(NamedTuple):
    """Values computed beside one call of one attention layer."""

    weights: Tensor
    """(B, H, Q, K) float32."""
    errors: Tensor
    """(B, H, Q) max |A·V − context| of each row."""


def recomputed(tap: AttentionTap) -> TappedAttention:
    """Computes the weights of a tapped call by the plain formula, and how far they are off."""
    weights = tap.weights(torch.float32)
    difference = torch.matmul(weights, tap.value.float()) - tap.context.float()
    return TappedAttention(weights.cpu(), difference.abs().amax(dim=-1).cpu())


@overload
def tapped_attentions(
    model: Inspected, kinds: Collection[Kind] = KINDS
) -> AbstractContextManager[dict[Place, TappedAttention]]: ...
@overload
def tapped_attentions(
    model: Inspected, kinds: Collection[Kind] = KINDS, *, recompute: Callable[[AttentionTap], T]
) -> AbstractContextManager[dict[Place, T]]: ...
@contextmanager
def tapped_attentions(
    model: Inspected,
    kinds: Collection[Kind] = KINDS,
    *,
    recompute: Callable[[AttentionTap], Any] = recomputed,
) -> Iterator[dict[Place, Any]]:
    """Keeps what every attention of some kinds does last, until the end of the block.

    Args:
        model: the model; whatever happens in the block, no hook stays attached to it.
        kinds: the attentions that are tapped.
        recompute: makes what is kept of a call.

    Yields:
        A dictionary that fills while the model runs.
    """
    tapped: dict[Place, Any] = {}

    def tap_of(place: Place) -> Callable[[AttentionTap], None]:
        def keep(tap: AttentionTap) -> None:
            tapped[place] = recompute(tap)

        return keep

    with ExitStack() as hooks:
        for kind, layer, attention in attentions(model):
            if kind in kinds:
                hooks.callback(attention.tap(tap_of((kind, layer))).remove)
        yield tapped
