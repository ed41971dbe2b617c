"""Gates that switch heads off: factors of their outputs."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from tformer_cli.heads.names import HeadId, Inspected, Kind, attentions, head_layout

Place = tuple[Kind, int]  # A kind of attention and a layer


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


@contextmanager
def set_gates(
    model: Inspected, gates: Mapping[Place, Tensor], shifts: Mapping[Place, Tensor] | None = None
) -> Iterator[None]:
    """Sets gates and the shifts added after them, each broadcastable to (B, H, Q, E).

    The earlier ones are restored in any case.
    """
    shifts = shifts or {}
    places = {(kind, layer): a for kind, layer, a in attentions(model)}
    edited = [places[place] for place in {**gates, **shifts}]
    before = [(attention.gate, attention.shift) for attention in edited]
    try:
        for place, gate in gates.items():
            places[place].gate = gate
        for place, shift in shifts.items():
            places[place].shift = shift
        yield
    finally:
        for attention, (gate_before, shift_before) in zip(edited, before, strict=True):
            attention.gate, attention.shift = gate_before, shift_before


@contextmanager
def heads_off(model: Inspected, heads: Iterable[HeadId]) -> Iterator[None]:
    """Switches heads off: ξ = 0 for them, 1 for the others of their layers."""
    with set_gates(model, closed_gates(model, heads)):
        yield
