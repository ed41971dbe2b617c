"""The last step: from last hidden states to the word, the label or the vector."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.heads.names import Inspected
from tformer_cli.model.encoder_only import (
    POOLERS,
    Classifier,
    EncoderOnly,
    MaskedLanguageModel,
    PositionPredictor,
)
from tformer_cli.model.feed_forward import activation_function
from tformer_cli.plugins.instruments.observed import Observed, exact
from tformer_cli.plugins.instruments.walkthrough.step import Check, Step, Subject, Table, check
from tformer_cli.plugins.instruments.walkthrough.trace import norm_trace
from tformer_cli.plugins.instruments.weighting import Pooled

CANDIDATES = 8  # Words shown with their logits and probabilities


class _Logits(NamedTuple):
    """A vector compared with the rows of all words or labels."""

    logits: Tensor  # (V) l
    exponentials: Tensor  # (V) e^(l − max)
    probabilities: Tensor  # (V) their shares
    formula: str  # Formula of l from a vector that it names

    @classmethod
    def of(cls, model: Inspected, vector: Tensor, name: str) -> "_Logits":
        logits = exact(model.output_matrix) @ vector
        if model.output_bias is not None:
            logits = logits + exact(model.output_bias)
        exponentials = torch.exp(logits - logits.max())
        plus = "" if model.output_bias is None else " + b"
        return cls(logits, exponentials, exponentials / exponentials.sum(), f"l = {name}·Eᵀ{plus}")

    @property
    def ranked(self) -> list[int]:
        ids: list[int] = self.logits.sort(descending=True, stable=True).indices.tolist()
        return ids

    @property
    def total(self) -> str:
        return f"Σ e is {self.exponentials.sum().item():.4f}."

    def says(self, labels: tuple[str, ...], chosen: int, word: str = "word") -> str:
        return (
            f"as the model computed it. Each of the {len(self.logits):,} {word}s has a row in E. "
            f"The {word} here is {labels[chosen]}: number {self.ranked.index(chosen) + 1} by "
            f"probability, p = {self.probabilities[chosen].item():.4f}. {self.total}"
        )

    def table(self, caption: str, labels: tuple[str, ...], shown: list[int], chosen: int) -> Table:
        return Table(
            "words",
            caption,
            tuple(labels[i] for i in shown),
            torch.stack((self.logits, self.exponentials, self.probabilities), dim=-1)[shown],
            columns=("logit", "e^(l−max)", "probability"),
            share_column=2,
            marked_row=shown.index(chosen),
        )

    def words(self, labels: tuple[str, ...], chosen: int, what: str = "words") -> Table:
        shown = self.ranked[:CANDIDATES]
        if chosen not in shown:
            shown.append(chosen)
        return self.table(f"most probable {what}", labels, shown, chosen)

    def checks(self, models: Tensor, what: str) -> tuple[Check, ...]:
        return (
            check(f"logits of all {what}", self.logits, models),
            check("probabilities", self.probabilities, torch.softmax(models, dim=-1)),
        )


def output_step(model: Inspected, observed: Observed, subject: Subject) -> Step:
    if isinstance(model, PositionPredictor):
        return _position_step(model, observed, subject)
    if isinstance(model, EncoderOnly):
        return _pooling_step(model, observed, subject)
    return _word(model, observed, subject)


def _pooling_step(model: EncoderOnly, observed: Observed, subject: Subject) -> Step:
    """The last step of what pools: the vector of the whole text or image, or its label."""
    pool, n_states, kind = Pooled(model.config), len(observed.states), model.config.pooler
    pooled = pool.of(observed.states)
    formulas, vectors = [pool.formula(n_states)], {"m": pooled}
    says = (
        f"The h are the last hidden states of the {pool.unit}, as the model computed them; m is "
        f"{pool.says(n_states)}."
    )
    if not isinstance(model, Classifier):
        if model.config.unit_length:
            vectors["v"] = functional.normalize(pooled, dim=0)
            formulas.append("v = m / |m|")
            says += f" It is divided by its length, {pooled.norm().item():.4f}."
    elif model.pooler is not None and kind != "none":
        vectors["t"] = POOLERS[kind](_product(model.pooler, pooled))
        formulas.append(f"t = {kind}({_formula(model.pooler, 'm')})")
    name, compared = list(vectors.items())[-1]
    word = "vector"
    tables = [
        Table("states", "h, a row per token", subject.keys, observed.states, is_detail=True),
        _vectors("pooled", vectors),
    ]
    checks = [check(word, compared, observed.hidden[0])]
    if isinstance(model, Classifier):
        logits, labels = _Logits.of(model, compared, name), subject.output_labels
        word, chosen = "label", labels.index(subject.sentence.target)
        formulas += [logits.formula, "probability = softmax(l)"]
        says += (
            f" Each of the {len(labels)} labels has a row in E. The label here is {labels[chosen]}"
            f", p = {logits.probabilities[chosen].item():.4f}. {logits.total}"
        )
        tables.append(logits.table("labels", labels, logits.ranked, chosen))
        checks = [check("pooled", compared, observed.hidden[0])]
        checks += logits.checks(observed.logits[0], "labels")
    return Step(
        name=word,
        title=f"From all last hidden states to a {word}",
        formulas=tuple(formulas),
        says=says,
        tables=tuple(tables),
        checks=tuple(checks),
    )


def _vectors(name: str, vectors: dict[str, Tensor]) -> Table:
    return Table(name, ", ".join(vectors), tuple(vectors), torch.stack(list(vectors.values())))


def _position_step(model: PositionPredictor, observed: Observed, subject: Subject) -> Step:
    """The last step of what predicts at positions: a word or label of the query's or a gap's.

    Of a text without gaps it is the word that the model would put in the query's own place.
    """
    sentence = subject.sentence
    chosen_of = {gap.position: gap.id for gap in sentence.gaps}
    position = subject.row
    if chosen_of and position not in chosen_of:
        position = next(iter(chosen_of))
    vectors = {"h": observed.states[position]}
    formulas: list[str] = []
    if isinstance(model, MaskedLanguageModel):
        activated = activation_function(model.config.activation)(
            _product(model.transform, vectors["h"])
        )
        norm = norm_trace(activated, model.transform_norm)
        vectors |= {f"before {norm.name}": activated, "t": norm.after}
        formulas = [f"t = {norm.name}({model.config.activation}({_formula(model.transform, 'h')}))"]
    compared, name = list(vectors.items())[-1][::-1]
    logits, labels = _Logits.of(model, compared, name), subject.output_labels
    chosen = chosen_of.get(position, logits.ranked[0])
    word = "label" if sentence.gives_labels else "word"
    return Step(
        name=word,
        title=f"From the last hidden state to a {word}",
        formulas=(*formulas, logits.formula, "p = softmax(l)"),
        says=f"h is the last hidden state of position {position}, "
        f"{sentence.source_pieces[position]}, {logits.says(labels, chosen, word)}",
        tables=(_vectors("h", vectors), logits.words(labels, chosen, f"{word}s")),
        checks=(
            check(name, compared, observed.hidden[position]),
            *logits.checks(observed.logits[position], f"{word}s"),
        ),
    )


def _product(layer: nn.Linear, vector: Tensor) -> Tensor:
    product = exact(layer.weight) @ vector
    return product if layer.bias is None else product + exact(layer.bias)


def _formula(layer: nn.Linear, name: str) -> str:
    return f"W·{name}" if layer.bias is None else f"W·{name} + b"


def _word(model: Inspected, observed: Observed, subject: Subject) -> Step:
    """The last step: the word that the decoder writes here or, of the encoder, at the end."""
    sentence, is_source = subject.sentence, subject.head.kind == "enc"
    position = len(sentence.input_pieces) - 1 if is_source else subject.row
    chosen = sentence.captured.target_ids[position]
    logits = _Logits.of(model, observed.hidden[position], "h")
    labels = subject.output_labels
    which = "the last decoder position" if is_source else f"decoder position {position}"
    return Step(
        name="word",
        title="From the last hidden state to a word",
        formulas=(logits.formula, "p = softmax(l)"),
        says=f"h is the last hidden state of {which}, which has read "
        f"{sentence.input_pieces[position]}, {logits.says(labels, chosen)}",
        tables=(_vectors("h", {"h": observed.hidden[position]}), logits.words(labels, chosen)),
        checks=logits.checks(observed.logits[position], "words"),
    )
