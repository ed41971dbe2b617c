"""Curves of runs that differ only in their seed: their mean and its band, one standard deviation.

A point is drawn where all runs that have the metric have one, so that a run that is behind the
others does not move the mean.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from tformer_cli.recipe import seed_runs
from tformer_cli.show.curves import MetricName, Point, RunMetrics, XName, read_run


@dataclass(frozen=True, kw_only=True)
class SeedPoint:
    """The mean of several runs at one step."""

    x: float
    value: float
    deviation: float
    """Standard deviation of the runs (n - 1)."""
    least: float
    """The least value of a run."""

    @property
    def band(self) -> tuple[float, float, float]:
        """Returns (x, low, high): the mean less and plus the deviation."""
        low = self.value - self.deviation
        # An axis may be logarithmic
        if low <= 0.0 < self.least:
            low = self.least
        return self.x, low, self.value + self.deviation


@dataclass(frozen=True, kw_only=True)
class SeedMetrics:
    """Metrics of the runs of a `train --seeds`, under their folder's name."""

    path: Path
    runs: tuple[RunMetrics, ...]

    def points(self, name: MetricName, x: XName) -> list[SeedPoint]:
        """Returns the means of a metric at the steps that all runs have."""
        tables = [
            {
                step: point
                for (step, _), point in zip(
                    run.points(name, XName.step), run.points(name, x), strict=True
                )
            }
            for run in self.runs
        ]
        tables = [table for table in tables if table]
        steps = sorted(set.intersection(*map(set, tables))) if tables else []
        return [_mean([table[step] for table in tables]) for step in steps]

    def average(self, name: MetricName, x: XName) -> Point | None:
        """Returns the mean score of the averaged weights; None: no run has one yet."""
        last = [points[-1] for run in self.runs if (points := run.points(name, x, averaged=True))]
        if not last:
            return None
        mean = _mean(last)
        return mean.x, mean.value


def read_system(path: Path) -> RunMetrics | SeedMetrics:
    """Reads the metrics of a run, or of all runs of a `train --seeds` that have begun."""
    runs = [run for run in seed_runs(path) if (run / "metrics.jsonl").is_file()]
    if len(runs) > 1:
        return SeedMetrics(path=path, runs=tuple(map(read_run, runs)))
    return read_run(runs[0] if runs else path)


def _mean(points: list[Point]) -> SeedPoint:
    values = [value for _, value in points]
    return SeedPoint(
        x=fmean(x for x, _ in points),
        value=fmean(values),
        deviation=stdev(values) if len(values) > 1 else 0.0,
        least=min(values),
    )
