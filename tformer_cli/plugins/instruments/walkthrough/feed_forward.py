"""The feed-forward layer after an attention, for one token, in float64.

FFN(x) = f(x·W₁ + b₁)·W₂ + b₂ of each position by itself (Vaswani et al. 2017, section 3.3); gated
it is (f(x·W + b) ⊙ (x·W₁ + b₁))·W₂ + b₂ (Shazeer 2020).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.heads.names import Inspected
from tformer_cli.model.methods import ACTIVATIONS, Activation
from tformer_cli.model.operations import Linear
from tformer_cli.plugins.instruments.observed import Observed, exact, place_of
from tformer_cli.plugins.instruments.walkthrough.step import Check, Step, Subject, Table, check
from tformer_cli.plugins.instruments.walkthrough.trace import HeadTrace, NormTrace, norm_trace


@dataclass(frozen=True, kw_only=True)
class FeedForwardTrace:
    """Every number of a feed-forward layer for one token."""

    activation: Activation
    has_bias: bool
    stream: Tensor  # (D) x, the residual stream
    norm_before: NormTrace | None  # Pre-norm: the norm of x
    products: Tensor  # (F) x·W₁ + b₁
    gate: Tensor | None  # (F) x·W + b; None where there is no gate
    activated: Tensor  # (F) f of the gate, or else of the products
    inner: Tensor  # (F) what W₂ multiplies
    output: Tensor  # (D) FFN(x)
    summed: Tensor  # (D) x + FFN(x)
    norm_after: NormTrace | None  # Post-norm: the norm of that sum

    @property
    def result(self) -> Tensor:
        """(D) what leaves the layer."""
        return self.summed if self.norm_after is None else self.norm_after.after


def trace_feed_forward(
    model: Inspected, observed: Observed, subject: Subject, trace: HeadTrace
) -> FeedForwardTrace:
    """Computes the feed-forward layer; x is the last step's result where no attention lies between.

    Args:
        model: the model.
        observed: what it computed around the head's attention.
        subject: the head and the token.
        trace: the numbers of the head.
    """
    layer = place_of(model, subject.head.kind, subject.head.layer).layer
    feed_forward, norm = layer.feed_forward, layer.feed_forward_norm
    stream = trace.summed[subject.row] if trace.norm_after is None else trace.norm_after.after
    if has_cross_attention_between(model, subject):
        stream = observed.feed_forward.stream[subject.row]
    before = norm_trace(stream, norm) if layer.is_pre_norm else None
    entering = stream if before is None else before.after
    products = _multiply(feed_forward.inner, entering)
    gate = None if feed_forward.gate is None else _multiply(feed_forward.gate, entering)
    with torch.inference_mode():
        activated = feed_forward.activation(products if gate is None else gate)
    inner = activated if gate is None else activated * products
    output = _multiply(feed_forward.outer, inner)
    summed = stream + output
    return FeedForwardTrace(
        activation=model.config.activation,
        has_bias=feed_forward.inner.bias is not None,
        stream=stream,
        norm_before=before,
        products=products,
        gate=gate,
        activated=activated,
        inner=inner,
        output=output,
        summed=summed,
        norm_after=None if layer.is_pre_norm else norm_trace(summed, norm),
    )


def has_cross_attention_between(model: Inspected, subject: Subject) -> bool:
    layer = place_of(model, subject.head.kind, subject.head.layer).layer
    return subject.head.kind == "dec" and layer.cross_attention is not None


def feed_forward_step(
    model: Inspected, observed: Observed, subject: Subject, head_trace: HeadTrace
) -> Step:
    trace = trace_feed_forward(model, observed, subject, head_trace)
    says = "x is the result of step 9."
    if has_cross_attention_between(model, subject):
        says = (
            f"Between lies the cross-attention of layer {subject.head.layer}: x is what leaves it, "
            "as the model computed it."
        )
    return Step(
        name="feed_forward",
        title="Feed-forward layer",
        formulas=_formulas(trace),
        says=f"{says} {_describe(trace)}",
        worked=_work_example(trace),
        tables=(_inner_table(trace), _result_table(trace)),
        checks=_checks(trace, observed, subject.row),
    )


def _formulas(trace: FeedForwardTrace) -> tuple[str, ...]:
    products, gate, end = (
        ("x·W₁ + b₁", "x·W + b", " + b₂") if trace.has_bias else ("x·W₁", "x·W", "")
    )
    name = trace.activation
    inner = f"{name}({products})"
    if trace.gate is not None:
        inner = f"({name}({gate}) ⊙ ({products}))"
    formulas = [f"FFN(x) = {inner}·W₂{end}", f"{name}(u) = {ACTIVATIONS[name].formula}"]
    if trace.norm_before is not None:
        formulas.insert(0, trace.norm_before.formula("x"))
        formulas.append(f"r = x + FFN({trace.norm_before.name}(x))")
    if trace.norm_after is not None:
        formulas += ["r = x + FFN(x)", trace.norm_after.formula("r")]
    return tuple(formulas)


def _describe(trace: FeedForwardTrace) -> str:
    n_inner, width = len(trace.inner), len(trace.stream)
    n_positive, largest = int((trace.activated > 0).sum()), int(trace.inner.abs().argmax())
    added, before = trace.output.norm().item(), trace.stream.norm().item()
    cosine = functional.cosine_similarity(trace.output, trace.stream, dim=0).item()
    says = (
        f"Every token goes through it by itself: {width} numbers become {n_inner} and {width} "
        f"again. Of the {n_inner} numbers after {trace.activation}, {n_positive} are above 0; the "
        f"largest that W₂ multiplies is number {largest}, {trace.inner[largest]:.3f}. The layer "
        f"adds a vector of length {added:.3f} to x, of length {before:.3f} (cosine {cosine:z.2f})."
    )
    norm = trace.norm_before or trace.norm_after
    if norm is not None:
        says += f" {norm.numbers('x' if norm is trace.norm_before else 'r')}"
    return says


def _work_example(trace: FeedForwardTrace) -> str:
    name, first = trace.activation, trace.products[0]
    if trace.gate is None:
        inner = f"{name}({first:.3f}) = {trace.inner[0]:.3f}"
    else:
        inner = f"{name}({trace.gate[0]:.3f}) · {first:.3f} = {trace.inner[0]:.3f}"
    return f"{inner}; {trace.stream[0]:.3f} + {trace.output[0]:.3f} = {trace.summed[0]:.3f}"


def _inner_table(trace: FeedForwardTrace) -> Table:
    plus, plus_gate = (" + b₁", " + b") if trace.has_bias else ("", "")
    rows = [(f"x·W₁{plus}", trace.products)]
    if trace.gate is not None:
        rows.append((f"x·W{plus_gate}", trace.gate))
    rows.append((f"after {trace.activation}", trace.activated))
    if trace.gate is not None:
        rows.append(("product", trace.inner))
    return _table("inner", "between W₁ and W₂", rows)


def _result_table(trace: FeedForwardTrace) -> Table:
    rows, before = [("x", trace.stream)], trace.norm_before
    if before is not None:
        rows += before.rows("x")
    output = "FFN(x)" if before is None else f"FFN({before.name}(x))"
    rows += [(output, trace.output), ("r", trace.summed)]
    if trace.norm_after is not None:
        rows += trace.norm_after.rows("r")
    return _table("feed_forward", "before and after", rows)


def _table(name: str, caption: str, rows: list[tuple[str, Tensor]]) -> Table:
    labels, values = zip(*rows, strict=True)
    return Table(name, caption, labels, torch.stack(values))


def _checks(trace: FeedForwardTrace, observed: Observed, row: int) -> tuple[Check, ...]:
    models, before = observed.feed_forward, trace.norm_before
    compared = [("x", trace.stream, models.stream)]
    if before is not None:
        compared.append((f"{before.name}(x)", before.after, models.entering))
    compared += [
        ("what W₂ multiplies", trace.inner, models.inner),
        ("output", trace.output, models.output),
        ("result of the layer", trace.result, models.result),
    ]
    return tuple(check(what, numbers, values[row]) for what, numbers, values in compared)


def _multiply(linear: Linear, vector: Tensor) -> Tensor:
    return functional.linear(
        vector, exact(linear.weight), None if linear.bias is None else exact(linear.bias)
    )
