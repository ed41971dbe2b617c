"""The roles of a run's heads over its steps, as SVG; the same data, the same bytes.

A stretch of steps in one role is one bar. Wide bars also have the name of the role on them, and
every bar has a tooltip.
"""

from itertools import groupby
from xml.etree.ElementTree import Element, SubElement

from tformer_cli.heads.names import KIND_NAMES, KINDS
from tformer_cli.heads.roles import ROLES, Role
from tformer_cli.inspect.heads.timeline import HeadCourse, HeadTimeline
from tformer_cli.show.palette import OKABE_ITO
from tformer_cli.show.svg import MARGIN, draw_text, new_svg, svg_text

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
"""The color of each role; one that is not here is drawn in `OF_OTHERS`."""
OF_OTHERS = OKABE_ITO["orange"]
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
            y = _axis(root, timeline, y)
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


def _axis(root: Element, timeline: HeadTimeline, y: float) -> float:
    """Writes steps below the bars, where their cells begin; returns the lower edge."""
    cell = _PLOT / len(timeline.steps)
    every = max(1, -(-len(timeline.steps) // _TICKS))
    for place in range(0, len(timeline.steps), every):
        x = MARGIN + _LABEL + place * cell
        mark = {"d": f"M{x:.6g} {y:g}v4", "stroke": "#8b93a3"}
        SubElement(root, "path", mark)
        draw_text(root, f"{timeline.steps[place]:,}", x, y + 15, 10.0, fill="#5c6370")
    return y + 18


def color_of_role(role: Role) -> str:
    """Gives the color of a role as ``#rrggbb``."""
    return COLORS.get(role, OF_OTHERS)
