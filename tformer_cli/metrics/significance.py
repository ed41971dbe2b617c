"""Tests of a difference between two systems by paired resampling.

Both systems are scored on the same draws of sentences; see `resampling`. The p-value of a
`PairedDifference` is the share of draws on which the system that is better on the whole text is
not better, the text itself counted as one draw: (1 + #) / (1 + draws) (Koehn 2004, "Statistical
Significance Tests for Machine Translation Evaluation"). `paired_test` computes sacreBLEU's numbers
from the same draws, those of `sacrebleu --paired-bs` and, by approximate randomization (Riezler &
Maxwell 2005), of `--paired-ar`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric, Score
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import estimate_ci

from tformer_cli.metrics.choices import SEED, TestName
from tformer_cli.metrics.resampling import (
    PERCENTILES,
    RESAMPLES,
    Statistics,
    draws,
    resample,
    resample_sums,
)
from tformer_cli.metrics.scores import hint_of, make_metric


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Two systems on the same sentences."""

    name: str
    """Name of the measure, such as "loss" or "BLEU"."""
    baseline: float
    value: float
    low: float
    """95 % of the draws have a difference of at least this …"""
    high: float
    """… and at most this."""
    p_value: float
    """Chance of such a sign if there were no difference; 1 where there is none, and of a single
    sentence."""

    @property
    def difference(self) -> float:
        return self.value - self.baseline

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high


def compare_losses(
    baseline: Statistics,
    others: Statistics,
    n_tokens: NDArray[np.int64],
    *,
    n_resamples: int = RESAMPLES,
    seed: int = 1,
    name: str = "loss",
) -> list[PairedDifference]:
    """Compares losses per token, or other sums that are shared by tokens.

    baseline: (N) each sentence's loss, summed over its n_tokens; others: (R, N) of R systems.
    """
    # one product a draw gives tokens and losses of all systems
    sums = np.column_stack((n_tokens, baseline, others.T))
    drawn = resample_sums(sums, n_resamples, seed)
    means, whole = drawn[:, 1:] / drawn[:, :1], sums.sum(axis=0)
    observed = whole[1:] / whole[0]
    return [
        _difference(name, observed[0], observed[i], means[:, i] - means[:, 0], len(sums))
        for i in range(1, len(observed))
    ]


LABEL_MEASURES = ("accuracy", "macro F1")


def compare_labels(
    baseline: Sequence[str],
    others: Sequence[str],
    right: Sequence[str],
    *,
    n_resamples: int = RESAMPLES,
    seed: int = 1,
) -> list[PairedDifference]:
    drawn = label_draws((baseline, others), right, n_resamples, seed)
    return [
        _difference(
            name,
            drawn[0, 0, place],
            drawn[0, 1, place],
            drawn[1:, 1, place] - drawn[1:, 0, place],
            len(right),
        )
        for place, name in enumerate(LABEL_MEASURES)
    ]


def label_draws(
    labelings: Sequence[Sequence[str]], right: Sequence[str], n_resamples: int, seed: int
) -> Statistics:
    """Computes (1 + R, K, 2): accuracy and macro F1 of K labelings; of the whole text, of draws."""
    names = sorted({*right}.union(*labelings))
    numbers = {name: number for number, name in enumerate(names)}
    answers, *encoded = (
        np.array([numbers[label] for label in labels]) for labels in (right, *labelings)
    )
    # every example once: the scores themselves, before those of the draws
    whole = np.ones(len(right), dtype=np.int64)
    return np.array(
        [
            [_label_scores(counts, labels, answers, len(numbers)) for labels in encoded]
            for counts in (whole, *draws(len(right), n_resamples, seed))
        ]
    )


def _label_scores(
    counts: NDArray[np.int64], labels: NDArray[np.int64], right: NDArray[np.int64], n_labels: int
) -> tuple[float, float]:
    """Accuracy and macro F1 of (N) examples, each there `counts` times; see `labels.macro_f1`."""
    hit = labels == right
    n_right = np.bincount(right[hit], counts[hit], n_labels)
    total = np.bincount(labels, counts, n_labels) + np.bincount(right, counts, n_labels)
    f1 = 2.0 * n_right[total > 0.0] / total[total > 0.0]
    return 100.0 * float(n_right.sum() / counts.sum()), 100.0 * float(f1.mean())


def _difference(
    name: str, baseline: float, value: float, drawn: Statistics, n_sentences: int
) -> PairedDifference:
    # All draws of one sentence are that sentence, which tells nothing of others
    sign = np.sign(value - baseline) if n_sentences > 1 else 0.0
    # not "<=": an undefined score speaks against a difference, too
    n_against = int((~(drawn * sign > 0.0)).sum()) if sign else len(drawn)
    low, high = np.percentile(drawn, PERCENTILES)
    # the text itself counts as one draw, so that p is never 0
    p_value = (1 + n_against) / (1 + len(drawn))
    return PairedDifference(name, float(baseline), float(value), float(low), float(high), p_value)


class MeasuredMetric:
    """A metric of sacreBLEU on one set of references; it keeps each text that it has measured."""

    def __init__(self, metric: Metric, references: Sequence[Sequence[str]]) -> None:
        self.metric = metric
        self.references = tuple(map(tuple, references))
        self.less_is_better = type(metric).__name__ == "TER"
        self._of_sentence = metric
        if isinstance(metric, BLEU):
            # Most sentences have no 4-gram in common with their reference (Chen & Cherry 2014)
            self._of_sentence = BLEU(effective_order=True)
        # Private, because a `corpus_score` for every part, draw and sentence would compute edit
        # distances and n-grams a thousand times. Tests compare each use with the public functions.
        extract = metric._extract_corpus_statistics
        self._measured: Callable[[tuple[str, ...]], NDArray[Any]] = cache(
            lambda texts: np.asarray(extract(texts, self.references))
        )

    def statistics(self, hypotheses: Sequence[str]) -> NDArray[Any]:
        """(N, K) numbers of each sentence, such as its n-grams, whose sums make the score."""
        return self._measured(tuple(hypotheses))

    def measure(self, hypotheses: Sequence[str]) -> Score:
        """Computes sacreBLEU's score of a text, which has a name."""
        score: Score = self.metric._aggregate_and_compute(self.statistics(hypotheses).tolist())
        return score

    def score(self, hypotheses: Sequence[str], chosen: Sequence[int] | None = None) -> float:
        """Computes the score of a text, or of the chosen sentences of it; of none it is 0."""
        rows = self.statistics(hypotheses)
        return self._aggregate(self.metric, rows if chosen is None else rows[list(chosen)])

    def score_sums(self, sums: Iterable[Any]) -> Statistics:
        """Computes the scores of texts from the sums (K) of their sentences' statistics."""
        return np.array([self.metric._compute_score_from_stats(row).score for row in sums])

    def score_draws(
        self, rows: NDArray[Any], n_resamples: int, generator: np.random.Generator
    ) -> Statistics:
        """Computes the scores of draws of sentences, from the statistics (N, K) of all."""
        chosen = resample(len(rows), n_resamples, generator)
        return self.score_sums(rows[places].sum(axis=0) for places in chosen)

    def sentence_scores(self, hypotheses: Sequence[str]) -> list[float]:
        """Computes the score of each sentence; of BLEU with its effective order."""
        rows = self.statistics(hypotheses)
        return [self._aggregate(self._of_sentence, row[None]) for row in rows]

    @staticmethod
    def _aggregate(metric: Metric, rows: np.ndarray) -> float:
        return float(metric._aggregate_and_compute(rows.tolist()).score) if len(rows) else 0.0


class PairedScores:
    """Compares translations with those of a baseline by BLEU and chrF."""

    def __init__(
        self,
        baseline: Sequence[str],
        references: Sequence[Sequence[str]],
        *,
        n_resamples: int = RESAMPLES,
        seed: int = 1,
    ) -> None:
        self._references = references
        self._n_resamples, self._seed = n_resamples, seed
        self.signatures: dict[str, str] = {}
        self._baseline = self._scores(baseline)

    @property
    def baseline(self) -> dict[str, float]:
        return {name: value for name, (value, _) in self._baseline.items()}

    def compare(self, hypotheses: Sequence[str]) -> list[PairedDifference]:
        """Compares other translations of the same sentences with the baseline."""
        scores, n_sentences = self._scores(hypotheses), len(hypotheses)
        return [
            _difference(name, before, scores[name][0], scores[name][1] - drawn, n_sentences)
            for name, (before, drawn) in self._baseline.items()
        ]

    def _scores(self, hypotheses: Sequence[str]) -> dict[str, tuple[float, Statistics]]:
        """The score of the text and those of its draws, by the name of the metric."""
        scores = {}
        for option in ("bleu", "chrf"):
            # a new metric each time: it would keep every text that it has measured
            metric = MeasuredMetric(make_metric(option), self._references)
            whole, generator = metric.measure(hypotheses), np.random.default_rng(self._seed)
            rows = metric.statistics(hypotheses)
            drawn = metric.score_draws(rows, self._n_resamples, generator)
            scores[whole.name] = float(whole.score), drawn
            self.signatures[whole.name] = str(metric.metric.get_signature())
        return scores


SIGNIFICANT = 0.05
"""Largest p-value that is marked, as by sacreBLEU."""
SAMPLES: Mapping[TestName, int] = {
    "paired-bootstrap": RESAMPLES,
    "paired-approximate-randomization": 10000,
}
"""sacreBLEU's own numbers of resamples or trials."""


def p_text(p_value: float) -> str:
    """Writes a p with four digits, and a smaller one as such, since no test gives 0."""
    return f"{p_value:.4f}" if p_value >= 0.0001 else "<0.0001"


@dataclass(frozen=True, kw_only=True)
class TestSettings:
    """A test of significance."""

    __test__ = False  # pytest would collect it for its name

    name: TestName = "paired-bootstrap"
    samples: int = 0
    """Resamples or trials; 0: sacreBLEU's own number."""
    seed: int = SEED

    def __post_init__(self) -> None:
        if self.samples < 0:
            raise ValueError(f"samples: must be at least 0, but is {self.samples}")
        if self.seed < 1:  # sacreBLEU takes a seed of 0 to mean any
            raise ValueError(f"seed: must be at least 1, but is {self.seed}")

    @property
    def is_bootstrap(self) -> bool:
        return self.name == "paired-bootstrap"

    @property
    def n_samples(self) -> int:
        return self.samples or SAMPLES[self.name]

    @property
    def n_resamples(self) -> int:
        """Resamples of the intervals."""
        return self.n_samples if self.is_bootstrap else RESAMPLES


@dataclass(frozen=True, kw_only=True)
class Wins:
    """Sentences on which a system is better or worse than the baseline."""

    better: int
    worse: int
    equal: int


@dataclass(frozen=True, kw_only=True)
class TestedScore:
    """The score of a system, its uncertainty, and its difference from the baseline."""

    __test__ = False

    value: float
    mean: float
    """Mean of the scores of resampled texts."""
    interval: float
    """Half the width of its 95 % interval."""
    p_value: float | None
    """Probability of a difference at least this large if the systems were equally good; None: the
    baseline, or see `untested`."""
    equals_baseline: bool | None = None
    """True if each sentence is the same to the metric as the baseline's. None: the baseline, or a
    report of an earlier version, which does not say."""
    untested: str = ""
    """Reason why the test says nothing about the difference, such as a change of 0 in every
    resample: sacreBLEU then gives the smallest p-value. Empty: there is a p-value, or the
    baseline."""
    wins: Wins | None = None
    """Against the baseline by sentence; None: it is the baseline, or sentences are not compared."""

    @property
    def is_significant(self) -> bool:
        """True if the difference from the baseline is more than chance."""
        return self.p_value is not None and self.p_value <= SIGNIFICANT and not self.equals_baseline


@dataclass(frozen=True, kw_only=True)
class TestedMetric:
    """A metric's scores of several systems."""

    __test__ = False

    name: str
    """Name of the metric, such as "BLEU" or "chrF2"."""
    signature: str
    less_is_better: bool
    scores: tuple[TestedScore, ...]
    """One per system, the baseline first."""
    hint: str = ""
    """Reason why a score of 0 says nothing about a system; empty: there is none."""


def paired_test(
    texts: Sequence[Sequence[str]], metrics: Sequence[MeasuredMetric], settings: TestSettings
) -> list[TestedMetric]:
    """Scores systems and tests their differences from the first of them."""
    tested = []
    for metric in metrics:
        name, signature = metric.measure(texts[0]).name, metric.metric.get_signature()
        signature.update("seed", settings.seed)
        # randomization by itself has no intervals: they come from a bootstrap
        signature.update("bs", settings.n_resamples)
        if not settings.is_bootstrap:
            signature.update("ar", settings.n_samples)
        tested.append(
            TestedMetric(
                name=name,
                signature=str(signature),
                less_is_better=metric.less_is_better,
                scores=tuple(_test_scores(metric, texts, settings)),
                hint=next(filter(None, map(hint_of, map(metric.measure, texts))), ""),
            )
        )
    return tested


def _test_scores(
    metric: MeasuredMetric, texts: Sequence[Sequence[str]], settings: TestSettings
) -> Iterator[TestedScore]:
    """Yields the score of each system; where the test says nothing, why, instead of its p-value."""
    for number, text in enumerate(texts):
        generator = np.random.default_rng(settings.seed)
        value, rows = metric.score(text), metric.statistics(text)
        if number and not settings.is_bootstrap:  # these come first, as in sacreBLEU
            swaps = generator.integers(2, size=(settings.n_samples, len(rows)), dtype=bool)
        # 32 bits, as in sacreBLEU
        drawn = metric.score_draws(rows.astype(np.float32), settings.n_resamples, generator)
        mean, interval = map(float, estimate_ci(drawn))
        score = TestedScore(value=value, mean=mean, interval=interval, p_value=None)
        if not number:
            baseline, baseline_rows, baseline_drawn = score, rows, drawn
            yield score
            continue
        if settings.is_bootstrap:
            changes = np.abs(drawn - baseline_drawn)
            changes = changes - changes.mean()
        else:
            sides = (baseline_rows, rows), (rows, baseline_rows)
            ours, theirs = (metric.score_sums(swaps @ a + ~swaps @ b) for a, b in sides)
            changes = np.abs(ours - theirs)
        n_larger = int((changes > abs(baseline.value - value)).sum())
        n_differing = int((rows != baseline_rows).any(axis=1).sum())
        untested = ""
        if not math.isfinite(value + mean + baseline.value + baseline.mean):
            untested = "a score is not a number"
        elif n_differing == 0:
            untested = "no sentence differs from the baseline"
        elif len({*zip(text, texts[0], *metric.references, strict=True)}) == 1:
            untested = "one distinct sentence is too few for a test"
        elif n_differing == 1 and not settings.is_bootstrap:
            # Exchanging it gives the same difference each time, which is never larger
            untested = "only one sentence differs from the baseline"
        elif n_larger == 0 and value == baseline.value:
            untested = "the change is 0 in every resample"
        yield replace(
            score,
            p_value=None if untested else (1 + n_larger) / (1 + len(changes)),
            equals_baseline=n_differing == 0,
            untested=untested,
        )
