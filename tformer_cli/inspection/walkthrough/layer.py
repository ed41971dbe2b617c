"""The steps after a head: all queries at once, all heads together, the residual sum, the word."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from tformer_cli.inspection.capture.observed import Observed
from tformer_cli.inspection.walkthrough.step import Check, Step, Subject, Table, check
from tformer_cli.inspection.walkthrough.trace import HeadTrace
from tformer_cli.model.config import ModelConfig
from tformer_cli.wording import count_of

CANDIDATES = 8
"""Words shown with their logits and probabilities."""


class Pooled(NamedTuple):
    """The vector that an encoder alone makes of its last hidden states; see `EncoderOnly.pool`."""

    config: ModelConfig
    """Settings of the model."""

    @property
    def _first(self) -> int:
        """The first state of the mean: the class token of an image is not part of it."""
        return int(self.config.class_token)

    def of(self, states: Tensor) -> Tensor:
        """Pools states (S, D)."""
        mean = states[self._first :].mean(dim=0)
        if self.config.pooling == "first-and-mean":
            return torch.cat((states[0], mean))
        return states[0] if self.config.pooling == "first" else mean

    def formula(self, n_states: int) -> str:
        """Writes how p is made of so many states."""
        n_tokens = n_states - self._first
        mean = f"1/{n_tokens} · Σ_i h_i" + (", i > 0" if self._first else "")
        if self.config.pooling == "first-and-mean":
            return f"p = [h_0, {mean}]"
        return "p = h_0" if self.config.pooling == "first" else f"p = {mean}"

    def says(self, n_states: int) -> str:
        """Says the same in words."""
        unit = "patches" if self.config.reads_images else "tokens"
        mean = f"the mean over the {n_states - self._first} {unit}"
        first = "that of the class token" if self._first else "that of the first token"
        if self.config.pooling == "first-and-mean":
            return f"{first}, then {mean}"
        return first if self.config.pooling == "first" else mean


class Pooler(NamedTuple):
    """The layer between the pooled vector of a classifier and its labels."""

    name: str
    """Its function, such as tanh."""
    weight: Tensor
    """(D, D) W."""
    bias: Tensor
    """(D) b; 0 where there is none."""
    function: Callable[[Tensor], Tensor]
    """The function itself."""

    def of(self, pooled: Tensor) -> Tensor:
        """Computes f(W·p + b)."""
        return self.function(self.weight @ pooled + self.bias)


class Output(NamedTuple):
    """The part of a model that makes logits of hidden states."""

    matrix: Tensor
    """(V, D) rows that hidden states are compared with; of a classifier a row for each label."""
    bias: Tensor | None
    """(V) what is added, or None."""
    pooled: Pooled | None = None
    """What a classifier makes of the hidden states of a text; None of other models."""
    pooler: Pooler | None = None
    """What it makes of that before labels are compared with it, if anything."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Computes the logits (V) of a hidden state (D)."""
        logits = self.matrix @ hidden
        return logits if self.bias is None else logits + self.bias


def layer_steps(
    trace: HeadTrace, observed: Observed, subject: Subject, output: Output
) -> Iterator[Step]:
    """Yields steps 7 to 10 (see `walkthrough.walk_through`).

    Args:
        trace: the head.
        observed: what the model computed.
        subject: what is looked at.
        output: what makes logits.
    """
    yield _matrix_form(trace, observed, subject)
    yield _concatenation(trace, observed, subject)
    yield _residual(trace, observed, subject.row)
    if output.pooled is None:
        yield _word(observed, subject, output)
    else:
        yield _label(observed, subject, output, output.pooled)


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


def _label(observed: Observed, subject: Subject, output: Output, pool: Pooled) -> Step:
    """Step 10 of a classifier: the label of the whole text or image."""
    n_states = len(observed.states)
    pooled = pool.of(observed.states)
    pooler, compared, name, vectors = output.pooler, pooled, "p", {"p": pooled}
    formulas = [pool.formula(n_states)]
    if pooler is not None:
        compared, name = pooler.of(pooled), "t"
        vectors["t"] = compared
        formulas.append(f"t = {pooler.name}(W·p + b)")
    logits, labels = output.logits(compared), subject.output_labels
    exponentials, probabilities = _softmax(logits)
    ranked = logits.sort(descending=True, stable=True).indices.tolist()
    chosen = labels.index(subject.sentence.target)
    return Step(
        number=10,
        name="label",
        title="From all last hidden states to a label",
        formulas=(
            *formulas,
            f"l = {name}·Eᵀ" + ("" if output.bias is None else " + b"),
            "probability = softmax(l)",
        ),
        says="The h are what the remaining layers make of the "
        f"{'patches' if pool.config.reads_images else 'tokens'}, taken from the model; p is "
        f"{pool.says(n_states)}. Each of the {len(labels)} labels has a row in E. The label here "
        f"is {labels[chosen]}, p = {probabilities[chosen].item():.4f}. "
        f"Σ e is {exponentials.sum().item():.4f}.",
        tables=(
            Table("states", "h, a row a token", subject.keys, observed.states, is_detail=True),
            Table(
                "pooled", ", ".join(vectors), tuple(vectors), torch.stack(list(vectors.values()))
            ),
            Table(
                "words",
                "labels",
                tuple(labels[i] for i in ranked),
                torch.stack((logits, exponentials, probabilities), dim=-1)[ranked],
                columns=("logit", "e^(l−max)", "probability"),
                share_column=2,
                marked_row=ranked.index(chosen),
            ),
        ),
        checks=(
            check("pooled", compared, observed.hidden[0]),
            *_word_checks(logits, probabilities, observed.logits[0], "labels"),
        ),
    )


def _word(observed: Observed, subject: Subject, output: Output) -> Step:
    """Step 10: the word that the decoder writes, at this position or, of the encoder, the last."""
    sentence, is_source = subject.sentence, subject.head.kind == "enc"
    position = len(sentence.input_pieces) - 1 if is_source else subject.row
    chosen = sentence.captured.target_ids[position]
    logits = output.logits(observed.hidden[position])
    exponentials, probabilities = _softmax(logits)
    ranked = logits.sort(descending=True, stable=True).indices.tolist()
    shown = ranked[:CANDIDATES]
    if chosen not in shown:
        shown.append(chosen)
    labels = subject.output_labels
    which = "the last decoder position" if is_source else f"decoder position {position}"
    says = (
        f"h is what the remaining layers make of {which}, which has read "
        f"{sentence.input_pieces[position]}; it is taken from the model. Each of the "
        f"{len(logits):,} words has a row in E. The word here is {labels[chosen]}: number "
        f"{ranked.index(chosen) + 1} by probability, p = {probabilities[chosen].item():.4f}. "
        f"Σ e is {exponentials.sum().item():.4f}."
    )
    return Step(
        number=10,
        name="word",
        title="From the last hidden state to a word",
        formulas=("l = h·Eᵀ" + ("" if output.bias is None else " + b"), "p = softmax(l)"),
        says=says,
        tables=(
            Table("h", "h", ("h",), observed.hidden[position][None]),
            Table(
                "words",
                "most probable words",
                tuple(labels[i] for i in shown),
                torch.stack((logits, exponentials, probabilities), dim=-1)[shown],
                columns=("logit", "e^(l−max)", "probability"),
                share_column=2,
                marked_row=shown.index(chosen),
            ),
        ),
        checks=_word_checks(logits, probabilities, observed.logits[position], "words"),
    )


def _softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Computes e^(l − max) and the probabilities of logits (V)."""
    exponentials = torch.exp(logits - logits.max())
    return exponentials, exponentials / exponentials.sum()


def _word_checks(
    logits: Tensor, probabilities: Tensor, models: Tensor, what: str
) -> tuple[Check, ...]:
    models_own = torch.softmax(models, dim=-1)
    return (
        check(f"logits of all {what}", logits, models),
        check("probabilities", probabilities, models_own),
    )
