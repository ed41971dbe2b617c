"""A decision measured again with a part of the model changed: its causes.

A part is a head, all heads of a layer, a feed-forward layer, a single attention weight, or the
residual stream at a position. An effect is d with the part changed minus the original d, in logits;
d = logit(A) − logit(B). The output of a part is replaced by

- zeros, its mean, or its output at random positions of other texts (ablation),
- its output in another text at the matching position (activation patching: Vig et al. 2020,
  "Causal Mediation Analysis"; Meng et al. 2022; Zhang & Nanda 2024, "Towards Best Practices").

Heads are changed by gate and shift of their layer (`MultiHeadAttention`): ξ·z + δ. So one attention
weight a_ij of a head is knocked out by δ_i = −a_ij·v_j after the softmax, the others as they are;
all weights of a head knocked out are the head switched off. States between layers are handed to the
layer that they enter. No hook changes anything, and no layer below a change is computed twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from tformer_cli.errors import DataError
from tformer_cli.heads.gates import Place, set_gates
from tformer_cli.heads.names import Inspected, Kind
from tformer_cli.inspect.capture.forced import tapped_attentions
from tformer_cli.model.attention import AttentionTap
from tformer_cli.plugins.instruments.ablation import LARGEST_POSITIONS, SharedStates
from tformer_cli.plugins.instruments.decisions.decision import Decision
from tformer_cli.plugins.instruments.observed import ModuleRecord, record_module, stacks_of
from tformer_cli.search.hypothesis import never_interrupt
from tformer_cli.text.batching import Batch

EVERYWHERE = slice(None)
Pairs = Sequence[tuple[int, int]]  # Matching positions of two texts
Change = tuple[int | slice, Sequence[int] | slice, Tensor | None]
"""A head, or all of them, the positions where it is changed, and what (H, Q, E) heads compute
instead; None: nothing."""


@dataclass(frozen=True)
class Computed:
    """Values of all parts of a model for one text."""

    states: SharedStates
    taps: Mapping[Place, AttentionTap]
    feed_forwards: Mapping[Place, ModuleRecord]
    cells: Mapping[Place, ModuleRecord]  # Of recurrent units

    def context(self, place: Place) -> Tensor:
        """(H, Q, E) outputs of the heads of a layer."""
        return self.taps[place].context[0]

    def feed_forward_output(self, place: Place) -> Tensor:
        """(T, D) output of a feed-forward layer."""
        output = self.feed_forwards[place].output
        assert output is not None  # noqa: S101 - each is called in every pass
        return output[0]


@torch.no_grad()
def compute(model: Inspected, batch: Batch) -> Computed:
    """Runs a batch of one text once, unchanged."""
    with (
        tapped_attentions(model, lambda tap: tap) as taps,
        ExitStack() as hooks,
    ):
        layers: dict[Place, Any] = {
            (kind, number): layer
            for kind, stack in stacks_of(model).items()
            for number, layer in enumerate(stack.layers)
        }
        fed = {place: record_module(hooks, layer.feed_forward) for place, layer in layers.items()}
        cells = {
            place: record_module(hooks, layer.recurrence)
            for place, layer in layers.items()
            if layer.recurrence is not None
        }
        states = SharedStates.of(model, batch)
    return Computed(states, taps, fed, cells)


class Probe:
    """A decision of a model, measured with parts of the model changed."""

    def __init__(
        self,
        model: Inspected,
        decision: Decision,
        largest_positions: int = LARGEST_POSITIONS,
        before_batch: Callable[[], None] = never_interrupt,
    ) -> None:
        """Runs the model once; `before_batch` may raise before each batch of changes."""
        self.model, self.decision, self.before_batch = model, decision, before_batch
        self.values = compute(model, decision.batch)
        self.states = self.values.states
        self.d = decision.of(model, self.states.last).item()
        if not isfinite(self.d):
            raise DataError(
                f"MODEL: its logits differ by {self.d}, which has no causes; train it again"
            )
        longest = max(rows.shape[1] for rows in (*self.states.below_encoder[:1], self.states.last))
        self.rows_per_pass = max(1, largest_positions // longest)

    def batches(self, n_rows: int) -> Iterator[range]:
        """Yields rows that are computed at a time."""
        for start in range(0, n_rows, self.rows_per_pass):
            self.before_batch()
            yield range(start, min(start + self.rows_per_pass, n_rows))

    @torch.no_grad()
    def run_edited(
        self, place: Place, n_rows: int, edit: Callable[[range], tuple[Tensor | None, Tensor]]
    ) -> Tensor:
        """Computes (R) effects of gates and shifts, which `edit` makes of some rows at a time."""
        changes = []
        for rows in self.batches(n_rows):
            gate, shift = edit(rows)
            below = self.states.entering(*place).repeat(len(rows), 1, 1)
            with set_gates(self.model, {} if gate is None else {place: gate}, {place: shift}):
                hidden = self.states.rest(self.model, *place, below)
            changes.append(self.decision.of(self.model, hidden) - self.d)
        return torch.cat(changes).cpu() if changes else torch.empty(0, dtype=torch.float64)

    def replace_heads(self, place: Place, changes: Sequence[Change]) -> Tensor:
        """Computes (R) effects of changes of a layer's heads, one at a time."""
        context = self.values.context(place)

        def edit(rows: range) -> tuple[Tensor, Tensor]:
            gate = context.new_ones(len(rows), *context.shape[:2], 1)
            shift = context.new_zeros(len(rows), *context.shape)
            for row, (head, positions, new) in enumerate(changes[rows.start : rows.stop]):
                # A slice is a view: setting it sets the gate
                heads = slice(head, head + 1) if isinstance(head, int) else head
                gate[row, heads][:, positions] = 0.0
                if new is not None:
                    shift[row, heads][:, positions] = new[heads][:, positions]
            return gate, shift

        return self.run_edited(place, len(changes), edit)

    def without_edges(
        self, place: Place, edges: Sequence[Sequence[tuple[int, int, int]]]
    ) -> Tensor:
        """Computes (R) effects of attention weights (head, i, j) that are knocked out together."""
        tap = self.values.taps[place]
        weights = tap.weights()[0]

        def edit(rows: range) -> tuple[None, Tensor]:
            shift = tap.context.new_zeros(len(rows), *tap.context.shape[1:])
            for number, removed in enumerate(edges[rows.start : rows.stop]):
                for head, i, j in removed:
                    shift[number, head, i] -= weights[head, i, j] * tap.value[0, head, j]
            return None, shift

        return self.run_edited(place, len(edges), edit)

    @torch.no_grad()
    def with_states(self, kind: Kind, layer: int, states: Tensor) -> Tensor:
        """Computes (R) effects of states (R, T, D) that enter a layer, or leave the last one."""
        differences = [
            self.decision.of(
                self.model,
                self.states.rest(self.model, kind, layer, states[rows.start : rows.stop]),
            )
            for rows in self.batches(len(states))
        ]
        return (torch.cat(differences) - self.d).cpu()

    @torch.no_grad()
    def with_fed(self, place: Place, new: Tensor) -> Tensor:
        """Computes (R) effects of outputs (R, T, D) of a feed-forward layer."""
        kind, number = place
        layer = stacks_of(self.model)[kind].layers[number]
        after = self.states.entering(kind, number + 1)
        if layer.is_pre_norm:
            states = after - self.values.feed_forward_output(place) + new
        else:
            states = layer.feed_forward_norm(self.values.feed_forwards[place].inputs[0] + new)
        return self.with_states(kind, number + 1, states)

    def patch(self, kind: Kind, layer: int, other: "Probe", pairs: Pairs) -> Tensor:
        """Computes (P) effects of the other text's state at one position each, by pairs."""
        own, theirs = (probe.states.entering(kind, layer) for probe in (self, other))
        effects = torch.zeros(len(pairs), dtype=torch.float64)
        # The same state changes nothing, such as that of a token before any attention
        rows = [row for row, (i, j) in enumerate(pairs) if not torch.equal(own[0, i], theirs[0, j])]
        if rows:
            states = own.repeat(len(rows), 1, 1)
            for number, row in enumerate(rows):
                i, j = pairs[row]
                states[number, i] = theirs[0, j]
            effects[rows] = self.with_states(kind, layer, states)
        return effects

    def transplant(self, place: Place, other: "Probe", pairs: Pairs) -> Tensor:
        """(H, Q, E) outputs of the heads, from the other text where positions match."""
        new = self.values.context(place).clone()
        for i, j in pairs:
            new[:, i] = other.values.context(place)[:, j]
        return new


class Pool:
    """Values of parts at the positions of some texts, which replace other values."""

    def __init__(self, texts: Sequence[Computed], seed: int) -> None:
        self._texts, self._seed = texts, seed
        self._joined: dict[tuple[str, Place], Tensor] = {}

    def _rows(self, part: str, place: Place) -> Tensor:
        """(N, H, E) or (N, D) values at all positions."""
        if (part, place) not in self._joined:
            values = [
                text.context(place).transpose(0, 1)
                if part == "heads"
                else text.feed_forward_output(place)
                for text in self._texts
            ]
            self._joined[part, place] = torch.cat(values)
        return self._joined[part, place]

    def n_values(self, part: str, place: Place) -> int:
        return len(self._rows(part, place))

    def replacements(self, part: str, place: Place, like: Tensor, n_draws: int) -> list[Tensor]:
        """Makes replacements like (…, T, ·): 0 draws give the mean, else each has random rows."""
        rows = self._rows(part, place)
        if not n_draws:
            # (H, E) -> (H, 1, E), or (D) -> (1, D)
            return [rows.mean(dim=0).unsqueeze(-2).expand_as(like)]
        generator = torch.Generator().manual_seed(self._seed)
        n_positions = like.shape[-2]
        drawn = torch.randint(len(rows), (n_draws, n_positions), generator=generator)
        values = [rows[numbers.to(rows.device)] for numbers in drawn]
        return [value.transpose(0, 1) if part == "heads" else value for value in values]

    @property
    def n_positions(self) -> int:
        return sum(text.states.last.shape[1] for text in self._texts)
