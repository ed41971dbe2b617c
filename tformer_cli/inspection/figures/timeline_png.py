"""The roles of a run's heads over its steps as PNG; see `render_timeline`."""

from itertools import groupby
from typing import TYPE_CHECKING

from tformer_cli.figures import new_figure, png_bytes
from tformer_cli.inspection.capture.heads import KIND_NAMES, KINDS
from tformer_cli.inspection.figures.timeline_svg import color_of_role
from tformer_cli.inspection.heads.roles import ROLES
from tformer_cli.inspection.heads.timeline import HeadCourse, HeadTimeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROW, AROUND = 8.0, 0.2, 0.75
"""Inches: of the picture, of a head's row, of what stands around the rows of a kind."""
TICKS = 8


def render_timeline_png(timeline: HeadTimeline) -> bytes:
    """Renders a row of bars for each head, the kinds below each other.

    Raises:
        UsageError: if matplotlib is not installed.
    """
    kinds = [kind for kind in KINDS if any(c.head.kind == kind for c in timeline.courses)]
    groups = [[c for c in timeline.courses if c.head.kind == kind] for kind in kinds]
    heights = [len(courses) * ROW + AROUND for courses in groups]
    figure = new_figure(WIDTH, sum(heights) + 0.5)
    grid = figure.add_gridspec(max(1, len(groups)), 1, height_ratios=heights or [1.0])
    for place, (kind, courses) in enumerate(zip(kinds, groups, strict=True)):
        axes = figure.add_subplot(grid[place])
        axes.set_title(KIND_NAMES[kind].capitalize(), fontsize=9, loc="left")
        _draw(axes, timeline, courses)
    if figure.axes:
        figure.axes[-1].set_xlabel("step", fontsize=8)
    _add_legend(figure, timeline)
    return png_bytes(figure, f"Roles of the heads of {timeline.run} over its steps")


def _draw(axes: "Axes", timeline: HeadTimeline, courses: list[HeadCourse]) -> None:
    for row, course in enumerate(courses):
        start = 0
        for role, stretch in groupby(course.roles):
            end = start + len(list(stretch))
            axes.barh(row, end - start, left=start, height=0.86, color=color_of_role(role))
            start = end
    steps = timeline.steps
    every = max(1, -(-len(steps) // TICKS))
    shown = range(0, len(steps), every)
    axes.set_xticks(shown, [f"{steps[place]:,}" for place in shown], fontsize=7)
    axes.set_yticks(range(len(courses)), [str(course.head) for course in courses], fontsize=7)
    axes.set_xlim(0, len(steps))
    axes.set_ylim(len(courses) - 0.5, -0.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=2)


def _add_legend(figure: "Figure", timeline: HeadTimeline) -> None:
    from matplotlib.patches import Patch

    used = {role for course in timeline.courses for role in course.roles}
    patches = [
        Patch(facecolor=color_of_role(rule.role), edgecolor="#b9bec8", label=rule.role)
        for rule in ROLES
        if rule.role in used
    ]
    figure.legend(
        handles=patches, loc="outside upper left", ncols=len(ROLES), fontsize=8, frameon=False
    )
