"""Heads switched off by the factors ξ of `MultiHeadAttention.gate`, without touching a weight."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from tformer_cli.inspection.capture.heads import HeadId, Inspected, Kind, attentions, head_layout

Place = tuple[Kind, int]
"""An attention of a model: its kind and its layer."""


@contextmanager
def gated(model: Inspected, gates: Mapping[Place, Tensor]) -> Iterator[None]:
    """Sets the gates of some attentions; whatever happens, those from before come back.

    Args:
        model: the model.
        gates: for each place factors broadcastable to (B, H, Q, E).
    """
    places = [
        (a, gates[kind, layer]) for kind, layer, a in attentions(model) if (kind, layer) in gates
    ]
    before: list[Tensor | None] = [attention.gate for attention, _ in places]
    try:
        for attention, gate in places:
            attention.gate = gate
        yield
    finally:
        for (attention, _), earlier in zip(places, before, strict=True):
            attention.gate = earlier


@contextmanager
def heads_off(model: Inspected, heads: Iterable[HeadId]) -> Iterator[None]:
    """Switches heads off: ξ = 0 for them, 1 for the others of their layers."""
    with gated(model, closed_gates(model, heads)):
        yield


def keep_only(model: Inspected, heads: Iterable[HeadId]) -> None:
    """Switches every other head off, for as long as the model lives."""
    others = set(head_layout(model)) - set(heads)
    gates = closed_gates(model, others)
    for kind, layer, attention in attentions(model):
        attention.gate = gates.get((kind, layer))


def closed_gates(model: Inspected, heads: Iterable[HeadId]) -> dict[Place, Tensor]:
    """Makes the gates (H, 1, 1) of the layers that have a head to switch off."""
    device = next(model.parameters()).device
    n_heads = {(kind, layer): attention.n_heads for kind, layer, attention in attentions(model)}
    gates: dict[Place, Tensor] = {}
    for head in heads:
        place = (head.kind, head.layer)
        if place not in gates:
            gates[place] = torch.ones(n_heads[place], 1, 1, device=device)
        gates[place][head.head] = 0.0
    return gates


def gates_of_each(n_heads: int, heads: Iterable[int], n_sentences: int) -> Tensor:
    """Makes gates that switch one head off in every row.

    Args:
        n_heads: H, heads of the layer.
        heads: R heads, each switched off for B rows in a row.
        n_sentences: B.

    Returns:
        (R·B, H, 1, 1) factors: rows of the first head first.
    """
    gates = 1.0 - torch.eye(n_heads)[list(heads)]
    # (R, H) -> (R·B, H) -> (R·B, H, 1, 1)
    return gates.repeat_interleave(n_sentences, dim=0)[:, :, None, None]
