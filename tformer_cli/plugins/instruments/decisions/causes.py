"""The causes of a decision, part by part: how they are measured and described."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tformer_cli.heads.gates import Place
from tformer_cli.heads.names import HeadId, Kind, by_layer
from tformer_cli.model.encoder_only import PositionPredictor
from tformer_cli.plugins.instruments.decisions.attribution import Slopes, slopes_of
from tformer_cli.plugins.instruments.decisions.decision import match_positions
from tformer_cli.plugins.instruments.decisions.probing import (
    EVERYWHERE,
    Pairs,
    Pool,
    Probe,
)
from tformer_cli.plugins.instruments.observed import stacks_of
from tformer_cli.plugins.instruments.views.decision import EdgeEffect, EffectMap, Part

N_DRAWS = 8  # Random replacements of a part, whose effects are averaged
N_ATTENDED = 3  # Tokens named that a head attends to
LEAST_ATTENDED = 0.05
Labels = Mapping[Kind, Sequence[str]]  # For the positions of each stack


def stack_of(kind: Kind) -> Kind:
    """The stack that a kind of attention is in, whose positions its queries are at."""
    return "enc" if kind == "enc" else "dec"


def keys_of(kind: Kind) -> Kind:
    """The stack whose positions the keys of a kind of attention are at."""
    return "dec" if kind == "dec" else "enc"


def pairs_of(first: Probe, second: Probe) -> dict[Kind, Pairs]:
    """Matches the positions of two texts by their tokens, in each stack.

    The last positions of a decoder match, whatever their tokens: both decide there.
    """
    pairs_by_kind: dict[Kind, Pairs] = {}
    for kind in stacks_of(first.model):
        both = first.decision, second.decision
        ids = [decision.source_ids if kind == "enc" else decision.prefix_ids for decision in both]
        lengths = [probe.states.entering(kind, 0).shape[1] for probe in (first, second)]
        if kind == "dec":
            last = lengths[0] - 1, lengths[1] - 1
            pairs_by_kind[kind] = [*match_positions(ids[0][:-1], ids[1][:-1]), last]
        elif lengths == [len(text_ids) for text_ids in ids]:
            pairs_by_kind[kind] = match_positions(*ids)
        else:  # Patches of images, whose number is the same in all
            pairs_by_kind[kind] = [(place, place) for place in range(lengths[0])]
    return pairs_by_kind


@dataclass(frozen=True, kw_only=True)
class Causes:
    """Measures the parts of a model by some methods."""

    probe: Probe
    other: Probe | None
    labels: tuple[Labels, ...]  # Of each text
    methods: frozenset[str]
    pool: Pool | None  # For mean and resample
    terms: Mapping[str, float] | None  # The direct terms
    slopes: Slopes = field(init=False)
    pairs: dict[Kind, Pairs] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slopes", slopes_of(self.probe))
        pairs = {} if self.other is None else pairs_of(self.probe, self.other)
        object.__setattr__(self, "pairs", pairs)

    @property
    def patches(self) -> bool:
        return self.other is not None and "patch" in self.methods

    def list_unmatched(self) -> Iterator[str]:
        """Names the tokens that have no counterpart in the other text, so are not patched."""
        for kind, pairs in self.pairs.items():
            for side, name in enumerate(("SENTENCE", "OTHER")):
                partnered = {pair[side] for pair in pairs}
                labels = self.labels[side][kind]
                alone = [label for place, label in enumerate(labels) if place not in partnered]
                if alone and self.patches:
                    yield f"never patched, for lack of a counterpart, in {name}: {' '.join(alone)}"

    def of_heads(self, place: Place, numbers: Sequence[int]) -> list[Part]:
        """Measures each head of one layer by itself."""
        effects = self._of_attention(place, numbers)
        new = self._transplant(place)
        effects["estimate"] = self.slopes.of_change(self.probe, place, new).sum(dim=1)[[*numbers]]
        by_position = self.slopes.of_change(self.probe, place, None).abs()
        weights = self.probe.values.taps[place].weights()[0]
        parts = []
        for row, number in enumerate(numbers):
            head = HeadId(*place, number)
            at = self._looked_at(head, by_position[number])
            keys = self.labels[0][keys_of(head.kind)]
            most = weights[number, at].topk(min(N_ATTENDED, len(keys)))
            by_method = {name: values[row].item() for name, values in effects.items()}
            if self.terms is not None and str(head) in self.terms:
                by_method["direct"] = self.terms[str(head)]
            parts.append(
                Part(
                    id=str(head),
                    kind=head.kind,
                    layer=head.layer,
                    head=number,
                    effects=by_method,
                    at=self.labels[0][stack_of(head.kind)][at],
                    row=at,
                    attends=tuple(
                        (keys[key], weight)
                        for key, weight in zip(
                            most.indices.tolist(), most.values.tolist(), strict=True
                        )
                        if weight >= LEAST_ATTENDED
                    ),
                )
            )
        return parts

    def _looked_at(self, head: HeadId, by_position: Tensor) -> int:
        """Chooses the query: where the decision falls, or where the head matters most to it."""
        is_there = head.kind != "enc" or isinstance(self.probe.model, PositionPredictor)
        return self.probe.decision.position if is_there else int(by_position.argmax())

    def _of_attention(self, place: Place, heads: Sequence[int | slice]) -> dict[str, Tensor]:
        """Computes (N) effects of each method on single heads, or on all of them."""
        context = self.probe.values.context(place)
        patch = self._transplant(place)
        new = self._replacements("heads", place, context, patch)
        changes = [
            (head, EVERYWHERE, row) for values in new.values() for row in values for head in heads
        ]
        changed = self.probe.replace_heads(place, changes).view(-1, len(heads))
        effects = _means(new, changed)
        if self.other is not None and patch is not None:
            back = self.other.transplant(place, self.probe, self._pairs_back(place[0]))
            effects["back"] = self.other.replace_heads(
                place, [(head, EVERYWHERE, back) for head in heads]
            )
        return effects

    def _replacements(
        self, part: str, place: Place, own: Tensor, patch: Tensor | None
    ) -> dict[str, list[Tensor | None]]:
        """Makes what each method puts in the place of a part's own values; None: nothing."""
        new: dict[str, list[Tensor | None]] = {}
        if "zero" in self.methods:
            new["zero"] = [None]
        # The only value that there is would replace itself
        if self.pool is not None and self.pool.n_values(part, place) > 1:
            for name, n_draws in (("mean", 0), ("resample", N_DRAWS)):
                if name in self.methods:
                    new[name] = [*self.pool.replacements(part, place, own, n_draws)]
        if patch is not None:
            new["patch"] = [patch]
        return new

    def _transplant(self, place: Place) -> Tensor | None:
        if self.other is None or not self.patches:
            return None
        return self.probe.transplant(place, self.other, self.pairs[stack_of(place[0])])

    def _pairs_back(self, kind: Kind) -> Pairs:
        return [(j, i) for i, j in self.pairs[stack_of(kind)]]

    def of_layers(self) -> Iterator[Part]:
        """Measures the heads of each layer together, and each feed-forward layer."""
        terms = self.terms or {}
        for kind, stack in stacks_of(self.probe.model).items():
            for number in range(len(stack.layers)):
                for place, tap in self.probe.values.taps.items():
                    n_heads = tap.context.shape[1]
                    if (stack_of(place[0]), place[1]) == (kind, number) and n_heads:
                        heads = [str(HeadId(*place, head)) for head in range(n_heads)]
                        own = [terms[name] for name in heads if name in terms]
                        effects = self._of_attention(place, [EVERYWHERE])
                        name = f"{place[0]}.{number}"
                        yield _layer(name, place, effects, sum(own) if own else None)
                name, place = f"{kind}.{number}.ff", (kind, number)
                yield _layer(name, place, self._of_fed(place), terms.get(name))

    def _of_fed(self, place: Place) -> dict[str, Tensor]:
        probe, own = self.probe, self.probe.values.feed_forward_output(place)
        patch = back = None
        if self.other is not None and self.patches:
            theirs = self.other.values.feed_forward_output(place)
            patch, back = own.clone(), theirs.clone()
            for i, j in self.pairs[place[0]]:
                patch[i], back[j] = theirs[j], own[i]
        new = self._replacements("fed", place, own, patch)
        effects: dict[str, Tensor] = {}
        if new:
            nothing = torch.zeros_like(own)
            rows = [nothing if row is None else row for values in new.values() for row in values]
            effects = _means(new, probe.with_fed(place, torch.stack(rows))[:, None])
        if self.other is not None and back is not None:
            effects["back"] = self.other.with_fed(place, back[None])
        return effects

    def maps(self, strongest: Sequence[HeadId]) -> Iterator[EffectMap]:
        """Measures single positions: of the stream between layers, and of the strongest heads."""
        if self.other is not None and self.patches:
            both = (
                ("patch", self.probe, self.other, self.pairs),
                ("back", self.other, self.probe, {k: self._pairs_back(k) for k in self.pairs}),
            )
            for side, (direction, into, source, pairs) in enumerate(both):
                for kind in stacks_of(into.model):
                    labels = self.labels[side][kind]
                    yield _stream_map(direction, kind, into, source, pairs[kind], labels)
        if self.patches or "zero" in self.methods:
            yield from self._head_maps(strongest)

    def _head_maps(self, strongest: Sequence[HeadId]) -> Iterator[EffectMap]:
        direction = "patch" if self.patches else "zero"
        for stack in stacks_of(self.probe.model):
            names, values = [], []
            labels = self.labels[0][stack]
            places = range(len(labels))
            if self.patches:
                places = sorted(pair[0] for pair in self.pairs[stack])  # type: ignore[assignment]
            for place, numbers in by_layer(strongest).items():
                if stack_of(place[0]) != stack:
                    continue
                new = self._transplant(place)
                changes = [(number, [position], new) for number in numbers for position in places]
                changed = self.probe.replace_heads(place, changes)
                names += [str(HeadId(*place, number)) for number in numbers]
                values += changed.view(len(numbers), -1).tolist()
            if names:
                yield EffectMap(
                    name=f"{direction}: heads of {stack} at one position",
                    direction=direction,
                    kind=stack,
                    rows=tuple(names),
                    columns=tuple(labels),
                    values=tuple(_spread(row, places, len(labels)) for row in values),
                )

    def edges(self, selected: Sequence[HeadId], n_top: int) -> Iterator[EdgeEffect]:
        """Knocks the attention weights out that matter most by their estimates, one at a time."""
        estimated: list[tuple[float, Place, tuple[int, int, int]]] = []
        for place, numbers in by_layer(selected).items():
            estimates = self.slopes.of_edges(self.probe, place)[numbers]
            most = estimates.flatten().abs().topk(min(n_top, estimates.numel())).indices
            for flat in most.tolist():
                number, cell = divmod(flat, estimates[0].numel())
                i, j = divmod(cell, estimates.shape[2])
                value = estimates[number, i, j].item()
                estimated.append((value, place, (numbers[number], i, j)))
        chosen = sorted(estimated, key=lambda edge: -abs(edge[0]))[:n_top]
        effects: dict[tuple[Place, tuple[int, int, int]], float] = {}
        for place in dict.fromkeys(edge[1] for edge in chosen):  # Those of a layer in one batch
            cells = [cell for _, own, cell in chosen if own == place]
            changed = self.probe.without_edges(place, [[cell] for cell in cells]).tolist()
            effects |= zip(((place, cell) for cell in cells), changed, strict=True)
        for value, place, (head, i, j) in chosen:
            kind = place[0]
            yield EdgeEffect(
                head=str(HeadId(*place, head)),
                query=self.labels[0][stack_of(kind)][i],
                key=self.labels[0][keys_of(kind)][j],
                positions=(i, j),
                weight=self.probe.values.taps[place].weights()[0, head, i, j].item(),
                estimate=value,
                effect=effects[place, (head, i, j)],
            )


def _layer(name: str, place: Place, effects: Mapping[str, Tensor], term: float | None) -> Part:
    by_method = {key: value.item() for key, value in effects.items()}
    by_method |= {} if term is None else {"direct": term}
    return Part(id=name, kind=place[0], layer=place[1], head=None, effects=by_method)


def _means(new: Mapping[str, Sequence[object]], changed: Tensor) -> dict[str, Tensor]:
    """Takes the mean over the replacements of each method, whose effects (R, N) stand in a row."""
    parts = torch.split(changed, [len(values) for values in new.values()])
    return {name: part.mean(dim=0) for name, part in zip(new, parts, strict=True)}


def _stream_map(
    direction: str, kind: Kind, into: Probe, source: Probe, pairs: Pairs, labels: Sequence[str]
) -> EffectMap:
    n_layers = len(stacks_of(into.model)[kind].layers)
    values = [into.patch(kind, layer, source, pairs).tolist() for layer in range(n_layers + 1)]
    return EffectMap(
        name=f"{direction}: residual stream of {kind} at one position",
        direction=direction,
        kind=kind,
        rows=(*(f"into {kind}.{layer}" for layer in range(n_layers)), f"out of {kind}"),
        columns=tuple(labels),
        values=tuple(_spread(row, [i for i, _ in pairs], len(labels)) for row in values),
    )


def _spread(
    values: Sequence[float], places: Sequence[int], n_columns: int
) -> tuple[float | None, ...]:
    """Puts values at their positions, and None at the others."""
    known = dict(zip(places, values, strict=True))
    return tuple(known.get(place) for place in range(n_columns))
