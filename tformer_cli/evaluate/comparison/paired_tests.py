"""Tests of significance and confidence intervals of sacreBLEU, for systems against a baseline.

Paired bootstrap resampling (Koehn 2004) and paired approximate randomization (Riezler & Maxwell
2005), as `sacrebleu --paired-bs` and `--paired-ar` compute them from the same seed.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import cast

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result

from tformer_cli.metrics.choices import SEED, TestName
from tformer_cli.metrics.scores import NO_FOUR_GRAMS


class MeasuredMetric:
    """A metric of sacreBLEU on one set of references."""

    def __init__(self, metric: Metric, references: Sequence[Sequence[str]]) -> None:
        # Private, because a `corpus_score` for every part and every sentence would compute edit
        # distances and n-grams several times. Tests compare each use with the public functions.
        extract = cache(metric._extract_corpus_statistics)
        metric._extract_corpus_statistics = extract  # type: ignore[method-assign]
        self.metric = metric
        """The metric, for `PairedTest`; it wants texts that are tuples."""
        self.references = tuple(map(tuple, references))
        """The references, as the metric has remembered them."""
        self.less_is_better = type(metric).__name__ == "TER"
        self._of_sentence = metric
        if isinstance(metric, BLEU):
            # Most sentences have no 4-gram in common with their reference (Chen & Cherry 2014)
            self._of_sentence = BLEU(effective_order=True)

    def score(self, hypotheses: Sequence[str], chosen: Sequence[int] | None = None) -> float:
        """Computes the score of a text, or of the chosen sentences of it; of none it is 0."""
        rows = self._statistics(hypotheses)
        return self._aggregate(self.metric, rows if chosen is None else rows[list(chosen)])

    def sentence_scores(self, hypotheses: Sequence[str]) -> list[float]:
        """Computes the score of each sentence; of BLEU with its effective order."""
        rows = self._statistics(hypotheses)
        return [self._aggregate(self._of_sentence, row[None]) for row in rows]

    def count_differing(self, hypotheses: Sequence[str], other_hypotheses: Sequence[str]) -> int:
        """Counts the sentences that are not the same to the metric in two texts."""
        differs = self._statistics(hypotheses) != self._statistics(other_hypotheses)
        return int(differs.any(axis=1).sum())

    def hint(self, hypotheses: Sequence[str]) -> str:
        """Returns why a BLEU of 0 says nothing about a text; else ""."""
        # a row ends with the number of the sentence's 4-grams
        is_short = isinstance(self.metric, BLEU) and not self._statistics(hypotheses)[:, -1].any()
        return NO_FOUR_GRAMS if is_short else ""

    def _statistics(self, hypotheses: Sequence[str]) -> np.ndarray:
        return np.asarray(
            self.metric._extract_corpus_statistics(tuple(hypotheses), self.references)
        )

    @staticmethod
    def _aggregate(metric: Metric, rows: np.ndarray) -> float:
        if not len(rows):
            return 0.0
        return float(metric._aggregate_and_compute(rows.tolist()).score)


# Largest p-value that is marked, as by sacreBLEU.
SIGNIFICANT = 0.05
SAMPLES: Mapping[TestName, int] = {
    "paired-bootstrap": 1000,
    "paired-approximate-randomization": 10000,
}
"""sacreBLEU's own numbers of resamples or trials."""
_SEED_VARIABLE = "SACREBLEU_SEED"
_seed_is_set = Lock()


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
    def n_samples(self) -> int:
        return self.samples or SAMPLES[self.name]


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
    systems: Sequence[tuple[str, Sequence[str]]],
    metrics: Sequence[MeasuredMetric],
    settings: TestSettings,
) -> list[TestedMetric]:
    """Scores systems and tests their differences from the first of them."""
    is_bootstrap = settings.name == "paired-bootstrap"
    # randomization by itself has no intervals: sacreBLEU then draws them by bootstrap
    with _sacrebleu_seed(settings.seed):
        test = PairedTest(
            [(name, tuple(texts)) for name, texts in systems],
            {str(number): metric.metric for number, metric in enumerate(metrics)},
            metrics[0].references,
            test_type="bs" if is_bootstrap else "ar",
            n_samples=settings.n_samples,
            n_ar_confidence=-1 if is_bootstrap else SAMPLES["paired-bootstrap"],
        )
        signatures, results = test()
    return [
        TestedMetric(
            name=name,
            signature=str(signatures[name]),
            less_is_better=metric.less_is_better,
            scores=tuple(_scores(cast("list[Result]", results[name]), metric, systems, settings)),
            hint=next(filter(None, (metric.hint(texts) for _, texts in systems)), ""),
        )
        for name, metric in zip(signatures, metrics, strict=True)
    ]


def _scores(
    results: Sequence[Result],
    metric: MeasuredMetric,
    systems: Sequence[tuple[str, Sequence[str]]],
    settings: TestSettings,
) -> Iterator[TestedScore]:
    """Yields the score of each system; where the test says nothing, why, instead of its p-value."""
    first, baseline = results[0], systems[0][1]
    for result, (_, texts) in zip(results, systems, strict=True):
        untested, n_differing = "", metric.count_differing(texts, baseline)
        n_distinct = len({*zip(texts, baseline, *metric.references, strict=True)})
        # c + 1 of n + 1, where c counts the resamples with a larger difference than the texts
        is_smallest = (result.p_value or 1.0) * (settings.n_samples + 1) < 1.5
        if not math.isfinite(sum(score.score + (score.mean or 0.0) for score in (first, result))):
            untested = "a score is not a number"
        elif n_differing == 0:
            untested = "no sentence differs from the baseline"
        elif n_distinct == 1:
            untested = "one distinct sentence is too few for a test"
        elif n_differing == 1 and settings.name == "paired-approximate-randomization":
            # Exchanging it gives the same difference each time, which is never larger
            untested = "only one sentence differs from the baseline"
        elif is_smallest and result.score == first.score:
            untested = "the change is 0 in every resample"
        is_first = result is first
        yield TestedScore(
            value=float(result.score),
            mean=float(result.mean or 0.0),
            interval=float(result.ci or 0.0),
            p_value=None if untested or result.p_value is None else float(result.p_value),
            equals_baseline=None if is_first else n_differing == 0,
            untested="" if is_first else untested,
        )


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Sets the seed in the environment, where sacreBLEU reads it, and restores it."""
    # one at a time: the environment belongs to all threads
    with _seed_is_set:
        before = os.environ.get(_SEED_VARIABLE)
        os.environ[_SEED_VARIABLE] = str(seed)
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SEED_VARIABLE]
            else:
                os.environ[_SEED_VARIABLE] = before
