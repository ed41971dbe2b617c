"""A decision computed from parts of the model: terms that add up to it, and its gradients.

**Direct attribution.** The last state is a sum of what is embedded and what every sub-layer adds.
With each norm's deviation held at its actual value (`LinearNorm`) all that follows is linear, in a
post-norm model too, and so is d: every head, feed-forward layer, embedding and bias has a term, and
the terms add up to d. The activation of a head on an encoder is held likewise, as the factor
f(z)/z. Attention weights are held by that too: a term is what a part writes itself, not what others
make of it.

**Gradients.** One backward pass gives ∂d/∂z of what every head computes at every position. Times a
change of z that is a first-order estimate of the change's effect: of another text's values
(attribution patching: Syed et al. 2023), or of −a_ij·v_j, an attention weight knocked out.

**Integrated gradients** (Sundararajan et al. 2017): Σ_t (x_t − x⁰_t)·∫ ∂d/∂x_t over the line from a
baseline to the embedded tokens, here the mean of the vocabulary at every position. The sums over
tokens add up to the difference of d between the two; steps are halved until they do within ½ %.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from tformer_cli.heads.gates import Place, set_gates
from tformer_cli.heads.names import HeadId, Inspected, Kind
from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.encoder_only import POOLERS, Classifier, EncoderOnly, MaskedLanguageModel
from tformer_cli.model.feed_forward import activation_function
from tformer_cli.model.operations import Linear
from tformer_cli.plugins.instruments.decisions.probing import Probe
from tformer_cli.plugins.instruments.observed import exact, stacks_of
from tformer_cli.plugins.instruments.weighting import LinearNorm

COMPLETE = 0.005  # Largest error of integrated gradients, as a share of their sum
FIRST_STEPS, MOST_STEPS = 32, 1024
MOST_HALVED = 24  # A norm turns a vector from nothing to its length within 1e-6 of the line


@dataclass
class _Linear:
    """The last stack as a linear function of its parts, each a leaf tensor."""

    leaves: dict[str, Tensor] = field(default_factory=dict)

    def leaf(self, name: str, value: Tensor) -> Tensor:
        """Takes a part; biases of one name are one."""
        name = name if name not in self.leaves else f"{name}+{len(self.leaves)}"
        self.leaves[name] = value.clone().requires_grad_()
        return self.leaves[name]

    def normalize(self, norm: nn.Module, rows: Tensor) -> Tensor:
        if isinstance(norm, nn.Identity):
            return rows
        linear = LinearNorm.of(norm, rows.detach())  # type: ignore[arg-type]
        return linear.apply(rows) + self.leaf("bias", linear.shift)

    def activate(
        self, layer: Linear, rows: Tensor, activation: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The activation of a product, by its factor f(z)/z at the actual z."""
        products = rows @ exact(layer.weight).t()
        if layer.bias is not None:
            products = products + self.leaf("bias", exact(layer.bias))
        actual = products.detach()
        # At z = 0 all of these functions are 0, whatever the factor
        return products * torch.where(actual == 0, 0.0, activation(actual) / actual)


def direct_terms(probe: Probe) -> dict[str, float]:
    """Computes the terms of d by the names of parts, such as embedding, dec.0.1, dec.0.ff, bias."""
    model, linear = probe.model, _Linear()
    kind, stack = list(stacks_of(model).items())[-1]
    with torch.enable_grad():
        rows = linear.leaf("embedding", _exact_row(probe.states.entering(kind, 0)))
        for number, layer in enumerate(stack.layers):
            for norm, parts in _sublayers(probe, kind, number):
                rows = rows + sum(linear.leaf(name, value) for name, value in parts.items())
                rows = rows if layer.is_pre_norm else linear.normalize(norm, rows)
        rows = linear.normalize(stack.final_norm, rows)
        chosen = _on_top(model, linear, rows, probe)
        first, second = probe.decision.ids
        matrix, bias = model.output_matrix, model.output_bias
        d = chosen @ exact(matrix[first] - matrix[second])
        if bias is not None:
            d = d + linear.leaf("bias", exact(bias[first] - bias[second]))
    leaves = linear.leaves
    slopes = torch.autograd.grad(d, list(leaves.values()), allow_unused=True)
    terms: dict[str, float] = {}
    for (name, value), slope in zip(leaves.items(), slopes, strict=True):
        term = 0.0 if slope is None else (slope * value).sum().item()
        name = name.partition("+")[0]
        terms[name] = terms.get(name, 0.0) + term
    return terms


def _on_top(model: Inspected, linear: _Linear, rows: Tensor, probe: Probe) -> Tensor:
    """Returns the vector that rows of the output are compared with, from the last states (T, D)."""
    if isinstance(model, MaskedLanguageModel):
        activation = activation_function(model.config.activation)
        rows = linear.activate(model.transform, rows, activation)
        rows = linear.normalize(model.transform_norm, rows)
    if not isinstance(model, Classifier):
        return rows[probe.decision.position]
    pooled: Tensor = model.pool(rows[None], probe.decision.batch.source_mask.cpu())
    if model.pooler is not None and model.config.pooler != "none":
        pooled = linear.activate(model.pooler, pooled, POOLERS[model.config.pooler])
    return pooled[0]


def _exact_row(states: Tensor) -> Tensor:
    return exact(states[0])


def _sublayers(probe: Probe, kind: Kind, number: int) -> list[tuple[nn.Module, dict[str, Tensor]]]:
    """The norm of each sub-layer of a layer and the parts, (T, D) each, that it adds."""
    layer = stacks_of(probe.model)[kind].layers[number]
    sublayers: list[tuple[nn.Module, dict[str, Tensor]]] = []
    if layer.recurrence is not None:
        cell = probe.values.cells[kind, number].output
        assert cell is not None  # noqa: S101 - it is called in every pass
        sublayers.append((layer.recurrence_norm, {f"{kind}.{number}.unit": _exact_row(cell)}))
    else:
        sublayers.append(
            (layer.self_attention_norm, _heads(probe, (kind, number), layer.self_attention))
        )
    if layer.cross_attention is not None:
        parts = _heads(probe, ("cross", number), layer.cross_attention)
        sublayers.append((layer.cross_attention_norm, parts))
    fed = exact(probe.values.feed_forward_output((kind, number)))
    return [*sublayers, (layer.feed_forward_norm, {f"{kind}.{number}.ff": fed})]


def _heads(probe: Probe, place: Place, attention: MultiHeadAttention) -> dict[str, Tensor]:
    projection, context = attention.out_projection, exact(probe.values.context(place))
    n_heads, _, width = context.shape
    matrix = exact(projection.weight)
    # (D, H·E) -> (H·E, D) -> (H, E, D); a layer may have no heads
    written = context @ matrix.t().reshape(n_heads, width, len(matrix))
    parts = {str(HeadId(*place, head)): written[head] for head in range(n_heads)}
    if projection.bias is not None:
        parts["bias"] = exact(projection.bias).expand(context.shape[1], -1)
    return parts


@dataclass(frozen=True, kw_only=True)
class Slopes:
    """First-order effects on d: of what heads compute, and of tokens."""

    contexts: dict[Place, Tensor]  # (H, Q, E) ∂d/∂z of the heads of each layer
    tokens: dict[Kind, Tensor]  # (T) gradient × (token − baseline) for the input of each stack

    def of_edges(self, probe: Probe, place: Place) -> Tensor:
        """Estimates (H, Q, K) the effect of each attention weight's removal."""
        tap = probe.values.taps[place]
        # (H, Q, E) · (H, K, E) -> (H, Q, K)
        return -tap.weights()[0] * (self.contexts[place] @ tap.value[0].transpose(1, 2))

    def of_change(self, probe: Probe, place: Place, new: Tensor | None) -> Tensor:
        """Estimates (H, Q) the effect of other values of heads at each position, or of none."""
        own = probe.values.context(place)
        return (self.contexts[place] * (-own if new is None else new - own)).sum(dim=2)


@dataclass(frozen=True, kw_only=True)
class Integrated:
    """Integrated gradients of tokens."""

    tokens: dict[Kind, Tensor]  # (T) for each stack
    n_steps: int
    missing: float  # |their sum − (d − d of the baseline)|, as a share of that difference


def slopes_of(probe: Probe) -> Slopes:
    shifts = {
        place: torch.zeros_like(tap.context).requires_grad_()
        for place, tap in probe.values.taps.items()
        if tap.context.shape[1]
    }
    whole = _embed_tokens(probe)
    base = _baselines(probe, whole)
    of_inputs, of_shifts = _slopes(probe, whole, shifts)
    tokens = {kind: (of_inputs[kind] * (whole[kind] - base[kind])).sum(dim=2)[0] for kind in whole}
    return Slopes(
        contexts={place: grad[0] for place, grad in of_shifts.items()},
        tokens={kind: grad.cpu() for kind, grad in tokens.items()},
    )


def integrate_gradients(probe: Probe) -> Integrated:
    """Integrates by midpoints of sections, and halves those with the largest errors.

    What the tokens of a section should add up to is known: the change of d along it. So steps go
    where ReLUs bend the line, and where attention turns from one token to another.
    """
    whole = _embed_tokens(probe)
    base = _baselines(probe, whole)
    away = {kind: (whole[kind] - base[kind])[0] for kind in whole}
    ends = torch.linspace(0.0, 1.0, FIRST_STEPS + 1)
    sections = torch.stack((ends[:-1], ends[1:]))
    slopes, changes = _along(probe, base, away, sections)
    change, n_steps = changes.sum().item(), FIRST_STEPS
    for n_halved in range(MOST_HALVED + 1):
        misses = sum(grad.sum(dim=1) for grad in slopes.values()) - changes
        missing = abs(misses.sum().item() / change) if change else 0.0
        if missing <= COMPLETE or n_steps >= MOST_STEPS or n_halved == MOST_HALVED:
            break
        worst = misses.abs() >= misses.abs().mean()
        kept = ~worst
        first, last = sections[:, worst.cpu()]
        middle = (first + last) / 2
        halves = torch.stack((torch.cat((first, middle)), torch.cat((middle, last))))
        new_slopes, new_changes = _along(probe, base, away, halves)
        n_steps += halves.shape[1]
        sections = torch.cat((sections[:, kept.cpu()], halves), dim=1)
        slopes = {kind: torch.cat((grad[kept], new_slopes[kind])) for kind, grad in slopes.items()}
        changes = torch.cat((changes[kept], new_changes))
    tokens = {kind: grad.sum(dim=0).cpu() for kind, grad in slopes.items()}
    return Integrated(tokens=tokens, n_steps=n_steps, missing=missing)


def _along(
    probe: Probe, base: dict[Kind, Tensor], away: dict[Kind, Tensor], sections: Tensor
) -> tuple[dict[Kind, Tensor], Tensor]:
    """Computes (N, T) gradients × steps at the middles of sections (2, N), and (N) changes of d."""
    grads: list[dict[Kind, Tensor]] = []
    changes = []

    def rows(at: Tensor) -> dict[Kind, Tensor]:
        return {kind: base[kind] + at.to(gap)[:, None, None] * gap for kind, gap in away.items()}

    for numbers in probe.batches(sections.shape[1]):
        section = sections[:, numbers.start : numbers.stop]
        slopes = _slopes(probe, rows(section.mean(dim=0)), {})[0]
        lengths = (section[1] - section[0]).double()
        grads.append(
            {
                kind: (grad * away[kind]).sum(dim=2).double() * lengths.to(grad.device)[:, None]
                for kind, grad in slopes.items()
            }
        )
        with torch.no_grad():
            changes.append(_run(probe, rows(section[1])) - _run(probe, rows(section[0])))
    return {kind: torch.cat([grad[kind] for grad in grads]) for kind in away}, torch.cat(changes)


def _embed_tokens(probe: Probe) -> dict[Kind, Tensor]:
    return {kind: probe.states.entering(kind, 0) for kind in stacks_of(probe.model)}


@torch.no_grad()
def _baselines(probe: Probe, whole: dict[Kind, Tensor]) -> dict[Kind, Tensor]:
    """Returns the input of each stack where each token is the mean of the vocabulary: (1, T, D)."""
    means: dict[Kind, Tensor] = {}
    for kind, embedded in whole.items():
        model = probe.model
        if kind == "dec" and not isinstance(model, EncoderOnly):
            stack_input, matrix = model.decoder_input, model.target_matrix
        else:
            stack_input, matrix = model.encoder_input, None
            if hasattr(model, "source_embedding"):  # Patches of images have no vocabulary
                matrix = model.source_embedding.weight
        # Not 0: an RMS norm turns around at it, and more steps would not help
        mean = embedded.new_zeros(1) if matrix is None else stack_input.scale * matrix.mean(dim=0)
        means[kind] = stack_input.add_positions(mean.expand_as(embedded))
    return means


def _run(probe: Probe, inputs: dict[Kind, Tensor]) -> Tensor:
    """Computes (R) d of rows of what enters the stacks, (R, T, D) each."""
    kind = next(iter(inputs))
    hidden = probe.states.rest(probe.model, kind, 0, inputs[kind], inputs.get("dec"))
    return probe.decision.of(probe.model, hidden)


@torch.enable_grad()
def _slopes(
    probe: Probe, inputs: dict[Kind, Tensor], shifts: dict[Place, Tensor]
) -> tuple[dict[Kind, Tensor], dict[Place, Tensor]]:
    """Computes the gradients of d by what enters the stacks and by shifts of heads."""
    leaves = {kind: tensor.clone().requires_grad_() for kind, tensor in inputs.items()}
    with set_gates(probe.model, {}, shifts):
        d = _run(probe, leaves).sum()
    both = [*leaves.values(), *shifts.values()]
    gradients = torch.autograd.grad(d, both, allow_unused=True, materialize_grads=True)
    of_shifts = dict(zip(shifts, gradients[len(leaves) :], strict=True))
    return dict(zip(leaves, gradients, strict=False)), of_shifts
