"""`inspect-heads RUN --over-time`: the roles of heads while they were trained."""

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tformer_cli.cli.console import utf8_line, warn
from tformer_cli.cli.heads_output import HeadsFormat
from tformer_cli.cli.heads_request import HeadsRequest, check_not_for_terminal
from tformer_cli.cli.labels import is_ascii_only, shown
from tformer_cli.cli.role_grid import SIGNS, sign_of
from tformer_cli.cli.text_io import results, text_console
from tformer_cli.errors import UsageError
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.inspection.heads.timeline import HeadCourse, HeadTimeline

FORMATS = (HeadsFormat.text, HeadsFormat.jsonl, HeadsFormat.svg, HeadsFormat.png, HeadsFormat.html)
REFUSED = (
    *("TEXT", "--source", "--target", "--target-file", "--rank", "--mode live", "--weights"),
    *("--corpus", "--dump", "--verify"),
)
"""Options without a meaning where no sentence is read."""
LABEL, SUMMARY = 11, 24
"""Columns of a head's name, and of what is said behind its signs."""


def show_heads_over_time(request: HeadsRequest) -> None:
    """Reads what a run has written of its heads, and writes it to stdout or a file.

    Raises:
        UsageError: if there are options without a meaning here, or the format shows maps.
        DataError: if the run has followed no heads.
    """
    check_not_for_terminal(request)
    request.refuse(REFUSED, "--over-time reads what the run has written; leave it out")
    chosen, output = request.chosen, request.output
    if chosen not in FORMATS:
        raise UsageError(f"--over-time: is for {', '.join(FORMATS)}; --format {chosen} shows maps")

    from tformer_cli.workflows.heads_over_time import heads_over_time

    timeline = heads_over_time(request.model, request.heads)
    if not timeline.courses:
        warn("no head meets the conditions of --heads")
    with results(output) as stream:
        if chosen == HeadsFormat.text:
            show_timeline(text_console(output, stream), timeline)
        else:
            stream.write(_rendered(timeline, chosen))


def show_timeline(console: Console, timeline: "HeadTimeline") -> None:
    """Prints a sign for each head at each step; where not all fit, every n-th step and the last."""
    from tformer_cli.inspection.capture.heads import KIND_NAMES, KINDS

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
    for line in _appearances(timeline, is_ascii):
        console.print(line)


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


def _line(
    timeline: "HeadTimeline", course: "HeadCourse", places: list[int], is_ascii: bool
) -> Text:
    line = Text(f"{course.head!s:<{LABEL}}")
    for place in places:
        line.append_text(sign_of(course.roles[place], is_ascii=is_ascii))
    since = timeline.last_change(course)
    line.append(f"  {course.roles[-1]}")
    return line.append(" throughout" if since is None else f" since {since:,}", style="dim")


def _appearances(timeline: "HeadTimeline", is_ascii: bool) -> list[Text]:
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


def _rendered(timeline: "HeadTimeline", chosen: HeadsFormat) -> bytes:
    from tformer_cli.inspection.figures import timeline as render

    if chosen == HeadsFormat.jsonl:
        return b"".join(
            utf8_line(json.dumps(timeline.describe(course), separators=(",", ":")))
            for course in timeline.courses
        )
    if chosen == HeadsFormat.svg:
        return render.render_timeline_svg(timeline).encode("utf-8")
    if chosen == HeadsFormat.png:
        from tformer_cli.inspection.figures.timeline_png import render_timeline_png

        return render_timeline_png(timeline)
    return render.render_timeline_html(timeline).encode("utf-8")
