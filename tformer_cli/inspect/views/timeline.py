"""The roles of a run's heads over its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tformer_cli.heads.names import KIND_NAMES, KINDS
from tformer_cli.inspect.figures.role_grid import SIGNS, sign_of
from tformer_cli.inspect.view import NoOptions, View
from tformer_cli.show.document import BLANK, Block, Room, Text, text
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tformer_cli.inspect.heads.timeline import HeadCourse, HeadTimeline

LABEL, SUMMARY = 11, 24
"""Columns of a head's name, and of what is said behind its signs."""


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
    """First step and head of each role, and the number of heads that have it now."""
    first = timeline.first_appearances()
    for role in SIGNS:
        if role in first:
            step, head = first[role]
            n_now = sum(course.roles[-1] == role for course in timeline.courses)
            seen = (f"first at {step:,} ({head}), now {n_now}", "dim")
            yield text(sign_of(role, room), f" {role:<9}", seen)
    if timeline.rare_reason:
        yield text(f"rare-word heads are not judged: {timeline.rare_reason}", style="dim")


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

    def figure(self, record: HeadTimeline) -> str:
        from tformer_cli.inspect.figures.timeline_svg import render_timeline_svg

        return render_timeline_svg(record)


VIEW = TimelineView()
