"""A chart: panels of curves, a curve a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.curves.metrics import DEFAULT_METRICS, METRICS, Metric, MetricName, XName
from tformer_cli.curves.read import Point, RunMetrics
from tformer_cli.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric of a run."""

    run: int
    """Index of the chart's run."""
    points: tuple[Point, ...]
    """Its course."""
    average: Point | None = None
    """The value of the averaged weights at the end."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A metric of all runs that have it."""

    name: MetricName
    """The metric."""
    curves: tuple[Curve, ...]
    """At least one."""

    @property
    def metric(self) -> Metric:
        """The metric."""
        return METRICS[self.name]

    @property
    def points(self) -> list[Point]:
        """All points that are drawn."""
        averages = [curve.average for curve in self.curves if curve.average is not None]
        return [point for curve in self.curves for point in curve.points] + averages


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Some panels over the same x."""

    runs: tuple[str, ...]
    """Names of the runs."""
    x: XName
    """Horizontal axis of the curves; time is in seconds."""
    panels: tuple[Panel, ...]
    """At least one."""

    @property
    def has_averages(self) -> bool:
        """True if a value of averaged weights is drawn."""
        return any(c.average is not None for panel in self.panels for c in panel.curves)


def make_chart(runs: Sequence[RunMetrics], x: XName, names: Sequence[MetricName] = ()) -> Chart:
    """Collects the curves of some runs.

    Args:
        runs: at least one.
        x: the horizontal axis.
        names: the metrics; none: the usual ones, as far as the runs have them.

    Raises:
        DataError: if no run has a metric that was asked for, or the runs have nothing yet.
    """
    wanted = tuple(dict.fromkeys(names)) or DEFAULT_METRICS
    panels = [_panel(runs, x, name) for name in wanted]
    paths = ", ".join(str(run.path) for run in runs)
    for panel in panels:
        if names and not panel.curves:
            raise DataError(
                f"--metric: no run has {panel.name} ({paths}); omit it, or wait for the "
                f"first {panel.metric.kind}"
            )
    shown = tuple(panel for panel in panels if panel.curves)
    if not shown:
        raise DataError(f"{paths}: nothing to draw yet; wait for the first report")
    return Chart(runs=_labels([run.path for run in runs]), x=x, panels=shown)


def _panel(runs: Sequence[RunMetrics], x: XName, name: MetricName) -> Panel:
    curves = []
    for number, run in enumerate(runs):
        points = tuple(run.points(name, x))
        averages = run.points(name, x, averaged=True)
        if points:
            average = averages[-1] if averages else None
            curves.append(Curve(run=number, points=points, average=average))
    return Panel(name=name, curves=tuple(curves))


def _labels(paths: Sequence[Path]) -> tuple[str, ...]:
    """The last part of each path, or all of it where two are alike."""
    names = [path.resolve().name for path in paths]
    labels = names if len(set(names)) == len(names) else [str(path) for path in paths]
    # They go into XML, tables and terminals, and must steer none of these.
    return tuple(
        "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in label)
        for label in labels
    )
