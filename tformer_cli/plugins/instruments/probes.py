"""Linear probes: what the states of each layer reveal, and how much of it is the probe's own work.

A probe is a softmax regression from states to labels (Alain & Bengio 2017, arXiv 1610.01644). A
large one memorizes any labels, even those that a model knows nothing about. So each comes with a
control task (Hewitt & Liang 2019, arXiv 1909.03368): every type of word has a label drawn once from
the labels' distribution, and the same probe learns those. Selectivity is the accuracy minus that
of the control: the part that such a probe cannot get from the identity of words.

States are whitened by those that are fitted to, in which the regression has nearly round level
lines: some tens of steps of L-BFGS end at its only minimum, the same on every run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tformer_cli.metrics.resampling import PERCENTILES, RESAMPLES, resample_sums

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tformer_cli.heads.names import Kind

L2 = 1e-3
"""Penalty of the weights; deviations are the unit."""
SHRINKAGE = 1e-3
"""Share of the mean variance that is added to all, so that no direction is blown up."""
STEPS = 60
HELD_OUT = 5
"""Every fifth sentence is not fitted to."""
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Labeled:
    """Tokens of some sentences, and the labels that a probe predicts from their states."""

    name: str
    meaning: str
    kind: Kind  # The stack: enc or dec
    rows: Integers  # (N) places of the tokens among all whose states are kept
    sentences: Integers  # (N) numbers of their sentences
    types: Integers  # (N) the words or tokens that share a label of the control
    labels: Integers  # (N)


@dataclass(frozen=True, kw_only=True)
class LayerProbe:
    """A probe of one layer: accuracies in held-out sentences, with 95 % intervals."""

    layer: int  # -1: what enters the first layer, the embeddings
    accuracy: float
    accuracy_interval: tuple[float, float]
    control: float
    selectivity: float
    selectivity_interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Probes of one property in all layers of one stack."""

    name: str
    meaning: str
    kind: str
    n_labels: int
    n_fitted: int  # Tokens
    n_held_out: int
    majority: float  # Accuracy of always giving the label that is most frequent
    layers: tuple[LayerProbe, ...]


def fit_probe(x: Tensor, y: Tensor, n_labels: int) -> tuple[Tensor, Tensor]:
    """Fits weights (K, D) and biases (K) to whitened states (N, D) and labels (N)."""
    weight = torch.zeros(n_labels, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(n_labels, dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=STEPS, history_size=10, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = functional.linear(x, weight, bias)
        total = functional.cross_entropy(logits, y) + L2 / 2 * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    # Inspection computes without gradients, and here they are needed
    with torch.inference_mode(mode=False), torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()


def whiten_states(x: Tensor, fitted: Tensor) -> Tensor:
    """Centers states (N, D) and makes their directions alike, by the states (M, D) fitted to."""
    mean = fitted.mean(dim=0)
    centered = fitted - mean
    covariance = centered.T @ centered / len(fitted)
    added = SHRINKAGE * covariance.diagonal().mean().clamp(min=1e-12)
    root = torch.linalg.cholesky(covariance + added * torch.eye(len(mean), dtype=x.dtype))
    # (N, D) -> (N, D), with root · z = x - mean
    white: Tensor = torch.linalg.solve_triangular(root, (x - mean).T, upper=False)
    return white.T


def control_labels(types: Integers, labels: Integers, seed: int) -> Integers:
    """Draws for each type a label from the distribution of the labels (N)."""
    kinds, inverse = np.unique(types, return_inverse=True)
    drawn: Integers = np.random.default_rng(seed).choice(labels, size=len(kinds))[inverse]
    return drawn


def held_out(sentences: Integers) -> NDArray[np.bool_]:
    """(N) True where a sentence, given by its number, is not fitted to."""
    is_out: NDArray[np.bool_] = sentences % HELD_OUT == HELD_OUT - 1
    return is_out


def probe(states: Sequence[Tensor], task: Labeled, seed: int) -> ProbeResult:
    """Fits a probe to each of L + 1 layers' states (N, D), and one of the control task."""
    out = held_out(task.sentences)
    fitted_labels = task.labels[~out]
    names, counts = np.unique(fitted_labels, return_counts=True)
    control = control_labels(task.types, fitted_labels, seed)
    # Unseen held-out labels are -1, which no probe predicts
    number = {label: n for n, label in enumerate(names.tolist())}
    tasks = [
        np.array([number.get(label, -1) for label in labels.tolist()], np.int64)
        for labels in (task.labels, control)
    ]
    held = task.sentences[out]
    rows = torch.from_numpy(task.rows)
    read, measured = (torch.from_numpy(mask) for mask in (~out, out))
    layers = []
    for layer, all_states in enumerate(states, -1):
        x = all_states[rows].double()
        x = whiten_states(x, x[read])
        hits = []
        for labels in tasks:
            y = torch.from_numpy(labels)
            weight, bias = fit_probe(x[read], y[read], len(names))
            predicted = functional.linear(x[measured], weight, bias).argmax(dim=1)
            hits.append((predicted.numpy() == labels[out]).astype(np.float64))
        right, by_heart = hits
        layers.append(
            LayerProbe(
                layer=layer,
                accuracy=float(right.mean()),
                accuracy_interval=interval(right, held, seed),
                control=float(by_heart.mean()),
                selectivity=float((right - by_heart).mean()),
                selectivity_interval=interval(right - by_heart, held, seed),
            )
        )
    return ProbeResult(
        name=task.name,
        meaning=task.meaning,
        kind=task.kind,
        n_labels=len(names),
        n_fitted=int((~out).sum()),
        n_held_out=len(held),
        majority=float((task.labels[out] == names[counts.argmax()]).mean()),
        layers=tuple(layers),
    )


def interval(values: NDArray[np.float64], sentences: Integers, seed: int) -> tuple[float, float]:
    """The 95 % interval of a mean over tokens (N), by resampling their sentences."""
    _, places = np.unique(sentences, return_inverse=True)
    sums, counts = np.bincount(places, values), np.bincount(places)
    both = np.stack((sums, counts), axis=1)
    drawn = resample_sums(both, RESAMPLES, seed)
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], PERCENTILES).tolist()
    return low, high


MOST_LABELS = 32
LONGEST_WORD, LAST_POSITION = 10, 16
MEANINGS = {
    "position": f"the token's position, among the first {LAST_POSITION}",
    "previous": f"the token before, among the {MOST_LABELS} most frequent",
    "next": f"the token after, among the {MOST_LABELS} most frequent",
    "length": f"number of letters in the token's word, at most {LONGEST_WORD}",
    "label": "the label given to the word",
}


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """A token whose states are kept."""

    sentence: int
    position: int
    id: int
    previous: int  # -1 where there is none
    next: int
    word: str = ""  # Empty of a special token
    label: str = ""  # Label of the word, at one of its tokens; empty: no label here


def tasks_of(kind: Kind, tokens: Sequence[TokenRow], names: Sequence[str]) -> Iterator[Labeled]:
    """Makes the tasks of one stack's tokens; skips a property that they do not have."""
    for name in names:
        labels = dict(_labels(name, tokens))
        rows = np.array([*labels], np.int64)
        sentences = np.array([tokens[n].sentence for n in labels], np.int64)
        out = held_out(sentences)
        fitted = {label for label, held in zip(labels.values(), out, strict=True) if not held}
        if len(fitted) < 2 or not out.any():  # nothing to tell apart, or to measure with
            continue
        words = {word: n for n, word in enumerate(dict.fromkeys(token.word for token in tokens))}
        types = [words[tokens[n].word] if name == "label" else tokens[n].id for n in labels]
        numbers = {label: n for n, label in enumerate(sorted(set(labels.values())))}
        yield Labeled(
            name=name,
            meaning=MEANINGS[name],
            kind=kind,
            rows=rows,
            sentences=sentences,
            types=np.array(types, np.int64),
            labels=np.array([numbers[label] for label in labels.values()], np.int64),
        )


def _labels(name: str, tokens: Sequence[TokenRow]) -> Iterator[tuple[int, int | str]]:
    """Yields the number of each token that has the property, with its label."""
    frequent: set[int] = set()
    if name in ("previous", "next"):
        counts = Counter(getattr(token, name) for token in tokens)
        del counts[-1]
        frequent = {neighbor for neighbor, _ in counts.most_common(MOST_LABELS)}
    for number, token in enumerate(tokens):
        if name == "position" and token.position < LAST_POSITION:
            yield number, token.position
        elif name == "length" and token.word:
            yield number, min(len(token.word), LONGEST_WORD)
        elif frequent and getattr(token, name) in frequent:
            yield number, getattr(token, name)
        elif name == "label" and token.label:
            yield number, token.label
