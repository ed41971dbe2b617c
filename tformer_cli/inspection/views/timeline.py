"""The roles of a run's heads over its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from tformer_cli.inspection.capture.heads import KIND_NAMES, KINDS
from tformer_cli.inspection.figures.role_grid import SIGNS, sign_of
from tformer_cli.inspection.view import NoOptions, View
from tformer_cli.show.terminal import is_ascii_only, print_lines, shown
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from tformer_cli.inspection.heads.timeline import HeadCourse, HeadTimeline

LABEL, SUMMARY = 11, 24
"""Columns of a head's name, and of what is said behind its signs."""


def show_timeline(console: Console, timeline: HeadTimeline) -> None:
    """Prints a sign for each head at each step; where not all fit, every n-th step and the last."""
    is_ascii = is_ascii_only(console)
    steps = timeline.steps
    console.print(
        Text.assemble(
            (shown(timeline.run, is_ascii=is_ascii), "bold"),
            f"  {count_of(len(timeline.courses), 'head')}, steps {steps[0]:,} to {steps[-1]:,}, "
            f"inspected {count_of(len(steps), 'time')} on "
            f"{count_of(timeline.n_sentences, 'sentence pair')}",
        )
    )
    places = _shown_places(len(steps), max(8, console.width - LABEL - SUMMARY))
    if len(places) < len(steps):
        console.print(f"shown: {len(places)} of {len(steps)} inspected steps", style="dim")
    for kind in KINDS:
        courses = [course for course in timeline.courses if course.head.kind == kind]
        if courses:
            console.print()
            console.print(Text(KIND_NAMES[kind], style="bold"))
            console.print(_axis([steps[place] for place in places]), no_wrap=True)
            for course in courses:
                console.print(_line(timeline, course, places, is_ascii), no_wrap=True)
    console.print()
    print_lines(console, _appearances(timeline, is_ascii))


def _shown_places(n_steps: int, room: int) -> list[int]:
    """The steps that are shown: as many as there is room for, at equal distances, the last one too.

    Counted from the last one backwards, so that it is always there.
    """
    every = -(-n_steps // room)
    return list(range((n_steps - 1) % every, n_steps, every))


def _axis(steps: list[int]) -> Text:
    """The steps above the signs: the first, the last, and those between that have room."""
    line = " " * LABEL
    last = f"{steps[-1]}"
    end = LABEL + max(0, len(steps) - len(last))
    for place, step in enumerate(steps[:-1]):
        start, label = LABEL + place, f"{step}"
        is_due = place == 0 or place % 10 == 0
        if is_due and start >= len(line) and start + len(label) < end:
            line = line.ljust(start) + label + " "
    return Text(line.ljust(end) + last, style="dim")


def _line(timeline: HeadTimeline, course: HeadCourse, places: list[int], is_ascii: bool) -> Text:
    line = Text(f"{course.head!s:<{LABEL}}")
    for place in places:
        line.append_text(sign_of(course.roles[place], is_ascii=is_ascii))
    since = timeline.last_change(course)
    line.append(f"  {course.roles[-1]}")
    return line.append(" throughout" if since is None else f" since {since:,}", style="dim")


def _appearances(timeline: HeadTimeline, is_ascii: bool) -> list[Text]:
    """First step and head of each role, and the number of heads that have it now."""
    first = timeline.first_appearances()
    lines = []
    for role in SIGNS:
        if role in first:
            step, head = first[role]
            n_now = sum(course.roles[-1] == role for course in timeline.courses)
            line = Text.assemble(sign_of(role, is_ascii=is_ascii), f" {role:<9}")
            lines.append(line.append(f"first at {step:,} ({head}), now {n_now}", style="dim"))
    if timeline.rare_reason:
        lines.append(Text(f"rare-word heads are not judged: {timeline.rare_reason}", style="dim"))
    return lines


class TimelineView(View["HeadTimeline"]):
    """Shows the roles of heads while a model was trained."""

    name = "timeline"
    title = "Heads over the training"
    formats = ("text", "jsonl", "svg", "png", "html")

    def json(self, record: HeadTimeline) -> dict[str, Any]:
        return {
            "run": record.run,
            "steps": list(record.steps),
            "n_sentences": record.n_sentences,
            "rare_reason": record.rare_reason,
            "courses": [record.describe(course) for course in record.courses],
            "figure": self.figure(record),
        }

    def lines(self, record: HeadTimeline, options: NoOptions) -> Iterator[dict[str, Any]]:
        return (record.describe(course) for course in record.courses)

    def text(self, console: Console, record: HeadTimeline, options: NoOptions) -> None:
        show_timeline(console, record)

    def figure(self, record: HeadTimeline) -> str:
        from tformer_cli.inspection.figures.timeline_svg import render_timeline_svg

        return render_timeline_svg(record)


VIEW = TimelineView()
