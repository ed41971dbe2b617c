"""Systems of several runs that differ in their seed: means, deviations and tests between them.

- The score of a system is the mean over its runs. Two things about it are chance: the seeds and
  the sentences. The variance of the mean is s² / n of the n runs (s with n - 1), plus the variance
  over resampled sentences (Koehn 2004), the same ones for all systems. Its interval is
  ± √(t² s² / n + t_v² v), the two half-widths added as squares, t and t_v with n - 1 and N - 1
  degrees of freedom (Howe 1974). So it is never narrower than over only the seeds, which the one
  of Satterthwaite's degrees is; that holds the mean in 92 % of cases with three seeds, 87 % with
  two, where sentences add little.
- Two systems are compared by Welch's t-test (Welch 1947) with the sentences as a third source of
  variance: t = change / √(s_A² / n_A + s_B² / n_B + v), v the variance of the change over resampled
  sentences, with the degrees of freedom of Satterthwaite (1946). Readers and cases of radiology
  are tested alike (Obuchowski & Rockette 1995).
- Runs of two systems are no pairs, though their seeds are alike: other shapes draw other weights.
- The Multi-Bootstrap (Sellam et al. 2022) has the same two sources. It needs tens of seeds: by
  drawing three of three it calls one in six pairs of equal systems different; see the tests.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from tformer_cli.metrics.scores import hint_of
from tformer_cli.metrics.significance import (
    MeasuredMetric,
    PairedDifference,
    TestedMetric,
    TestedScore,
    TestSettings,
    paired_test,
)

Lines = tuple[str, ...]
TEST = "welch-over-seeds-and-sentences"
CONFIDENCE = 0.95
SINGLE = "a single run says nothing about its other seeds; train several"


@dataclass(frozen=True, kw_only=True)
class SeedScore(TestedScore):
    """The score of a system of one run or several."""

    values: tuple[float, ...]
    """Scores of the runs."""
    deviation: float | None
    """Standard deviation of the runs (n - 1); None: there is one run."""
    degrees: float | None = None
    """Degrees of freedom of the test; None: there is none, or it is that of two single runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedDifference(PairedDifference):
    """The mean score of several runs and its change from the baseline's."""

    values: tuple[float, ...]
    deviation: float | None
    untested: str = ""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Scores of the runs of one system on one text."""

    values: Sequence[float]
    drawn: NDArray[np.float64] | None = None
    """(R) the mean score of the runs on each of R draws of sentences; None: not known."""
    n_sentences: int = 0

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean, or the change of one, with its uncertainty over seeds and sentences."""

    value: float
    interval: float
    """Half the width of the 95 % interval."""
    p_value: float | None
    """The p of a change; None: see `untested`."""
    degrees: float | None
    untested: str = ""


def estimate(sample: Sample, baseline: Sample | None = None) -> Estimate:
    """Estimates a system's mean score; with a baseline, its change from that."""
    samples = [sample] if baseline is None else [sample, baseline]
    value, drawn = sample.mean, sample.drawn
    if baseline is not None:
        value -= baseline.mean
        drawn = None if drawn is None or baseline.drawn is None else drawn - baseline.drawn
    seeds = [(s.deviation**2 / len(s.values), len(s.values) - 1) for s in samples if s.deviation]
    sentences = 0.0 if drawn is None else float(np.var(drawn, ddof=1))
    # variances with their degrees of freedom
    parts = [part for part in (*seeds, (sentences, sample.n_sentences - 1)) if part[0] > 0.0]
    total = sum(variance for variance, _ in parts)
    untested = ""
    if not math.isfinite(value + total):
        untested = "a score is not a number"
    elif any(len(s.values) == 1 for s in samples):
        untested = SINGLE if baseline is not None else ""
    elif not total:
        untested = "no run and no resample differs"
    if not parts or not math.isfinite(total):
        return Estimate(value=value, interval=0.0, p_value=None, degrees=None, untested=untested)
    degrees = total**2 / sum(variance**2 / max(1, own) for variance, own in parts)
    error = math.sqrt(total)
    if baseline is None:
        interval = math.hypot(*(critical_t(max(1, own)) * variance**0.5 for variance, own in parts))
    else:  # that of the test, so that it agrees with p
        interval = critical_t(degrees) * error
    return Estimate(
        value=value,
        interval=interval,
        p_value=None if untested or baseline is None else two_sided_p(value / error, degrees),
        degrees=degrees,
        untested=untested,
    )


def two_sided_p(t: float, degrees: float) -> float:
    """Computes the chance of a |t| at least this large under Student's t distribution."""
    # With t = √ν tan θ the density is cos^(ν-1) θ · Γ((ν+1)/2) / (√π Γ(ν/2)): no infinite tail
    start = math.atan(abs(t) / math.sqrt(degrees))
    end = min(math.pi / 2, start + 12.0 / math.sqrt(degrees))  # what follows is below 1e-16
    nodes, weights = _legendre()
    angles = start + (end - start) * (nodes + 1.0) / 2.0
    area = float(weights @ np.cos(angles) ** (degrees - 1.0)) * (end - start) / 2.0
    factor = math.lgamma((degrees + 1.0) / 2.0) - math.lgamma(degrees / 2.0)
    return min(1.0, 2.0 * area * math.exp(factor) / math.sqrt(math.pi))


@cache
def critical_t(degrees: float) -> float:
    """Finds the t whose two-sided p is 5 %, by halving."""
    low, high = 1.0, 20.0  # 12.7 is that of one degree of freedom
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (
            (middle, high) if two_sided_p(middle, degrees) > 1.0 - CONFIDENCE else (low, middle)
        )
    return (low + high) / 2.0


@cache
def _legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.polynomial.legendre.leggauss(200)


def test_systems(
    systems: Sequence[Sequence[Lines]], metrics: Sequence[MeasuredMetric], settings: TestSettings
) -> list[TestedMetric]:
    """Scores systems and tests their differences from the first.

    systems: for each system the translations by each of its runs. Single runs are tested as by
    sacreBLEU.
    """
    if all(len(runs) == 1 for runs in systems):
        return paired_test([runs[0] for runs in systems], metrics, settings)
    return [_test_metric(metric, systems, settings) for metric in metrics]


test_systems.__test__ = False  # type: ignore[attr-defined] # pytest would collect it for its name


def _test_metric(
    metric: MeasuredMetric, systems: Sequence[Sequence[Lines]], settings: TestSettings
) -> TestedMetric:
    samples = [_sample(metric, runs, settings) for runs in systems]
    signature = metric.metric.get_signature()
    signature.update("seed", settings.seed)
    signature.update("bs", settings.n_resamples)
    return TestedMetric(
        name=metric.measure(systems[0][0]).name,
        signature=str(signature),
        less_is_better=metric.less_is_better,
        scores=tuple(
            _seed_score(
                sample, samples[0] if number else None, metric, (runs, systems[0]), settings
            )
            for number, (sample, runs) in enumerate(zip(samples, systems, strict=True))
        ),
        hint=next(
            filter(None, (hint_of(metric.measure(text)) for runs in systems for text in runs)), ""
        ),
    )


def _sample(metric: MeasuredMetric, runs: Sequence[Lines], settings: TestSettings) -> Sample:
    drawn = []
    for lines in runs:
        rows = metric.statistics(lines).astype(np.float32)  # as in sacreBLEU
        # the same draws for all runs of all systems
        generator = np.random.default_rng(settings.seed)
        drawn.append(metric.score_draws(rows, settings.n_resamples, generator))
    return Sample(
        values=tuple(metric.score(lines) for lines in runs),
        drawn=np.mean(drawn, axis=0),
        n_sentences=len(runs[0]),
    )


def _seed_score(
    sample: Sample,
    baseline: Sample | None,
    metric: MeasuredMetric,
    texts: tuple[Sequence[Lines], Sequence[Lines]],
    settings: TestSettings,
) -> SeedScore:
    own = estimate(sample)
    score = SeedScore(
        value=sample.mean,
        mean=sample.mean if sample.drawn is None else float(sample.drawn.mean()),
        interval=own.interval,
        p_value=None,
        values=tuple(sample.values),
        deviation=sample.deviation,
    )
    if baseline is None:
        return score
    if len(sample.values) == len(baseline.values) == 1:  # of two single runs sacreBLEU's own test
        pair = paired_test([texts[1][0], texts[0][0]], [metric], settings)[0].scores[1]
        change = Estimate(
            value=0.0, interval=0.0, p_value=pair.p_value, degrees=None, untested=pair.untested
        )
    else:
        change = estimate(sample, baseline)
    return replace(
        score,
        p_value=change.p_value,
        equals_baseline=False,
        untested=change.untested,
        degrees=change.degrees,
    )
