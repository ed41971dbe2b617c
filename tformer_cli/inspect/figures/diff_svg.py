"""Two models compared as SVG: the maps of A, of B and B − A, of the pairs that changed most."""

from collections.abc import Callable, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from torch import Tensor

from tformer_cli.heads.names import KIND_NAMES
from tformer_cli.inspect.comparison.diff import HeadChange, HeadDiff, drawn
from tformer_cli.show.palette import hex_color, signed_hex_color
from tformer_cli.show.svg import (
    MARGIN,
    display_width,
    draw_labels,
    draw_map,
    draw_text,
    new_svg,
    svg_text,
)

_GAP = 26.0
ColorOf = Callable[[float], str]


def render_diff_svg(diff: HeadDiff) -> str:
    """Renders the maps of A, of B and B − A, of the pairs that have changed most."""
    root = new_svg("Heads of two models: A, B and B − A")
    y, width = MARGIN, 640.0
    for text in filter(None, (diff.shown[0].source, diff.shown[0].target)):
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
        ("A", before.captured.weights(match.first), partial(hex_color, kind)),
        ("B", after.captured.weights(match.second), partial(hex_color, kind)),
        (
            f"B − A: orange more, blue less, up to {largest:.2f}",
            difference / largest,
            signed_hex_color,
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
    draw_labels(root, labels, (left, top), cell, font)
    draw_map(root, values.tolist(), color_of, (left, top), (cell, cell))
    return max(left + n_keys * cell, left + 6.2 * len(caption)), top + n_rows * cell
