"""A circuit: the fewest heads that keep a decision when all the others are patched.

In a pair of sentences that are decided differently, d(C) is d of the first one with the heads of C
unchanged and every other head patched with its values in the second one, all at once, wherever
positions match (`pairs_of`). With no head kept that is all that heads can undo of the decision; of
an encoder and decoder, whose source reaches the decoder by heads only, it is d of the second
sentence behind the same prefix. Feed-forward layers and embeddings are never patched.

    faithfulness(C) = (d(C) − d(∅)) / (d(all) − d(∅))        completeness(C) = faithfulness(all − C)

(Marks et al. 2024, "Sparse Feature Circuits"; the idea is that of Wang et al. 2023,
"Interpretability in the Wild"; see also Hanna et al. 2024, "Have Faith in Faithfulness"). Means
over pairs are taken before the quotient. A circuit is faithful near 1, and complete near 0: the
heads outside of it can do little without it. All heads are exactly 1, and none exactly 0; other
sets may lie outside of these.

Heads are ranked by the loss of d without each plus its share of d by itself. The fewest first heads
that reach the wanted faithfulness are the circuit. Heads then leave it one at a time, the least
needed first, while it stays as faithful. That is a short way to a small set, not a
proof that none is smaller. So it is measured on pairs that did not choose it, and compared with
random sets of as many heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tformer_cli.errors import DataError
from tformer_cli.heads.gates import set_gates
from tformer_cli.heads.names import HeadId, by_layer, head_layout
from tformer_cli.metrics.resampling import PERCENTILES, RESAMPLES, resample_sums
from tformer_cli.plugins.instruments.decisions.causes import keys_of, pairs_of, stack_of
from tformer_cli.plugins.instruments.decisions.probing import Probe
from tformer_cli.plugins.instruments.observed import stacks_of
from tformer_cli.plugins.instruments.views.circuit import Share, Verdict

if TYPE_CHECKING:
    from tformer_cli.heads.gates import Place

N_RANDOM = 50  # Random sets of heads that a circuit is compared with
ROUNDING = 1e-4  # All heads are 1 up to that: a row differs by the others of its batch
FEWER_ROWS = 4  # A row holds shifts of all layers here, and elsewhere of one


class PatchedPair:
    """A decision of one sentence with some heads patched from another one."""

    def __init__(self, first: Probe, second: Probe) -> None:
        self.first = first
        # Not the second probe: states of all layers of all pairs would fill the memory
        self.other, self.other_d = second.decision, second.d
        self._pairs = pairs_of(first, second)
        self.heads = list(head_layout(first.model))
        column = {head: number for number, head in enumerate(self.heads)}
        self._places: dict[Place, tuple[list[int], Tensor, Tensor]] = {}
        for place, numbers in by_layer(self.heads).items():
            partners = self._pairs[stack_of(place[0])]
            new = first.transplant(place, second, partners)
            matched = torch.zeros(new.shape[1], 1, dtype=torch.bool, device=new.device)
            matched[[i for i, _ in partners]] = True
            columns = [column[HeadId(*place, number)] for number in numbers]
            self._places[place] = columns, new, matched

    @torch.no_grad()
    def d(self, kept: Tensor) -> Tensor:
        """Computes (R) d of sets (R, N) of heads that are kept, all others patched."""
        model, states = self.first.model, self.first.states
        kind = next(iter(stacks_of(model)))
        differences = []
        for sets in torch.split(kept, max(1, self.first.rows_per_pass // FEWER_ROWS)):
            self.first.before_batch()
            gates, shifts = {}, {}
            for place, (columns, new, matched) in self._places.items():
                # (R, H) -> (R, H, 1, 1) -> (R, H, Q, 1)
                patched = ~sets[:, columns, None, None].to(new.device) & matched
                gates[place] = (~patched).to(new)
                shifts[place] = patched * new
            below = states.entering(kind, 0).repeat(len(sets), 1, 1)
            with set_gates(model, gates, shifts):
                hidden = states.rest(model, kind, 0, below)
            differences.append(self.first.decision.of(model, hidden).cpu())
        return torch.cat(differences)

    def reads(self) -> list[float | None]:
        """Returns the weight of each head on the tokens that differ; None where none can.

        Of cross-attention that is at the position that decides, of others at the position that
        looks there most, apart from those that differ.
        """
        shares: list[float | None] = []
        for head in self.heads:
            keys = self._differing(head)
            weights = self.first.values.taps[head.kind, head.layer].weights()[0, head.head]
            queries = [self.first.decision.position]
            if head.kind != "cross":
                queries = [row for row in range(len(weights)) if row not in keys]
            is_read = keys and queries
            shares.append(weights[queries][:, keys].sum(dim=1).max().item() if is_read else None)
        return shares

    def _differing(self, head: HeadId) -> list[int]:
        stack = keys_of(head.kind)
        both = self.first.decision, self.other
        own, theirs = (text.source_ids if stack == "enc" else text.prefix_ids for text in both)
        n_positions = self.first.states.entering(stack, 0).shape[1]
        if n_positions != len(own):  # Patches of images, which have no ids
            return []
        same = {i for i, j in self._pairs[stack] if own[i] == theirs[j]}
        return [place for place in range(n_positions) if place not in same]


def measure(pairs: Sequence[PatchedPair], kept: Tensor) -> Tensor:
    """Computes (P, R) d of pairs by the sets of heads (R, N) that are kept."""
    return torch.stack([pair.d(kept) for pair in pairs])


def faithfulness(d: Tensor) -> Tensor:
    """Computes (R) of d (P, R), whose first set has all heads, and the second none."""
    whole, none = d[:, :1], d[:, 1:2]
    turned = (whole - none).sum()
    if not turned > 0:  # Nor a number, of a model that computes none
        raise DataError(
            "PAIRS: patching all heads does not change these decisions, so no head keeps them; "
            "give other pairs"
        )
    return (d - none).sum(dim=0) / turned


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """The heads that were found, as columns of sets of all, and on what grounds."""

    kept: Tensor  # (N) bool
    without: list[float]  # Faithfulness of all heads but each
    alone: list[float]  # Faithfulness of only this head
    curve: list[float]  # Faithfulness of the first 1, 2, … heads by rank


def find_circuit(pairs: Sequence[PatchedPair], least: float) -> Circuit:
    n_heads = len(pairs[0].heads)
    single = torch.eye(n_heads, dtype=torch.bool)
    ends = torch.tensor([[True], [False]]).expand(2, n_heads)
    d = measure(pairs, torch.cat((ends, ~single, single)))
    without, alone = torch.split(faithfulness(d)[2:], n_heads)
    order = torch.argsort(alone - without, descending=True, stable=True)
    # (N, N): row n has the first n + 1 heads by rank
    first = single[order].cumsum(dim=0).bool()
    curve = faithfulness(torch.cat((d[:, :2], measure(pairs, first)), dim=1))[2:]
    least -= ROUNDING
    reached = (curve >= least).nonzero()
    kept = first[int(reached[0]) if len(reached) else -1]
    while kept.sum() > 1:
        fewer = kept & ~single[kept]
        scores = faithfulness(torch.cat((d[:, :2], measure(pairs, fewer)), dim=1))[2:]
        if scores.max() < least:
            break
        kept = fewer[int(scores.argmax())]
    return Circuit(kept=kept, without=without.tolist(), alone=alone.tolist(), curve=curve.tolist())


def judge_circuit(pairs: Sequence[PatchedPair], kept: Tensor, seed: int) -> Verdict:
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(kept), generator=generator) for _ in range(N_RANDOM)]
    random = torch.stack(orders) < int(kept.sum())
    heads, every = pairs[0].heads, torch.ones_like(kept)
    layers = {f"{kind}.{layer}": (kind, layer) for kind, layer in by_layer(heads)}
    without = [torch.tensor([head[:2] != layer for head in heads]) for layer in layers.values()]
    d = measure(pairs, torch.cat((torch.stack((every, ~every, kept, ~kept, *without)), random)))
    values, random_values = torch.split(faithfulness(d), [4 + len(layers), N_RANDOM])
    # The circuit itself may be among the random ones, with another rounding in another batch
    reached = random_values >= values[2] - 1e-5 * values[2].abs().clamp(min=1)
    parts = (d[:, :4] - d[:, 1:2]).numpy()
    drawn = resample_sums(parts, RESAMPLES, seed)
    other = sum(pair.other_d for pair in pairs) / len(pairs)
    return Verdict(
        d=(d[:, 0].mean().item(), d[:, 1].mean().item(), other),
        faithfulness=_share(values[2], drawn[:, 2], drawn[:, 0]),
        completeness=_share(values[3], drawn[:, 3], drawn[:, 0]),
        decides=(d[:, 2] > 0).double().mean().item(),
        random=random_values.mean().item(),
        random_reach=reached.double().mean().item(),
        without_layer={
            name: 1 - value.item() for name, value in zip(layers, values[4:], strict=True)
        },
    )


def _share(value: Tensor, drawn: NDArray[np.float64], turned: NDArray[np.float64]) -> Share:
    # A quotient jumps from one infinity to the other where its divisor crosses 0
    if turned.min() <= 0:
        return Share(value=value.item(), low=None, high=None)
    low, high = np.percentile(drawn / turned, PERCENTILES).tolist()
    return Share(value=value.item(), low=low, high=high)
