"""Gates that switch heads off: factors of their outputs."""

from collections.abc import Iterable

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
