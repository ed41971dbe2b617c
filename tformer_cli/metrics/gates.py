"""Limits of scores: a command fails where a score is worse than its limit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tformer_cli.errors import TformerError, UsageError
from tformer_cli.wording import did_you_mean, suggestions

UNDER, OVER = "--fail-under", "--fail-over"
HIGHER = frozenset({"bleu", "chrf", "accuracy", "macro_f1"})
"""Measures whose higher values are better, at most 100; of all others lower ones are."""
TO_100 = HIGHER | {"ter"}
"""Measures that programs often write from 0 to 1, but that go to 100 here."""
WITHOUT_MODEL = ("bleu", "chrf", "ter")
MEASURES: Mapping[str, Sequence[str]] = {
    "translations": (*WITHOUT_MODEL, "loss", "perplexity"),
    "labels": ("accuracy", "macro_f1", "loss"),
    "text": ("loss", "perplexity", "bits_per_byte"),
    "gaps": ("loss", "perplexity", "accuracy"),
}
"""Measures in the JSON of `evaluate`, by what a kind of model is measured by."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The worst value of a measure that passes."""

    option: str
    measure: str
    limit: float

    @property
    def doubt(self) -> str:
        """Questions a limit that looks like a share; empty if it does not."""
        if self.measure not in TO_100 or self.limit > 1:
            return ""
        meant = did_you_mean([f"{self.measure}={100 * self.limit:g}"] if self.limit else [])
        scale = f"{self.measure} goes from 0 to 100"
        return f"{self.option} {self.measure}={self.limit:g}: {scale}{meant and '; '}{meant}"

    def failure(self, scores: Mapping[str, Any]) -> str:
        """Compares a score with the limit; empty if it passes."""
        score = scores[self.measure]
        value: float = score["score"] if isinstance(score, Mapping) else score
        sign = "<" if self.option == UNDER else ">"
        # Written so that a value which is not a number fails
        if value >= self.limit if self.option == UNDER else value <= self.limit:
            return ""
        rounded = f"{value:.2f}"
        # 29.999 is below 30, and must not be shown as 30.00
        shown = f"{value!r}" if float(rounded) == round(self.limit, 2) else rounded
        return f"{self.measure} {shown} {sign} {self.limit:g}"


def parse_gates(option: str, assignments: Sequence[str], measures: Sequence[str]) -> list[Gate]:
    """Reads limits such as ``bleu=30``, of measures that will be computed.

    Raises a UsageError that names the limit which cannot be checked.
    """
    return [_parse_gate(option, assignment, measures) for assignment in assignments]


def _parse_gate(option: str, assignment: str, measures: Sequence[str]) -> Gate:
    measure, sign, text = (part.strip() for part in assignment.partition("="))
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not sign or not math.isfinite(limit):
        raise UsageError(
            f"{option}: must be METRIC=VALUE with a number, such as {measures[0]}=30; found "
            f'"{assignment}"'
        )
    if measure not in measures:
        known = sorted({name for names in MEASURES.values() for name in names})
        there = ", ".join(measures)
        if measure in known:
            raise UsageError(f"{option}: there is no {measure} here, only {there}")
        meant = did_you_mean(suggestions(measure, measures)) or f"there are {there}"
        raise UsageError(f"{option}: {measure}: no such metric; {meant}")
    fitting = UNDER if measure in HIGHER else OVER
    if option != fitting:
        better = "higher" if measure in HIGHER else "lower"
        raise UsageError(f"{option}: {measure} is better {better}; write {fitting} {assignment}")
    if limit < 0 or (measure in HIGHER and limit > 100):
        bounds = "between 0 and 100" if measure in HIGHER else "at least 0"
        raise UsageError(f"{option}: {measure} is {bounds}; found {assignment}")
    return Gate(option=option, measure=measure, limit=limit)


def check_gates(gates: Sequence[Gate], scores: Mapping[str, Any]) -> None:
    """Raises an error (exit status 1) that names every score beyond its limit."""
    failed = {gate: failure for gate in gates if (failure := gate.failure(scores))}
    if failed:
        options = ", ".join(dict.fromkeys(gate.option for gate in failed))
        raise TformerError(f"{options}: {', '.join(failed.values())}")
