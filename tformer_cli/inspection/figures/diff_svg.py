"""Two models compared as SVG: the maps of A, of B and B − A, of the pairs that changed most."""

from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element, SubElement

from torch import Tensor

from tformer_cli.inspection.capture.heads import KIND_NAMES
from tformer_cli.inspection.comparison.diff import HeadChange, HeadDiff, drawn
from tformer_cli.inspection.figures.palette import color, signed_color
from tformer_cli.inspection.figures.svg import (
    LEVELS,
    MARGIN,
    display_width,
    draw_text,
    new_svg,
    svg_text,
)

_GAP = 26.0
ColorOf = Callable[[float], tuple[int, int, int]]


def render_diff_svg(diff: HeadDiff) -> str:
    """Renders the maps of A, of B and B − A, of the pairs that have changed most."""
    root = new_svg("Heads of two models: A, B and B − A")
    y, width = MARGIN, 640.0
    for text in (diff.shown[0].source, diff.shown[0].target):
        y += 19
        draw_text(root, text, MARGIN, y, 15.0)
    for change in drawn(diff):
        right, y = _row(root, diff, change, y + _GAP)
        width = max(width, right)
    return svg_text(root, width + MARGIN, y + MARGIN)


def _row(root: Element, diff: HeadDiff, change: HeadChange, y: float) -> tuple[float, float]:
    """Draws three maps beside each other; returns the right and the lower edge."""
    before, after = diff.shown
    kind, match = change.kind, change.match
    if match.first is None or match.second is None:
        raise ValueError("a head without a counterpart has no difference")
    title = (
        f"{KIND_NAMES[kind].capitalize()}: {match.first} in A, {match.second} in B, "
        f"divergence {match.divergence:.4f}"
    )
    draw_text(root, title, MARGIN, y + 12, 13.0, weight="600")
    y += 18
    difference = diff.difference(change)
    largest = max(difference.abs().max().item(), 1e-30)
    labels = before.row_labels(kind), before.column_labels(kind)
    panels: tuple[tuple[str, Tensor, ColorOf], ...] = (
        ("A", before.captured.weights(match.first), lambda value: color(kind, value)),
        ("B", after.captured.weights(match.second), lambda value: color(kind, value)),
        (
            f"B − A: orange more, blue less, up to {largest:.2f}",
            difference / largest,
            signed_color,
        ),
    )
    x, lower = MARGIN, y
    for caption, values, color_of in panels:
        right, bottom = _panel(root, caption, values, color_of, labels, (x, y))
        x, lower = right + _GAP, max(lower, bottom)
    return x - _GAP, lower


def _panel(
    root: Element,
    caption: str,
    values: Tensor,
    color_of: ColorOf,
    labels: tuple[Sequence[str], Sequence[str]],
    corner: tuple[float, float],
) -> tuple[float, float]:
    """Draws a map with its labels; returns the right and the lower edge."""
    n_rows, n_keys = values.shape
    cell = min(20.0, max(6.0, 300 / max(n_rows, n_keys)))
    font = min(12.0, cell * 0.9)
    label_width, label_height = (max(map(display_width, part)) * font * 0.6 + 8 for part in labels)
    left, top = corner[0] + label_width, corner[1] + 18 + label_height
    draw_text(root, caption, left, corner[1] + 14, 11.0, fill="#5c6370")
    for i, label in enumerate(labels[0]):
        draw_text(root, label, left - 5, top + (i + 0.5) * cell + font * 0.35, font, anchor="end")
    for j, label in enumerate(labels[1]):
        x = left + (j + 0.5) * cell + font * 0.35
        turn = f"rotate(-90 {x:.6g} {top - 5:.6g})"
        draw_text(root, label, x, top - 5, font, transform=turn)
    scale = f"translate({left:.6g} {top:.6g}) scale({cell:.6g})"
    group = SubElement(root, "g", {"transform": scale, "shape-rendering": "crispEdges"})
    _cells(group, values, color_of)
    frame = {"width": str(n_keys), "height": str(n_rows), "fill": "none", "stroke": "#b9bec8"}
    SubElement(group, "rect", frame | {"vector-effect": "non-scaling-stroke"})
    return max(left + n_keys * cell, left + 6.2 * len(caption)), top + n_rows * cell


def _cells(group: Element, values: Tensor, color_of: ColorOf) -> None:
    """Draws the cells, each a unit square, those of one shade as one path."""
    paths: dict[int, list[str]] = {}
    for i, row in enumerate((values * LEVELS).round().int().tolist()):
        for j, level in enumerate(row):
            if level:
                paths.setdefault(level, []).append(f"M{j} {i}h1v1h-1z")
    for level in sorted(paths):
        fill = "#{:02x}{:02x}{:02x}".format(*color_of(level / LEVELS))
        SubElement(group, "path", {"fill": fill, "d": "".join(paths[level])})
