"""The steps from query and keys to what the softmax is taken of: scores, scaling, what is added."""

from typing import NamedTuple

import torch
from torch import Tensor

from tformer_cli.inspect.capture.observed import Observed
from tformer_cli.inspect.walkthrough.step import Check, Step, Subject, Table, check
from tformer_cli.inspect.walkthrough.trace import HeadTrace


def score_step(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    """Explains step 2, how alike query and keys are."""
    worked = subject.worked_key
    formulas: tuple[str, ...] = ("s_j = q·k_j = Σ_i q_i·k_ji",)
    says = "The larger the score, the better key and query fit."
    models = _models_products(trace, observed, subject)
    tables: tuple[Table, ...] = (
        table_by_key("scores", "scores", subject, (_name(trace),), trace.scores),
    )
    checks: tuple[Check, ...] = (check("scores, of the model's q and k", trace.scores, models),)
    if trace.compared is not None:
        query, key = trace.compared
        formulas = (*trace.of_queries, "s_j = q'·k'_j = Σ_i q'_i·k'_ji")
        tables = (
            Table("q_turned", "q'", (subject.query,), query[None]),
            Table("k_turned", "k'", subject.keys, key, marked_row=worked),
            *tables,
        )
        models_query, models_key = _models_own(observed, subject)
        checks = (check("q'", query, models_query), check("k'", key, models_key), *checks)
    if not trace.is_scaled_product:
        formulas = trace.of_similarity or formulas
        says = f"This model compares otherwise than by a scaled product. {says}"
    if trace.turns:
        formulas = (*trace.of_positions, *formulas)
        says = f"Positions turn query and keys before they are compared (q', k'). {says}"
    return Step(
        number=2,
        name="scores",
        title="Scores: q · k" if trace.factor else "Scores",
        formulas=formulas,
        says=says,
        worked=_worked_score(trace, worked, subject.keys[worked]),
        tables=tables,
        checks=checks,
    )


def scaled_step(trace: HeadTrace, observed: Observed, subject: Subject) -> Step:
    """Explains step 3, what is made of the scores before the softmax."""
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
        number=3,
        name="scaled",
        title=scaling.title,
        formulas=(formula, *(trace.of_positions if "b" in terms else ())),
        says=f"{scaling.says} What the query may not see is masked with −∞.",
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


def table_by_key(
    name: str,
    caption: str,
    subject: Subject,
    columns: tuple[str, ...],
    *values: Tensor,
    share_column: int | None = None,
) -> Table:
    """Makes a table with a row for each key; the one that is worked out is marked."""
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
    """What the model added to the scaled scores (K)."""
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
