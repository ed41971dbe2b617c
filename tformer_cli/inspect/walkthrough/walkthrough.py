"""The steps of one head for one token, in the order in which study notes teach them."""

from collections.abc import Iterator

import torch
from torch import Tensor

from tformer_cli.heads.names import Inspected
from tformer_cli.inspect.capture.observed import Observed, observe
from tformer_cli.inspect.walkthrough.layer import layer_steps
from tformer_cli.inspect.walkthrough.output import output_step
from tformer_cli.inspect.walkthrough.scores import scaled_step, score_step, table_by_key
from tformer_cli.inspect.walkthrough.step import (
    Step,
    StepRecord,
    Subject,
    Table,
    check,
)
from tformer_cli.inspect.walkthrough.trace import EmbeddingTrace, HeadTrace, trace_head

TERMS = 4
"""Terms of the sum that are written out."""


def walk_through(model: Inspected, subject: Subject) -> StepRecord:
    """Computes the steps of one head for one token and checks them against the model."""
    maps = subject.sentence.captured
    kind, layer, _ = subject.head
    (observed,) = observe(model, maps.source_ids, maps.target_input_ids, [(kind, layer)])
    return explain(model, subject, observed)


def explain(model: Inspected, subject: Subject, observed: Observed) -> StepRecord:
    """Does the work of `walk_through` with what was observed already."""
    sentence, head, row = subject.sentence, subject.head, subject.row
    maps = sentence.captured
    read_ids = maps.source_ids if head.kind == "enc" else maps.target_input_ids
    trace = trace_head(model, observed, head, row, read_ids)
    steps = (
        _input(trace, observed, subject),
        *_head_steps(trace, observed, subject),
        *layer_steps(trace, observed, subject),
        output_step(model, observed, subject),
    )
    return StepRecord(
        sentence=sentence,
        head=head,
        row=row,
        key=subject.worked_key,
        norm=model.config.norm,
        steps=steps,
    )


def _input(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    """Step 0: where x comes from."""
    head, row, query, keys = subject.head, subject.row, subject.query, subject.keys
    rows, labels, formulas, checks = [trace.stream[row]], ["x"], [], []
    if trace.embedding is not None:
        given, labels_given, formula = _embedded(trace.embedding)
        rows, labels = [*given, *rows], [*labels_given, *labels]
        formulas.append(formula)
        says = _begins(trace.embedding)
        if trace.embedding.norm is not None:
            says += " This model normalizes their sum."
        checks.append(check("x", trace.stream[row], observed.embedded[row]))
    else:
        place = f"{head.kind}.{head.layer}"
        says = f"x is the hidden state that the model hands to {place}, taken as it is."
    if trace.norm_before is not None:
        name = f"{trace.norm_before.name}(x)"
        rows, labels = [*rows, trace.norm_before.after], [*labels, name]
        formulas.append(trace.norm_before.formula("x"))
        checks.append(check(name, trace.entering, observed.entering))
        says += f" This model normalizes first (pre-norm): below, x is {name}."
    if head.kind == "cross":
        says += " Keys and values come from m, the encoder's output for each source token."
    tables = [] if trace.embedding is None else _pixels(trace.embedding, subject)
    tables += [
        Table("input", f"what {query} brings", tuple(labels), torch.stack(rows)),
        Table("keys_input", "what keys and values are made of", keys, trace.memory, is_detail=True),
    ]
    return Step(
        number=0,
        name="input",
        title="The input",
        formulas=tuple(formulas),
        says=says,
        tables=tuple(tables),
        checks=tuple(checks),
    )


def _embedded(embedding: EmbeddingTrace) -> tuple[list[Tensor], list[str], str]:
    """The parts of x in the first layer, their labels, and the formula."""
    formula, rows, labels = embedding.formula, [], []
    if embedding.position is not None:
        formula += " + PE(position)"
        rows = [embedding.scaled, embedding.position]
        labels = [embedding.label, "PE(position)"]
    if embedding.norm is not None:
        formula = f"{embedding.norm.name}({formula})"
        rows, labels = [*rows, embedding.norm.before], [*labels, f"before {embedding.norm.name}"]
    return rows, labels, f"x = {formula}"


def _begins(embedding: EmbeddingTrace) -> str:
    """Tells what the first layer begins with."""
    what = {
        "token": "the token's embedding",
        "patch": "W times the pixels p of the patch",
        "class token": "the class token c, which is learned",
    }[embedding.of]
    where = "; its position comes later." if embedding.position is None else " and its position."
    return f"The first layer begins with {what}{where}"


def _pixels(embedding: EmbeddingTrace, subject: Subject) -> list[Table]:
    """The pixels of a patch, if it is one."""
    if embedding.pixels is None:
        return []
    caption = "p, its pixels as (value − mean) / deviation, one channel after the other"
    return [Table("pixels", caption, (f"patch {subject.query}",), embedding.pixels[None])]


def _head_steps(trace: HeadTrace, observed: Observed, subject: Subject) -> Iterator[Step]:
    """Steps 1 to 6: from q, k and v to the sum of the values."""
    (kind, _, number), row = subject.head, subject.row
    query, keys, worked = subject.query, subject.keys, subject.worked_key
    q, k, v = observed.query[number, row], observed.key[number], observed.value[number]
    width, source = len(q), "m" if kind == "cross" else "x"
    own = (check("q", trace.query, q), check("k", trace.key, k))
    yield Step(
        number=1,
        name="projections",
        title="Query, keys, values",
        formulas=tuple(
            f"{name} = {of}" + _projection(trace, matrix)
            for name, of, matrix in (
                ("q", "x", "Q"),
                ("k_j", f"{source}_j", "K"),
                ("v_j", f"{source}_j", "V"),
            )
        ),
        says=f"The token asks with q; every token it may look at answers with its key k and hands "
        f"over its value v. Each has d_k = {width} numbers.{_shared(trace, subject)}",
        tables=(
            Table("q", "query", (query,), trace.query[None]),
            Table("k", "keys", keys, trace.key, marked_row=worked),
            Table("v", "values", keys, trace.value, marked_row=worked),
        ),
        # the model hands out q and k as they are compared
        checks=(*(() if trace.compared else own), check("v", trace.value, v)),
    )
    yield score_step(trace, observed, subject)
    yield scaled_step(trace, observed, subject)
    yield _softmax_step(trace, subject)
    yield Step(
        number=5,
        name="weighted",
        title="Weight the values",
        formulas=("a_j·v_j",),
        says="Each value counts as much as its weight. (Their sum, step 6, is checked.)",
        worked=f"{trace.weights[worked]:.3f} · {trace.value[worked, 0]:.3f} = "
        f"{trace.weighted[worked, 0]:.3f}",
        tables=(Table("weighted", "weight times value", keys, trace.weighted, marked_row=worked),),
    )
    yield Step(
        number=6,
        name="sum",
        title="Sum",
        formulas=("z = Σ_j a_j·v_j",),
        says="This is what the head has read for the token.",
        worked=_worked_sum(trace, subject),
        tables=(Table("z", "sum", ("z",), trace.context[None]),),
        checks=(check("z", trace.context, observed.context[number, row]),),
    )


def _projection(trace: HeadTrace, matrix: str) -> str:
    """What x or m is multiplied by and what is added."""
    if not trace.has_projections:
        return ""
    return f"·W_{matrix}" + (f" + b_{matrix}" if trace.has_bias else "")


def _shared(trace: HeadTrace, subject: Subject) -> str:
    """What there is to say of keys that are not this head's alone, or not projected."""
    if not trace.has_projections:
        return " This model has no projections: each head has its own numbers of x."
    if trace.n_sharing == 1:
        return ""
    kind, layer, head = subject.head
    first = head - head % trace.n_sharing
    last = first + trace.n_sharing - 1
    return f" Heads {kind}.{layer}.{first} to {kind}.{layer}.{last} share keys and values."


def _softmax_step(trace: HeadTrace, subject: Subject) -> Step:
    map_row = subject.sentence.captured.weights(subject.head)[subject.row].double()
    largest, total = trace.scaled.max().item(), trace.exponentials.sum().item()
    worked = subject.worked_key
    return Step(
        number=4,
        name="softmax",
        title="Softmax",
        formulas=(trace.softmax_formula,),
        says=f"The weights are positive and sum to 1; a masked −∞ becomes exactly 0. The largest "
        f"scaled score, {largest:.3f}, is taken off first, which changes no weight; Σ e is then "
        f"{total:.3f}.",
        worked=f"{trace.exponentials[worked]:.3f} / {total:.3f} = {trace.weights[worked]:.3f}",
        tables=(
            table_by_key(
                "weights",
                "attention weights",
                subject,
                ("÷ √d_k" if trace.is_scaled_product else "step 3", "e^(…−max)", "weight"),
                trace.scaled,
                trace.exponentials,
                trace.weights,
                share_column=2,
            ),
        ),
        checks=(check("weights, of `inspect-heads`", trace.weights, map_row),),
    )


def _worked_sum(trace: HeadTrace, subject: Subject) -> str:
    """Component 0 of the sum: the worked key's term, then those of the heaviest others."""
    weights = trace.weights.tolist()
    others = [key for key in range(subject.n_visible) if key != subject.worked_key]
    order = [subject.worked_key, *sorted(others, key=lambda key: -weights[key])]
    terms = " + ".join(f"{trace.weighted[key, 0]:.3f}" for key in order[:TERMS])
    more = f" + … ({len(order)} terms)" if len(order) > TERMS else ""
    return f"z_0 = {terms}{more} = {trace.context[0]:.3f}"
