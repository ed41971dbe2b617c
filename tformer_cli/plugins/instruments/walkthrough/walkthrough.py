"""The steps of one head for one token, in the order in which study notes teach them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from tformer_cli.heads.names import Inspected
from tformer_cli.plugins.instruments.observed import Observed, observe
from tformer_cli.plugins.instruments.walkthrough.feed_forward import feed_forward_step
from tformer_cli.plugins.instruments.walkthrough.output import output_step
from tformer_cli.plugins.instruments.walkthrough.step import (
    Check,
    Step,
    StepRecord,
    Subject,
    Table,
    check,
)
from tformer_cli.plugins.instruments.walkthrough.trace import EmbeddingTrace, HeadTrace, trace_head
from tformer_cli.wording import count_of

TERMS = 4  # Terms of the sum that are written out
MASKED_NAMED = 4  # Masked keys that are named


def walk_through(model: Inspected, subject: Subject) -> StepRecord:
    maps = subject.sentence.captured
    kind, layer, _ = subject.head
    (observed,) = observe(model, maps.source_ids, maps.target_input_ids, [(kind, layer)])
    return explain(model, subject, observed)


def explain(model: Inspected, subject: Subject, observed: Observed) -> StepRecord:
    """Does the work of `walk_through` with values already observed."""
    sentence, head, row = subject.sentence, subject.head, subject.row
    maps = sentence.captured
    read_ids = maps.source_ids if head.kind == "enc" else maps.target_input_ids
    trace = trace_head(model, observed, head, row, read_ids)
    steps = (
        _input(trace, observed, subject),
        *_head_steps(trace, observed, subject),
        _matrix_form(trace, observed, subject),
        _concatenation(trace, observed, subject),
        _residual(trace, observed, subject.row),
        feed_forward_step(model, observed, subject, trace),
        output_step(model, observed, subject),
    )
    return StepRecord(
        sentence=sentence,
        head=head,
        row=row,
        key=subject.worked_key,
        norm=model.config.norm,
        steps=tuple(replace(step, number=number) for number, step in enumerate(steps)),
    )


def _input(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    head, row, query, keys = subject.head, subject.row, subject.query, subject.keys
    rows, labels, formulas, checks = [trace.stream[row]], ["x"], [], []
    if trace.embedding is not None:
        embedded, labels_given, formula = _describe_embedding(trace.embedding)
        rows, labels = [*embedded, *rows], [*labels_given, *labels]
        formulas.append(formula)
        says = _begins(trace.embedding)
        if trace.embedding.norm is not None:
            says += " This model normalizes their sum."
        checks.append(check("x", trace.stream[row], observed.embedded[row]))
    else:
        place = f"{head.kind}.{head.layer}"
        says = f"x is the hidden state that enters {place}, as the model computed it."
    if trace.norm_before is not None:
        name = f"{trace.norm_before.name}(x)"
        more_labels, more_rows = zip(*trace.norm_before.rows("x"), strict=True)
        rows, labels = [*rows, *more_rows], [*labels, *more_labels]
        formulas.append(trace.norm_before.formula("x"))
        checks.append(check(name, trace.entering, observed.entering))
        says += f" This model normalizes first (pre-norm): below, x stands for {name}."
        says += f" {trace.norm_before.numbers('x')}"
    if head.kind == "cross":
        says += " Keys and values come from m, the encoder's output for each source token."
    tables = [] if trace.embedding is None else _pixels(trace.embedding, subject)
    tables += [
        Table("input", f"input of {query}", tuple(labels), torch.stack(rows)),
        Table("keys_input", "input of keys and values", keys, trace.memory, is_detail=True),
    ]
    return Step(
        name="input",
        title="The input",
        formulas=tuple(formulas),
        says=says,
        tables=tuple(tables),
        checks=tuple(checks),
    )


def _describe_embedding(embedding: EmbeddingTrace) -> tuple[list[Tensor], list[str], str]:
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
    what = {
        "token": "the token's embedding",
        "patch": "W times the pixels p of the patch",
        "class token": "the learned class token c",
    }[embedding.of]
    where = "; its position comes later." if embedding.position is None else " and its position."
    return f"The first layer begins with {what}{where}"


def _pixels(embedding: EmbeddingTrace, subject: Subject) -> list[Table]:
    if embedding.pixels is None:
        return []
    caption = "p, its pixels as (value − mean) / deviation, one channel after the other"
    return [Table("pixels", caption, (f"patch {subject.query}",), embedding.pixels[None])]


def _head_steps(trace: HeadTrace, observed: Observed, subject: Subject) -> Iterator[Step]:
    (kind, _, number), row = subject.head, subject.row
    query, keys, worked = subject.query, subject.keys, subject.worked_key
    q, k, v = observed.query[number, row], observed.key[number], observed.value[number]
    width, source = len(q), "m" if kind == "cross" else "x"
    own = (check("q", trace.query, q), check("k", trace.key, k))
    yield Step(
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
        f"over its value v. Each has d_k = {width} numbers.{_describe_sharing(trace, subject)}",
        tables=(
            Table("q", "query", (query,), trace.query[None]),
            Table("k", "keys", keys, trace.key, marked_row=worked),
            Table("v", "values", keys, trace.value, marked_row=worked),
        ),
        # the model returns q and k as it compares them
        checks=(*(() if trace.compared else own), check("v", trace.value, v)),
    )
    yield score_step(trace, observed, subject)
    yield scaled_step(trace, observed, subject)
    yield _softmax_step(trace, subject)
    yield Step(
        name="weighted",
        title="Weight the values",
        formulas=("a_j·v_j",),
        says="Each value is multiplied by its weight. (Step 6 checks their sum.)",
        worked=f"{trace.weights[worked]:.3f} · {trace.value[worked, 0]:.3f} = "
        f"{trace.weighted[worked, 0]:.3f}",
        tables=(Table("weighted", "weight times value", keys, trace.weighted, marked_row=worked),),
    )
    yield Step(
        name="sum",
        title="Sum",
        formulas=("z = Σ_j a_j·v_j",),
        says="This is the output of the head for the token.",
        worked=_worked_sum(trace, subject),
        tables=(Table("z", "sum", ("z",), trace.context[None]),),
        checks=(check("z", trace.context, observed.context[number, row]),),
    )


def _projection(trace: HeadTrace, matrix: str) -> str:
    if not trace.attention.has_projections:
        return ""
    return f"·W_{matrix}" + (f" + b_{matrix}" if trace.has_bias else "")


def _describe_sharing(trace: HeadTrace, subject: Subject) -> str:
    if not trace.attention.has_projections:
        return " This model has no projections: each head takes its own part of x."
    n_sharing = trace.attention.n_heads // trace.attention.n_key_heads
    if n_sharing == 1:
        return ""
    kind, layer, head = subject.head
    first = head - head % n_sharing
    last = first + n_sharing - 1
    return f" Heads {kind}.{layer}.{first} to {kind}.{layer}.{last} share keys and values."


def _softmax_step(trace: HeadTrace, subject: Subject) -> Step:
    formula = "a_j = e^(t_j) / Σ_i e^(t_i), t_j the result of step 3"
    if trace.attention.is_scaled_product:
        formula = "a_j = e^(s_j/√d_k) / Σ_i e^(s_i/√d_k)"
    map_row = torch.from_numpy(
        subject.sentence.captured.weights(subject.head)[subject.row]
    ).double()
    largest, total = trace.scaled.max().item(), trace.exponentials.sum().item()
    worked = subject.worked_key
    return Step(
        name="softmax",
        title="Softmax",
        formulas=(formula,),
        says=f"The weights are positive and sum to 1; a masked −∞ becomes exactly 0. The largest "
        f"scaled score, {largest:.3f}, is subtracted first, which changes no weight; Σ e is then "
        f"{total:.3f}.",
        worked=f"{trace.exponentials[worked]:.3f} / {total:.3f} = {trace.weights[worked]:.3f}",
        tables=(
            table_by_key(
                "weights",
                "attention weights",
                subject,
                (
                    "÷ √d_k" if trace.attention.is_scaled_product else "step 3",
                    "e^(…−max)",
                    "weight",
                ),
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


def score_step(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    worked = subject.worked_key
    formulas: tuple[str, ...] = ("s_j = q·k_j = Σ_i q_i·k_ji",)
    says = "The larger the score, the better key and query match."
    models = _models_products(trace, observed, subject)
    tables: tuple[Table, ...] = (
        table_by_key("scores", "scores", subject, (_name(trace),), trace.scores),
    )
    checks: tuple[Check, ...] = (check("scores, of the model's q and k", trace.scores, models),)
    if trace.compared is not None:
        query, key = trace.compared
        relative = trace.attention.relative
        of_queries = () if relative is None else (relative.formula,)
        formulas = (*of_queries, "s_j = q'·k'_j = Σ_i q'_i·k'_ji")
        tables = (
            Table("q_turned", "q'", (subject.query,), query[None]),
            Table("k_turned", "k'", subject.keys, key, marked_row=worked),
            *tables,
        )
        models_query, models_key = _models_own(observed, subject)
        checks = (check("q'", query, models_query), check("k'", key, models_key), *checks)
    if not trace.attention.is_scaled_product:
        formulas = trace.attention.similarity.formulas or formulas
        says = f"This model does not compare by a scaled product. {says}"
    if trace.attention.positions.turns:
        formulas = (*trace.attention.positions.formulas, *formulas)
        says = f"Positions turn query and keys before they are compared (q', k'). {says}"
    return Step(
        name="scores",
        title="Scores: q · k" if trace.factor else "Scores",
        formulas=formulas,
        says=says,
        worked=_worked_score(trace, worked, subject.keys[worked]),
        tables=tables,
        checks=checks,
    )


def scaled_step(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    worked, finite, scaling = subject.worked_key, trace.visible, _scaling_of(trace)
    added = {"c": trace.own_bias if trace.factor else None, "b": trace.bias}
    terms = {name: values for name, values in added.items() if values is not None}
    formula = " + ".join((scaling.formula, *(f"{name}_j" for name in terms)))
    calculation = f"{trace.scores[worked]:.3f}{scaling.calculation}"
    calculation += "".join(f" + {values[worked]:.3f}" for values in terms.values())
    column = ", ".join((*scaling.column, *(f"+ {name}" for name in terms))) or "as it is"
    models = _models_products(trace, observed, subject) * (trace.factor or 1.0)
    if trace.factor and (bias := _models_bias(observed, subject)) is not None:
        models = models + bias
    elif trace.bias is not None:
        models = models + trace.bias
    return Step(
        name="scaled",
        title=scaling.title,
        formulas=(formula, *(trace.attention.positions.formulas if "b" in terms else ())),
        says=f"{scaling.says} {_describe_mask(subject)}",
        worked=f"{calculation} = {trace.scaled[worked]:.3f}",
        tables=(
            table_by_key(
                "scaled",
                "scaled scores",
                subject,
                (_name(trace), *terms, column),
                *(trace.scores, *terms.values(), trace.scaled),
            ),
        ),
        checks=(check("scaled scores", trace.scaled[finite], models[finite]),),
    )


def _describe_mask(subject: Subject) -> str:
    masked = subject.keys[subject.n_visible :]
    if not masked:
        return "Keys that the query may not see are masked with −∞; here it sees all."
    keys = f"{count_of(len(masked), 'key')} after it, {', '.join(masked[:MASKED_NAMED])}"
    more = ", …" if len(masked) > MASKED_NAMED else ""
    verb = "is" if len(masked) == 1 else "are"
    return (
        f"The query may not see the {keys}{more}, which {verb} masked: −∞ before the softmax, "
        "exactly 0 after it."
    )


def table_by_key(
    name: str,
    caption: str,
    subject: Subject,
    columns: tuple[str, ...],
    *values: Tensor,
    share_column: int | None = None,
) -> Table:
    return Table(
        name,
        caption,
        subject.keys,
        torch.stack(values, dim=-1),
        columns=columns,
        share_column=share_column,
        marked_row=subject.worked_key,
    )


class _Scaling(NamedTuple):
    """Words for the factor of the scores."""

    title: str
    formula: str
    calculation: str
    column: tuple[str, ...]
    says: str


def _scaling_of(trace: HeadTrace) -> _Scaling:
    width = len(trace.query)
    if trace.factor == width**-0.5:
        root = width**0.5
        says = f"√d_k = √{width} = {root:.4f} keeps the scores' variance near 1."
        return _Scaling("Divide by √d_k", "s_j / √d_k", f" / {root:.3f}", ("÷ √d_k",), says)
    if trace.factor in (0.0, 1.0):
        return _Scaling("Not scaled", "s_j", "", (), "This similarity is not divided by √d_k.")
    factor = f"{trace.factor:.4g}"
    says = "The similarity has a factor of its own."
    return _Scaling("Scale", f"s_j · {factor}", f" · {factor}", (f"· {factor}",), says)


def _name(trace: HeadTrace) -> str:
    return "q·k" if trace.factor else "s"


def _models_own(observed: Observed, subject: Subject) -> tuple[Tensor, Tensor]:
    """The model's query (E) and keys (K, E) as they are compared."""
    number = subject.head.head
    return observed.query[number, subject.row], observed.key[number]


def _models_bias(observed: Observed, subject: Subject) -> Tensor | None:
    """Terms that the model added to the scaled scores (K)."""
    if observed.tap.bias is None:
        return None
    shape = (1, len(observed.query), *observed.visible.shape)
    return observed.tap.bias.cpu().double().expand(shape)[0, subject.head.head, subject.row]


def _models_products(trace: HeadTrace, observed: Observed, subject: Subject) -> Tensor:
    """The scores (K) from the model's own numbers."""
    if trace.factor:
        query, key = _models_own(observed, subject)
        return key @ query
    bias = _models_bias(observed, subject)
    if bias is None:
        raise ValueError("a similarity without a product adds a bias")
    return bias if trace.bias is None else bias - trace.bias


def _worked_score(trace: HeadTrace, place: int, key: str) -> str:
    if not trace.factor:
        return f"s({key}) = {trace.scores[place]:.3f}"
    query, keys = trace.compared or (trace.query, trace.key)
    pairs = list(zip(query.tolist(), keys[place].tolist(), strict=True))
    terms = " + ".join(f"{q:.3f}·{k:.3f}" for q, k in pairs[:3])
    more = f" + … ({len(pairs)} terms)" if len(pairs) > 3 else ""
    return f"q·k({key}) = {terms}{more} = {trace.scores[place]:.3f}"


def _matrix_form(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    sentence, head, row = subject.sentence, subject.head, subject.row
    queries, keys = sentence.row_labels(head.kind), sentence.column_labels(head.kind)
    weights = trace.all_weights[head.head]
    return Step(
        name="matrix",
        title="The same for all tokens at once",
        formulas=(
            "Z = softmax(Q·Kᵀ / √d_k)·V"
            if trace.attention.is_scaled_product
            else "Z = softmax(T)·V",
        ),
        says="Each row is one query; the marked row is the one of steps 1 to 6."
        + (" The upper triangle is masked." if head.kind == "dec" else ""),
        tables=(
            Table(
                "attention",
                "attention weights, a row per query",
                queries,
                weights,
                columns=keys,
                marked_row=row,
            ),
            Table(
                "Z",
                "Z, a row per query",
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
                torch.from_numpy(sentence.captured.weights(head)).double(),
            ),
            check("Z", trace.all_context[head.head], observed.context[head.head]),
            check("row of Z and z of step 6", trace.context, trace.all_context[head.head, row]),
        ),
    )


def _concatenation(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    head, row = subject.head, subject.row
    n_heads = len(trace.all_context)
    product, times = (
        ("·W_O", ", which W_O multiplies") if trace.attention.has_projections else ("", "")
    )
    bias = " + b_O" if trace.has_bias else ""
    return Step(
        name="concatenation",
        title="Put the heads side by side"
        + (" and mix them" if trace.attention.has_projections else ""),
        formulas=(f"MultiHead = Concat(z_0, …, z_h){product}{bias}",),
        says=f"The z of the layer's {count_of(n_heads, 'head')} form one row of "
        f"{trace.joined.shape[1]} numbers{times}. The share of {head} is its part of the "
        f"output; the shares of all heads {'and b_O ' if trace.has_bias else ''}add up to it.",
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
                "after W_O" if trace.attention.has_projections else "side by side",
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
        "The output is added to the input of the layer, x before its norm. This model "
        "normalizes before the layer (pre-norm, step 0), so the sum goes on as it is."
    )
    if trace.norm_after is not None and observed.normed is not None:
        norm = trace.norm_after
        summed = (*summed, *(values for _, values in norm.rows("r")))
        labels = (*labels, *(label for label, _ in norm.rows("r")))
        formulas = (*formulas, norm.formula("r"))
        says = (
            "The output is added to the input of the layer; then the sum is normalized "
            f"(post-norm). {norm.numbers('r')}"
        )
        checks.append(check(f"{norm.name}(r)", norm.after, observed.normed[row]))
    return Step(
        name="residual",
        title="Residual sum and layer norm",
        formulas=formulas,
        says=says,
        worked=f"{summed[0][0]:.3f} + {summed[1][0]:.3f} = {summed[2][0]:.3f}",
        tables=(Table("residual", "before and after", labels, torch.stack(summed)),),
        checks=tuple(checks),
    )
