"""Heat maps of the selected heads as one SVG: well-formed XML, no script, no external resource.

The same data give the same bytes. As safetensors and npz there are `enc.L` (H, S, S), `dec.L` (H,
T, T) and `cross.L` (H, T, S), float32. Where heads were selected, H counts the selected ones of the
layer, and the metadata's `heads` says which they are. Maps that are of layers (the metadata's
`weighting` says so) have no H, and there is no `heads`.

In the figure of a training a stretch of steps in one role is one bar. Wide bars also have the name
of the role on them, and every bar has a tooltip.
"""

import io
import json
import math
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.typing import NDArray

from tformer_cli.artifacts.weights_file import write_arrays
from tformer_cli.heads.names import KIND_NAMES, KINDS, HeadId, Kind
from tformer_cli.heads.roles import ROLES, Role
from tformer_cli.inspect.comparison import HeadChange, HeadDiff, drawn
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import describe
from tformer_cli.inspect.views.timeline import HeadCourse, HeadTimeline
from tformer_cli.show.palette import OKABE_ITO, hex_color, signed_hex_color
from tformer_cli.show.svg import (
    MARGIN,
    display_width,
    draw_labels,
    draw_map,
    draw_text,
    new_svg,
    svg_text,
)

if TYPE_CHECKING:
    from torch import Tensor

LABELLED_PANELS = 16
"""Up to this many heads each get their tokens written beside them; more are drawn as thumbnails,
which share the labels at the edges of their kind."""
THUMBNAIL, LEAST_CELL = 96.0, 6.0  # Size of a thumbnail, unless its tokens could not be read
_GAP, _TITLE = 26.0, 20.0


def render_svg(record: HeadsRecord) -> str:
    root = new_svg(f"Attention heads: {record.source}", " ".join(_notes(record)))
    y = _heading(root, record)
    width = 640.0
    for kind in KINDS:
        heads = [head for head in record.heads if head.kind == kind]
        if heads:
            right, y = _section(root, record, kind, heads, y)
            width = max(width, right)
    return svg_text(root, width + MARGIN, y)


def _heading(root: Element, record: HeadsRecord) -> float:
    lines = (
        (record.source, 15.0, "#16181d"),
        (record.target, 15.0, "#16181d"),
        *((sentence, 10.0, "#5c6370") for sentence in _notes(record)),
    )
    y = MARGIN
    for text, size, fill in lines:
        y += size + 5
        draw_text(root, text, MARGIN, y, size, fill=fill)
    return y + 10


def _notes(record: HeadsRecord) -> list[str]:
    weighting = record.weighting
    sentences = [f"{weighting.name}: {weighting.meaning} ({weighting.source})."]
    if not weighting.is_share:
        sentences.append(f"Shades run from 0 to the largest number, {record.largest:.4g}.")
    return [*sentences, *weighting.conventions.replace(". ", ".\n").split("\n")]


def _section(
    root: Element, record: HeadsRecord, kind: Kind, heads: list[HeadId], y: float
) -> tuple[float, float]:
    """Draws the heads of a kind; returns the right and the lower edge."""
    labels = rows, columns = record.row_labels(kind), record.column_labels(kind)
    longest = max(len(rows), len(columns))
    cell, n_columns = min(22.0, max(7.0, 420 / longest)), min(len(heads), 3)
    # of many heads only the panels at the left and at the top have labels, outside of them
    shares_labels = len(record.heads) > LABELLED_PANELS
    if shares_labels:
        cell = max(LEAST_CELL, THUMBNAIL / longest)
        n_columns = max(sum(h.layer == head.layer for h in heads) for head in heads)
    font = min(12.0, cell * 0.9)
    beside, above = (max(map(display_width, side)) * font * 0.6 + 8 for side in labels)
    y += 20
    draw_text(root, record.weighting.kind_names[kind].capitalize(), MARGIN, y, 13.0, weight="600")
    left, y = MARGIN, y + 8
    if shares_labels:
        left, y, beside, above = left + beside, y + above, 0.0, 0.0
    width, height = beside + len(columns) * cell, _TITLE + above + len(rows) * cell
    for place, head in enumerate(heads):
        row, column = divmod(place, n_columns)
        x, top = left + column * (width + _GAP), y + row * (height + _GAP / 2)
        if shares_labels and column == 0:
            draw_labels(root, (rows, ()), (x, top + _TITLE), cell, font)
        if shares_labels and row == 0:
            draw_labels(root, ((), columns), (x, top), cell, font)
        panel = SubElement(root, "g", {"role": "img", "aria-label": str(head)})
        corner = x + beside, top + _TITLE + above
        if not shares_labels:
            draw_labels(panel, labels, corner, cell, font)
        # thumbnails have their name just above the map, labeled maps above the labels
        draw_text(panel, str(head), corner[0], top + 13, 11.0, weight="600")
        shades, color_of = record.shades(head).tolist(), partial(hex_color, kind)
        draw_map(panel, shades, color_of, corner, (cell, cell))
    n_lines = math.ceil(len(heads) / n_columns)
    right = left + min(len(heads), n_columns) * (width + _GAP)
    return right, y + n_lines * (height + _GAP / 2) + 10


Arrays = dict[str, NDArray[np.float32]]


def render_safetensors(record: HeadsRecord) -> bytes:
    file = io.BytesIO()
    write_arrays(file, weight_arrays(record), metadata_of(record))
    return file.getvalue()


def render_npz(record: HeadsRecord) -> bytes:
    """Renders a sentence as an npz file; its array `metadata` holds the metadata as JSON text."""
    metadata = np.array(json.dumps(metadata_of(record), ensure_ascii=False))
    file = io.BytesIO()
    arrays = weight_arrays(record)
    np.savez(file, allow_pickle=False, metadata=metadata, **arrays)
    return file.getvalue()


def weight_arrays(record: HeadsRecord) -> Arrays:
    is_of_layers = record.weighting.is_of_layers
    return {
        f"{kind}.{layer}": record.captured.layers(kind)[layer][0 if is_of_layers else heads].numpy()
        for (kind, layer), heads in _heads_by_layer(record).items()
    }


def metadata_of(record: HeadsRecord) -> dict[str, str]:
    """The metadata: what the JSON Lines say, each entry as JSON text, and which heads there are."""
    heads = {f"{k}.{layer}": heads for (k, layer), heads in _heads_by_layer(record).items()}
    data = (
        describe(record) if record.weighting.is_of_layers else {**describe(record), "heads": heads}
    )
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in data.items()
    }


def _heads_by_layer(record: HeadsRecord) -> dict[tuple[Kind, int], list[int]]:
    layers: dict[tuple[Kind, int], list[int]] = {}
    for head in record.heads:
        layers.setdefault((head.kind, head.layer), []).append(head.head)
    return layers


_DIFF_GAP = 26.0
ColorOf = Callable[[float], str]


def render_diff_svg(diff: HeadDiff) -> str:
    root = new_svg("Heads of two models: A, B and B − A")
    y, width = MARGIN, 640.0
    for text in filter(None, (diff.shown[0].source, diff.shown[0].target)):
        y += 19
        draw_text(root, text, MARGIN, y, 15.0)
    for change in drawn(diff):
        right, y = _diff_row(root, diff, change, y + _DIFF_GAP)
        width = max(width, right)
    return svg_text(root, width + MARGIN, y + MARGIN)


def _diff_row(root: Element, diff: HeadDiff, change: HeadChange, y: float) -> tuple[float, float]:
    """Draws three maps beside each other; returns the right and the lower edge."""
    before, after = diff.shown
    kind = change.kind
    if change.first is None or change.second is None:
        raise ValueError("a head without a counterpart has no difference")
    title = (
        f"{KIND_NAMES[kind].capitalize()}: {change.first} in A, {change.second} in B, "
        f"divergence {change.divergence:.4f}"
    )
    draw_text(root, title, MARGIN, y + 12, 13.0, weight="600")
    y += 18
    difference = diff.difference(change)
    largest = max(difference.abs().max().item(), 1e-30)
    labels = before.row_labels(kind), before.column_labels(kind)
    panels: tuple[tuple[str, Tensor, ColorOf], ...] = (
        ("A", before.captured.weights(change.first), partial(hex_color, kind)),
        ("B", after.captured.weights(change.second), partial(hex_color, kind)),
        (
            f"B − A: orange more, blue less, up to {largest:.2f}",
            difference / largest,
            signed_hex_color,
        ),
    )
    n_rows, n_keys = difference.shape
    cell = min(20.0, max(6.0, 300 / max(n_rows, n_keys)))
    font = min(12.0, cell * 0.9)
    beside, above = (max(map(display_width, part)) * font * 0.6 + 8 for part in labels)
    x, top = MARGIN, y + 18 + above
    for caption, values, color_of in panels:
        left = x + beside
        draw_text(root, caption, left, y + 14, 11.0, fill="#5c6370")
        draw_labels(root, labels, (left, top), cell, font)
        draw_map(root, values.tolist(), color_of, (left, top), (cell, cell))
        x = max(left + n_keys * cell, left + 6.2 * len(caption)) + _DIFF_GAP
    return x - _DIFF_GAP, top + n_rows * cell


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
