"""The steps after a head: all queries at once, all heads together, the residual sum."""

from collections.abc import Iterator

import torch
from torch import Tensor

from tformer_cli.inspect.capture.observed import Observed
from tformer_cli.inspect.walkthrough.step import Step, Subject, Table, check
from tformer_cli.inspect.walkthrough.trace import HeadTrace
from tformer_cli.wording import count_of


def layer_steps(trace: HeadTrace, observed: Observed, subject: Subject) -> Iterator[Step]:
    """Yields steps 7 to 9 (see `walkthrough.walk_through`)."""
    yield _matrix_form(trace, observed, subject)
    yield _concatenation(trace, observed, subject)
    yield _residual(trace, observed, subject.row)


def _matrix_form(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    sentence, head, row = subject.sentence, subject.head, subject.row
    queries, keys = sentence.row_labels(head.kind), sentence.column_labels(head.kind)
    weights = trace.all_weights[head.head]
    return Step(
        number=7,
        name="matrix",
        title="The same for all tokens at once",
        formulas=("Z = softmax(Q·Kᵀ / √d_k)·V" if trace.is_scaled_product else "Z = softmax(T)·V",),
        says="Each row is one query; the marked row is the one of steps 1 to 6."
        + (" The upper triangle is masked." if head.kind == "dec" else ""),
        tables=(
            Table(
                "attention",
                "attention weights, a row a query",
                queries,
                weights,
                columns=keys,
                marked_row=row,
            ),
            Table(
                "Z",
                "Z, a row a query",
                queries,
                trace.all_context[head.head],
                marked_row=row,
                is_detail=True,
            ),
        ),
        checks=(
            check(
                "attention weights, of `inspect-heads`",
                weights,
                sentence.captured.weights(head).double(),
            ),
            check("Z", trace.all_context[head.head], observed.context[head.head]),
            check("row of Z and z of step 6", trace.context, trace.all_context[head.head, row]),
        ),
    )


def _concatenation(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    head, row = subject.head, subject.row
    n_heads = len(trace.all_context)
    product, times = ("·W_O", ", times W_O") if trace.has_projections else ("", "")
    bias = " + b_O" if trace.has_bias else ""
    return Step(
        number=8,
        name="concatenation",
        title="Put the heads side by side" + (" and mix them" if trace.has_projections else ""),
        formulas=(f"MultiHead = Concat(z_0, …, z_h){product}{bias}",),
        says=f"The z of the layer's {count_of(n_heads, 'head')} in one row of "
        f"{trace.joined.shape[1]} numbers{times}. The share of {head} is what it alone puts "
        f"in; the shares of all heads {'and b_O ' if trace.has_bias else ''}add up to the output.",
        tables=(
            Table(
                "heads",
                "z of every head",
                tuple(f"z_{number}" for number in range(n_heads)),
                trace.all_context[:, row],
                marked_row=head.head,
            ),
            Table(
                "attended",
                "after W_O" if trace.has_projections else "side by side",
                ("output", f"share of {head}"),
                torch.stack((trace.attended[row], trace.share)),
            ),
        ),
        checks=(
            check("heads side by side", trace.joined, observed.joined),
            check("output of W_O", trace.attended, observed.attended),
        ),
    )


def _residual(trace: HeadTrace, observed: Observed, row: int) -> Step:
    summed: tuple[Tensor, ...] = (trace.stream[row], trace.attended[row], trace.summed[row])
    labels: tuple[str, ...] = ("x", "output", "x + output")
    checks = [check("sum", trace.summed, observed.summed)]
    formulas: tuple[str, ...] = ("r = x + MultiHead",)
    says = (
        "The output is added to what the layer began with, x before its norm. This model "
        "normalizes before the layer (pre-norm, step 0), so the sum goes on as it is."
    )
    if trace.norm_after is not None and observed.normed is not None:
        norm = trace.norm_after
        summed = (*summed, *(values for _, values in norm.rows))
        labels = (*labels, *(label for label, _ in norm.rows))
        formulas = (*formulas, norm.formula("r"))
        says = (
            "The output is added to what the layer began with; then the sum is normalized "
            f"(post-norm). {norm.numbers}"
        )
        checks.append(check(f"{norm.name}(r)", norm.after, observed.normed[row]))
    return Step(
        number=9,
        name="residual",
        title="Residual sum and layer norm",
        formulas=formulas,
        says=says,
        worked=f"{summed[0][0]:.3f} + {summed[1][0]:.3f} = {summed[2][0]:.3f}",
        tables=(Table("residual", "before and after", labels, torch.stack(summed)),),
        checks=tuple(checks),
    )
