"""The roles of a run's heads over its steps, read from the log of the run.

A line of `heads.jsonl` is a head at a step (`jobs.follow_heads.head_at_step`). In the
figure a stretch of steps in one role is one bar. Wide bars also have the name of the role on them,
and every bar has a tooltip.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args
from xml.etree.ElementTree import Element, SubElement

from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import read_run_log
from tformer_cli.heads.names import KIND_NAMES, KINDS, HeadId, HeadLayout, Kind
from tformer_cli.heads.roles import ROLES, SIGNS, Role, sign_of
from tformer_cli.heads.selectors import HeadSelection
from tformer_cli.inspect.view import NoOptions, View
from tformer_cli.show.document import BLANK, Block, Room, Text, text
from tformer_cli.show.figure_files import FIGURES
from tformer_cli.show.palette import OKABE_ITO
from tformer_cli.show.svg import MARGIN, draw_text, new_svg, svg_text
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LABEL, SUMMARY = 11, 24  # Columns of a head's name, and of the text after its signs


def _axis(steps: list[int]) -> str:
    """The steps above the signs: the first, the last, and those between that have room."""
    line = " " * LABEL
    last = f"{steps[-1]}"
    end = LABEL + max(0, len(steps) - len(last))
    for place, step in enumerate(steps[:-1]):
        start, label = LABEL + place, f"{step}"
        is_due = place == 0 or place % 10 == 0
        if is_due and start >= len(line) and start + len(label) < end:
            line = line.ljust(start) + label + " "
    return line.ljust(end) + last


def _line(timeline: HeadTimeline, course: HeadCourse, places: Sequence[int], room: Room) -> Text:
    since = timeline.last_change(course)
    return Text(
        (
            f"{course.head!s:<{LABEL}}",
            *(sign_of(course.roles[place], room) for place in places),
            f"  {course.roles[-1]}",
            (" throughout" if since is None else f" since {since:,}", "dim"),
        ),
        wraps=False,
    )


def _appearances(timeline: HeadTimeline, room: Room) -> Iterator[Text]:
    first = timeline.first_appearances()
    for role in SIGNS:
        if role in first:
            step, head = first[role]
            n_now = sum(course.roles[-1] == role for course in timeline.courses)
            seen = (f"first at {step:,} ({head}), now {n_now}", "dim")
            yield text(sign_of(role, room), f" {role:<9}", seen)
    if timeline.rare_reason:
        yield text(f"rare-word heads are not classified: {timeline.rare_reason}", style="dim")


class TimelineView(View["HeadTimeline"]):
    """Shows the roles of heads while a model was trained."""

    name = "timeline"
    title = "Heads over the training"
    formats = ("text", "jsonl", *FIGURES, "html")

    def lines(self, record: HeadTimeline, options: NoOptions) -> Iterator[dict[str, Any]]:
        return (record.describe(course) for course in record.courses)

    def blocks(self, record: HeadTimeline, options: NoOptions, room: Room) -> Iterator[Block]:
        steps = record.steps
        yield text(
            (record.run, "bold"),
            f"  {count_of(len(record.courses), 'head')}, steps {steps[0]:,} to {steps[-1]:,}, "
            f"inspected {count_of(len(steps), 'time')} on "
            f"{count_of(record.n_sentences, 'sentence pair')}",
        )
        # as many as there is room for, counted from the last one so that it is always there
        every = -(-len(steps) // max(8, room.width - LABEL - SUMMARY))
        places = range((len(steps) - 1) % every, len(steps), every)
        if every > 1:
            yield text(f"shown: {len(places)} of {len(steps)} inspected steps", style="dim")
        for kind in KINDS:
            courses = [course for course in record.courses if course.head.kind == kind]
            if courses:
                yield BLANK
                yield text((KIND_NAMES[kind], "bold"))
                yield Text((_axis([steps[place] for place in places]),), "dim", wraps=False)
                for course in courses:
                    yield _line(record, course, places, room)
        yield BLANK
        yield from _appearances(record, room)

    def figure(self, record: HeadTimeline, options: Any = None) -> str:
        return render_timeline_svg(record)


VIEW = TimelineView()


HEADS_LOG = "heads.jsonl"
SCHEMA = "tformer.headsteps/1"  # Of the log; see `jobs.follow_heads`
TIMELINE_SCHEMA = "tformer.headtimeline/1"
NO_RARE = "the run had no token frequencies, or none of its sentence pairs has a rare token"


@dataclass(frozen=True, kw_only=True)
class HeadCourse:
    """The roles of one head."""

    head: HeadId
    roles: tuple[Role, ...]  # Its role at each of the timeline's steps
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
        step_of: dict[Role, int] = {}
        for step, role in zip(self.steps, course.roles, strict=True):
            step_of.setdefault(role, step)
        return step_of

    def last_change(self, course: HeadCourse) -> int | None:
        """The step at which a head was last seen in another role than before; None: at no step."""
        for place in range(len(self.steps) - 1, 0, -1):
            if course.roles[place] != course.roles[place - 1]:
                return self.steps[place]
        return None

    def first_appearances(self) -> dict[Role, tuple[int, HeadId]]:
        """The step at which any head first had each role, and the first such head."""
        first_of: dict[Role, tuple[int, HeadId]] = {}
        for place, step in enumerate(self.steps):
            for course in self.courses:
                first_of.setdefault(course.roles[place], (step, course.head))
        return first_of

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
    """Reads the log of heads that a run has written so far.

    Incomplete steps, such as the last one of a run that is still writing, are skipped.
    """
    absent = "train with --set training.inspect_every=100 to record the heads"
    at_steps: dict[int, dict[HeadId, _Entry]] = {}
    for entry in read_run_log(run, HEADS_LOG, absent, _entry):
        at_steps.setdefault(entry.step, {})[entry.head] = entry
    every = max((set(heads) for heads in at_steps.values()), key=len, default=set())
    steps = [step for step, heads in sorted(at_steps.items()) if set(heads) == every]
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
            for head in _sort_heads(every)
        ),
    )


def heads_over_time(run: Path | str, heads: Sequence[str] = ()) -> HeadTimeline:
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


def _sort_heads(heads: set[HeadId]) -> Sequence[HeadId]:
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


COLORS: dict[str, str] = {
    "previous": OKABE_ITO["sky"],
    "self": OKABE_ITO["yellow"],
    "next": OKABE_ITO["blue"],
    "sink": OKABE_ITO["vermilion"],
    "aligner": OKABE_ITO["green"],
    "broad": "#d3d7de",
    "rare": OKABE_ITO["purple"],
    "other": "#f3f4f7",
}
"""The color of each role; one that is not here is drawn in `UNKNOWN_ROLE_COLOR`."""
UNKNOWN_ROLE_COLOR = OKABE_ITO["orange"]
_DARK = {"next", "sink", "aligner"}
_LABEL, _ROW, _PLOT = 76.0, 16.0, 640.0
_TICKS = 8


def render_timeline_svg(timeline: HeadTimeline) -> str:
    """Renders a row of bars for each head, the kinds below each other."""
    root = new_svg(f"Roles of the heads of {timeline.run} over its steps")
    root.set("role", "img")
    y = _legend(root, timeline, MARGIN)
    for kind in KINDS:
        courses = [course for course in timeline.courses if course.head.kind == kind]
        if courses:
            y += 24
            draw_text(root, KIND_NAMES[kind].capitalize(), MARGIN, y, 13.0, weight="600")
            y += 8
            for course in courses:
                _bars(root, timeline, course, y)
                y += _ROW
            y = _draw_axis(root, timeline, y)
    return svg_text(root, 2 * MARGIN + _LABEL + _PLOT, y + MARGIN / 2)


def _legend(root: Element, timeline: HeadTimeline, y: float) -> float:
    used = {role for course in timeline.courses for role in course.roles}
    x = MARGIN
    for rule in ROLES:
        if rule.role in used:
            swatch = {"x": f"{x:g}", "y": f"{y:g}", "width": "12", "height": "12"}
            SubElement(
                root, "rect", swatch | {"fill": color_of_role(rule.role), "stroke": "#b9bec8"}
            )
            draw_text(root, rule.role, x + 17, y + 10, 11.0)
            x += 17 + 6.5 * len(rule.role) + 18
    return y + 12


def _bars(root: Element, timeline: HeadTimeline, course: HeadCourse, y: float) -> None:
    draw_text(root, str(course.head), MARGIN + _LABEL - 8, y + 11.5, 11.0, anchor="end")
    cell = _PLOT / len(timeline.steps)
    start = 0
    for role, stretch in groupby(course.roles):
        end = start + len(list(stretch))
        x, width = MARGIN + _LABEL + start * cell, (end - start) * cell
        place = {"x": f"{x:.6g}", "y": f"{y:g}", "width": f"{width:.6g}", "height": f"{_ROW - 2:g}"}
        bar = SubElement(root, "rect", place | {"fill": color_of_role(role)})
        steps = f"{timeline.steps[start]:,} to {timeline.steps[end - 1]:,}"
        SubElement(bar, "title").text = f"{course.head}: {role}, steps {steps}"
        if width > 6.2 * len(role) + 8:
            ink = "#ffffff" if role in _DARK else "#16181d"
            draw_text(root, role, x + 4, y + 10.5, 10.0, fill=ink)
        start = end


def _draw_axis(root: Element, timeline: HeadTimeline, y: float) -> float:
    cell = _PLOT / len(timeline.steps)
    every = max(1, -(-len(timeline.steps) // _TICKS))
    for place in range(0, len(timeline.steps), every):
        x = MARGIN + _LABEL + place * cell
        mark = {"d": f"M{x:.6g} {y:g}v4", "stroke": "#8b93a3"}
        SubElement(root, "path", mark)
        draw_text(root, f"{timeline.steps[place]:,}", x, y + 15, 10.0, fill="#5c6370")
    return y + 18


def color_of_role(role: Role) -> str:
    return COLORS.get(role, UNKNOWN_ROLE_COLOR)
