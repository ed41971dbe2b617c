"""Timeline of each head's role, read from the log of a run.

A line of `heads.jsonl` is a head at a step (`inspect.jobs.follow_heads.HeadAtStep`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import read_run_log
from tformer_cli.heads.names import KINDS, HeadId, HeadLayout, Kind
from tformer_cli.heads.roles import Role
from tformer_cli.heads.selectors import HeadSelection

HEADS_LOG = "heads.jsonl"
SCHEMA = "tformer.headsteps/1"
"""A line of the log: a head at a step; see `inspect.jobs.follow_heads`."""
TIMELINE_SCHEMA = "tformer.headtimeline/1"
NO_RARE = "the run had no token frequencies, or none of its sentence pairs a rare token"


@dataclass(frozen=True, kw_only=True)
class HeadCourse:
    """The roles of one head."""

    head: HeadId
    roles: tuple[Role, ...]
    """Its role at each of the timeline's steps."""
    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class HeadTimeline:
    """The roles of every head of a run."""

    run: str
    steps: tuple[int, ...]
    n_sentences: int
    courses: tuple[HeadCourse, ...]

    def first_steps(self, course: HeadCourse) -> dict[Role, int]:
        """The step at which a head had each of its roles for the first time."""
        found: dict[Role, int] = {}
        for step, role in zip(self.steps, course.roles, strict=True):
            found.setdefault(role, step)
        return found

    def last_change(self, course: HeadCourse) -> int | None:
        """The step at which a head was last seen in another role than before; None: at no step."""
        for place in range(len(self.steps) - 1, 0, -1):
            if course.roles[place] != course.roles[place - 1]:
                return self.steps[place]
        return None

    def first_appearances(self) -> dict[Role, tuple[int, HeadId]]:
        """The step at which any head first had each role, and the first such head."""
        found: dict[Role, tuple[int, HeadId]] = {}
        for place, step in enumerate(self.steps):
            for course in self.courses:
                found.setdefault(course.roles[place], (step, course.head))
        return found

    @property
    def rare_reason(self) -> str:
        """Reason why no head can have the role "rare" at the last step; empty if one can."""
        encoder = [course.metrics for course in self.courses if course.head.kind == "enc"]
        if not encoder or any("rare_argmax" in metrics for metrics in encoder):
            return ""
        return NO_RARE

    def describe(self, course: HeadCourse) -> dict[str, object]:
        return {
            "schema": TIMELINE_SCHEMA,
            "run": self.run,
            **course.head.data,
            "role": course.roles[-1],
            "last_change": self.last_change(course),
            "first_steps": self.first_steps(course),
            "steps": list(self.steps),
            "roles": list(course.roles),
            "n_sentences": self.n_sentences,
        }

    @property
    def layout(self) -> HeadLayout:
        layers: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
        for course in self.courses:
            counts = layers[course.head.kind]
            # a layer whose heads are all pruned has no course
            counts += [0] * (course.head.layer + 1 - len(counts))
            counts[course.head.layer] += 1
        return HeadLayout(*(tuple(layers[kind]) for kind in KINDS))


def read_timeline(run: Path) -> HeadTimeline:
    """Reads what a run has written of its heads so far.

    Steps that are incomplete, as a run that is just writing leaves its last one, are skipped.
    """
    absent = "train with --set training.inspect_every=100 to record the heads"
    at_steps: dict[int, dict[HeadId, _Entry]] = {}
    for entry in read_run_log(run, HEADS_LOG, absent, _entry):
        at_steps.setdefault(entry.step, {})[entry.head] = entry
    every = max((set(found) for found in at_steps.values()), key=len, default=set())
    steps = [step for step, found in sorted(at_steps.items()) if set(found) == every]
    if not steps:
        raise DataError(f"{run / HEADS_LOG}: has no step yet; wait until the run has begun")
    return HeadTimeline(
        run=run.resolve().name,
        steps=tuple(steps),
        n_sentences=next(iter(at_steps[steps[-1]].values())).n_sentences,
        courses=tuple(
            HeadCourse(
                head=head,
                roles=tuple(at_steps[step][head].role for step in steps),
                metrics=at_steps[steps[-1]][head].metrics,
            )
            for head in _ordered(every)
        ),
    )


def heads_over_time(run: Path | str, heads: Sequence[str] = ()) -> HeadTimeline:
    """Reads what a run has written of its heads; the model itself is not looked at."""
    timeline = read_timeline(Path(run))
    metrics = {course.head: course.metrics for course in timeline.courses}
    chosen = set(HeadSelection(heads, timeline.layout).select(metrics))
    return replace(timeline, courses=tuple(c for c in timeline.courses if c.head in chosen))


class _Entry(NamedTuple):
    """Content of a line of the file."""

    step: int
    head: HeadId
    role: Role
    n_sentences: int
    metrics: dict[str, float]


def _ordered(heads: set[HeadId]) -> Sequence[HeadId]:
    return sorted(heads, key=lambda head: (KINDS.index(head.kind), head))


def _entry(line: bytes) -> _Entry | None:
    """Reads a line; None if it is none of the file's."""
    try:
        values: dict[str, Any] = json.loads(line)
        if values["schema"] != SCHEMA or values["kind"] not in KINDS:
            return None
        return _Entry(
            step=int(values["step"]),
            head=HeadId(values["kind"], int(values["layer"]), int(values["head"])),
            # a role that this version does not know, of a run of a newer one
            role=values["role"] if values["role"] in get_args(Role) else "other",
            n_sentences=int(values["n_sentences"]),
            metrics={name: float(value) for name, value in values["metrics"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
