"""Reads `metrics.jsonl` as points."""

import json
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from tformer_cli.curves.metrics import METRICS, MetricName, XName
from tformer_cli.files.regular_file import read_run_log

METRICS_FILE = "metrics.jsonl"
Point = tuple[float, float]
Entry = dict[str, Any]
_KEYS = {XName.time: "seconds", XName.tokens: "tokens", XName.epochs: "epoch"}


@dataclass(frozen=True, kw_only=True)
class RunMetrics:
    """Metrics that a run has written, each kind in the order of its steps."""

    path: Path
    """The run directory."""
    reports: list[Entry] = field(default_factory=list)
    """Reports of training."""
    validations: list[Entry] = field(default_factory=list)
    """Validations of the weights as they were at that step."""
    averages: list[Entry] = field(default_factory=list)
    """Validations of averaged weights: the end of the run."""

    def points(self, name: MetricName, x: XName, *, averaged: bool = False) -> list[Point]:
        """Returns the points (x, value) of a metric; values that are not finite are omitted.

        Args:
            name: the metric.
            x: the horizontal axis.
            averaged: whether to give the averaged weights' value instead of the run's course.
        """
        metric = METRICS[name]
        if metric.kind == "report":
            entries = [] if averaged else self.reports
            values = [(entry["step"], entry.get(metric.key)) for entry in entries]
        else:
            entries = self.averages if averaged else self.validations
            values = [(entry["step"], entry["scores"].get(metric.key)) for entry in entries]
        numbers = [(step, value) for step, value in values if _is_finite(value)]
        return [(self._place(step, x), value) for step, value in numbers]

    def _place(self, step: float, x: XName) -> float:
        """Position of a step along x: as reported, or between the reports beside it."""
        if x == XName.step:
            return step
        found = ((entry["step"], entry.get(_KEYS[x])) for entry in self.reports)
        known = [(number, value) for number, value in found if _is_finite(value)]
        return _between([(0.0, 0.0), *known], step)


def read_run(path: Path) -> RunMetrics:
    """Reads the metrics that a run has written so far.

    A last line that is still being written is omitted. Of several entries of one step, as a
    resumed run may leave them, the last counts.

    Args:
        path: the run directory.

    Raises:
        DataError: if the directory is missing or not of a run, or its file is damaged.
    """
    absent = "name a run directory (a model directory alone has no curves)"
    entries: dict[str, dict[float, Entry]] = {"report": {}, "validation": {}, "average": {}}
    for entry in read_run_log(path, METRICS_FILE, absent, _entry):
        # By step: a run resumed from a checkpoint repeats the steps after it
        if _kind(entry) in entries:
            entries[_kind(entry)][entry["step"]] = entry
    in_order = {kind: [found[step] for step in sorted(found)] for kind, found in entries.items()}
    return RunMetrics(
        path=path,
        reports=in_order["report"],
        validations=in_order["validation"],
        averages=in_order["average"],
    )


def _entry(line: bytes) -> Entry | None:
    """One entry of the file; None for another line."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not _is_finite(entry.get("step")):
        return None
    if entry.get("kind") == "validation" and not isinstance(entry.get("scores"), dict):
        return None
    return entry


def _kind(entry: Entry) -> str:
    is_average = entry.get("kind") == "validation" and entry.get("weights") == "average"
    return "average" if is_average else str(entry.get("kind"))


def _is_finite(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < math.inf


def _between(known: Sequence[Point], step: float) -> float:
    """Reads a value off the line through known points, on beyond its end."""
    if len(known) < 2:
        return known[0][1]
    place = min(max(bisect_left([point[0] for point in known], step), 1), len(known) - 1)
    (left, low), (right, high) = known[place - 1], known[place]
    return low + (high - low) * (step - left) / (right - left) if right > left else high
