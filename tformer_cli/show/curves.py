"""Curves of runs, from the values in `metrics.jsonl` of one or several, and their axes."""

import json
import math
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeGuard

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
