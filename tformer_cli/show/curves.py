"""Curves of runs, from the values in `metrics.jsonl` of one or several, and their axes."""

import json
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeGuard

from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import read_run_log
from tformer_cli.wording import count_of

METRICS_FILE = "metrics.jsonl"
Point = tuple[float, float]
Entry = dict[str, Any]


class MetricName(StrEnum):
    """Metrics that can be drawn: title, kind of entry and key there, and "zero" or "log"."""

    label: str
    kind: str
    key: str
    axis: str
    """"zero": it begins at 0 whatever the values; "log": it is logarithmic."""

    def __new__(cls, name: str, label: str, kind: str, key: str, axis: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.label, member.kind, member.key, member.axis = label, kind, key, axis
        return member

    loss = "loss", "Training loss (smoothed, nats)", "report", "loss"
    validation_loss = "validation_loss", "Validation loss (nats)", "validation", "loss"
    bleu = "bleu", "BLEU", "validation", "bleu", "zero"
    chrf = "chrf", "chrF", "validation", "chrf", "zero"
    perplexity = "perplexity", "Training perplexity", "report", "perplexity", "log"
    validation_perplexity = (
        "validation_perplexity", "Validation perplexity", "validation", "perplexity", "log"
    )  # fmt: skip
    learning_rate = "learning_rate", "Learning rate", "report", "learning_rate", "zero"
    gradient_norm = "gradient_norm", "Gradient norm", "report", "gradient_norm", "log"
    tokens_per_second = (
        "tokens_per_second", "Target tokens/s", "report", "tokens_per_second", "zero"
    )  # fmt: skip
    hardware_share = (
        "hardware_share", "Share of the hardware's limit", "report", "hardware_share", "zero"
    )  # fmt: skip
    padding = "padding", "Share of padding", "report", "padding", "zero"


DEFAULT_METRICS = (
    MetricName.loss,
    MetricName.learning_rate,
    MetricName.tokens_per_second,
    MetricName.validation_loss,
    MetricName.bleu,
    MetricName.chrf,
)
"""A line of training, a line of validation."""


class XName(StrEnum):
    """Horizontal axis of a curve."""

    step = "step"
    time = "time"
    tokens = "tokens"
    epochs = "epochs"


_KEYS = {XName.time: "seconds", XName.tokens: "tokens", XName.epochs: "epoch"}


@dataclass(frozen=True, kw_only=True)
class RunMetrics:
    """Metrics that a run has written, each kind in the order of its steps."""

    path: Path
    reports: list[Entry] = field(default_factory=list)
    validations: list[Entry] = field(default_factory=list)
    averages: list[Entry] = field(default_factory=list)
    """Validations of averaged weights: the end of the run."""
    rollbacks: list[Entry] = field(default_factory=list)
    """Returns to an earlier checkpoint, in their order."""

    @property
    def why_empty(self) -> str:
        """Explains why a run has no curves."""
        if not self.rollbacks:
            return f"{self.path}: nothing to draw yet; wait for the first report"
        last, times = self.rollbacks[-1], count_of(len(self.rollbacks), "time")
        return (
            f"{self.path}: nothing to draw, as training fails at step {last.get('failed_step')}: "
            f"{last.get('problem')} (rolled back {times}); lower training.learning_rate or raise "
            "training.warmup_steps"
        )

    def points(self, name: MetricName, x: XName, *, averaged: bool = False) -> list[Point]:
        """Returns the points (x, value) of a metric; values that are not finite are omitted."""
        if name.kind == "report":
            entries = [] if averaged else self.reports
            values = [(entry["step"], entry.get(name.key)) for entry in entries]
        else:
            entries = self.averages if averaged else self.validations
            values = [(entry["step"], entry["scores"].get(name.key)) for entry in entries]
        return [(self._place(step, x), value) for step, value in values if _is_finite(value)]

    def _place(self, step: float, x: XName) -> float:
        """Position of a step along x: as reported, or between the nearest reports."""
        if x == XName.step:
            return step
        points = ((entry["step"], entry.get(_KEYS[x])) for entry in self.reports)
        known = [(0.0, 0.0), *((n, value) for n, value in points if _is_finite(value))]
        if len(known) < 2:
            return 0.0
        # a validation after the last report lies on the line through the last two
        place = min(max(bisect_left(known, step, key=lambda point: point[0]), 1), len(known) - 1)
        (left, low), (right, high) = known[place - 1], known[place]
        return low + (high - low) * (step - left) / (right - left) if right > left else high


def read_run(path: Path) -> RunMetrics:
    absent = "name a run directory (a model directory has no curves)"
    entries: dict[str, dict[float, Entry]] = {"report": {}, "validation": {}, "average": {}}
    rollbacks = []
    for entry in read_run_log(path, METRICS_FILE, absent, _entry):
        is_average = entry.get("kind") == "validation" and entry.get("weights") == "average"
        kind = "average" if is_average else str(entry.get("kind"))
        # By step: a run resumed from a checkpoint repeats the steps after it
        if kind in entries:
            entries[kind][entry["step"]] = entry
        elif kind == "rollback":
            rollbacks.append(entry)
    reports, validations, averages = (
        [by_step[step] for step in sorted(by_step)] for by_step in entries.values()
    )
    return RunMetrics(
        path=path,
        reports=reports,
        validations=validations,
        averages=averages,
        rollbacks=rollbacks,
    )


def _entry(line: bytes) -> Entry | None:
    """One entry of the file; None for another line."""
    try:
        # a line of brackets nested too deeply raises RecursionError
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not _is_finite(entry.get("step")):
        return None
    if entry.get("kind") == "validation" and not isinstance(entry.get("scores"), dict):
        return None
    return entry


def _is_finite(value: object) -> TypeGuard[float]:
    # to Python true is an int, to JSON NaN and Infinity are numbers
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < math.inf  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric of a run."""

    run: int
    """Index of the chart's run."""
    points: tuple[Point, ...]
    average: Point | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A metric of all runs that have it: at least one."""

    name: MetricName
    curves: tuple[Curve, ...]

    @property
    def points(self) -> list[Point]:
        averages = [curve.average for curve in self.curves if curve.average is not None]
        return [point for curve in self.curves for point in curve.points] + averages


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels, at least one, over the same x; time is in seconds."""

    runs: tuple[str, ...]
    x: XName
    panels: tuple[Panel, ...]

    @property
    def has_averages(self) -> bool:
        return any(c.average is not None for panel in self.panels for c in panel.curves)


def make_chart(runs: Sequence[RunMetrics], x: XName, names: Sequence[MetricName] = ()) -> Chart:
    """Collects the curves of some runs: the metrics asked for, or the usual ones that they have."""
    if not any(run.reports or run.validations or run.averages for run in runs):
        raise DataError(max(runs, key=lambda run: len(run.rollbacks)).why_empty)
    panels = [_panel(runs, x, name) for name in dict.fromkeys(names) or DEFAULT_METRICS]
    paths = ", ".join(str(run.path) for run in runs)
    for panel in panels:
        if names and not panel.curves:
            raise DataError(
                f"--metric: no run has {panel.name} ({paths}); omit it, or wait for the "
                f"first {panel.name.kind}"
            )
    shown = tuple(panel for panel in panels if panel.curves)
    if not shown:
        raise DataError(f"{paths}: nothing to draw; name one with --metric")
    return Chart(runs=_labels([run.path for run in runs]), x=x, panels=shown)


def _panel(runs: Sequence[RunMetrics], x: XName, name: MetricName) -> Panel:
    curves = []
    for number, run in enumerate(runs):
        if points := tuple(run.points(name, x)):
            averages = run.points(name, x, averaged=True)
            curves.append(
                Curve(run=number, points=points, average=averages[-1] if averages else None)
            )
    return Panel(name=name, curves=tuple(curves))


def _labels(paths: Sequence[Path]) -> tuple[str, ...]:
    """The last part of each path, or all of it where two are alike."""
    # "." and "runs/a/" have no last part
    names = [path.resolve().name for path in paths]
    labels = names if len(set(names)) == len(names) else [str(path) for path in paths]
    # They go into XML, tables and terminals, and must steer none of these.
    return tuple(
        "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in label)
        for label in labels
    )


_ROUND = (1.0, 2.0, 5.0, 10.0)
_TIME_UNITS = ((3 * 3600, 3600.0, "hours"), (180, 60.0, "minutes"), (0, 1.0, "seconds"))
_X_LABELS = {XName.step: "step", XName.tokens: "target tokens", XName.epochs: "epochs"}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis from `low` to `high`, which is above it, with round values as ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    is_logarithmic: bool = False
    """True if equal steps are equal factors."""
    name: str = ""

    def place(self, value: float) -> float:
        """Returns the position of a value: 0 at the beginning, 1 at the end."""
        low, high = self.low, self.high
        if self.is_logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return (value - low) / (high - low)


def x_scale(chart: Chart, n_ticks: int = 7) -> Scale:
    """Makes the axis that all panels share; it begins at 0 unless all is far from it."""
    values = [x for panel in chart.panels for x, _ in panel.points]
    low, high = min(values), max(values)
    # near 0 the distance from it tells something; far from it, it would press the curve flat
    low = low if low > (high - low) else 0.0
    high = high if high > low else low + 1.0
    unit, name = 1.0, _X_LABELS.get(chart.x, "")
    if chart.x == XName.time:
        unit, name = next((unit, name) for least, unit, name in _TIME_UNITS if high >= least)
    ticks = [tick for tick in round_ticks(low / unit, high / unit, n_ticks) if tick * unit <= high]
    if chart.x == XName.step:
        # steps are whole numbers
        ticks = [tick for tick in ticks if tick == int(tick)]
    ticks = [tick for tick in ticks if tick * unit >= low] or [low / unit]
    labels = tuple(write_ticks(ticks))
    scaled = tuple(tick * unit for tick in ticks)
    return Scale(low=low, high=high, ticks=scaled, labels=labels, name=name)


def y_scale(panel: Panel, n_ticks: int = 6) -> Scale:
    """Makes the axis of a panel, from one round value to another."""
    values = [y for _, y in panel.points]
    if panel.name.axis == "log" and min(values) > 0.0:
        return _logarithmic(values)
    low = min(0.0, *values) if panel.name.axis == "zero" else min(values)
    high = max(values)
    largest = max(abs(low), abs(high))
    if high - low <= 1e-12 * largest:  # a flat curve still needs some height
        low, high = (0.0, 1.0) if largest < 1e-300 else (min(0.0, high * 2), max(0.0, high * 2))
    ticks = round_ticks(low, high, n_ticks)
    return Scale(low=ticks[0], high=ticks[-1], ticks=tuple(ticks), labels=tuple(write_ticks(ticks)))


def round_ticks(low: float, high: float, n_ticks: int) -> list[float]:
    """Lists round values from at most `low` to at least `high`, about `n_ticks` of them."""
    rough = (high - low) / max(1, n_ticks - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    # 1e-9: what is equal but for rounding must not cost a whole step
    step = next(factor * power for factor in _ROUND if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _logarithmic(values: Sequence[float]) -> Scale:
    """Makes an axis between two of 1, 2, 5, 10, …; many decades are marked by powers of ten."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    exponents = range(first - 1, last + 2)
    marks = [factor * 10.0**exponent for exponent in exponents for factor in (1.0, 2.0, 5.0)]
    low = max(mark for mark in marks if mark <= min(values) * (1 + 1e-9))
    high = min(mark for mark in marks if mark >= max(values) * (1 - 1e-9) and mark > low)
    ticks = [mark for mark in marks if low <= mark <= high]
    # labels of many decades would overlap
    if len(ticks) > 6:
        ticks = [mark for mark in ticks if math.log10(mark) == round(math.log10(mark))]
    labels = tuple(write_ticks([tick])[0] for tick in ticks)
    return Scale(low=low, high=high, ticks=tuple(ticks), labels=labels, is_logarithmic=True)


def write_ticks(ticks: Sequence[float]) -> list[str]:
    """Writes values in one form, as short as distinguishes them: 0.5, 2,000, 40k, 1.5M, 5e-05."""
    largest = max(map(abs, ticks))
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if largest >= least:
            return [_plain(tick / unit) + (letter if tick else "") for tick in ticks]
    if 0.0 < largest < 1e-3:
        return [f"{tick:.3g}" for tick in ticks]
    n_decimals = max(len(_plain(tick).partition(".")[2]) for tick in ticks)
    return [f"{tick:,.{n_decimals}f}" if tick else "0" for tick in ticks]


def _plain(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def short(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}"
    n_decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:,.{n_decimals}f}"
