"""Figures as SVG: well-formed XML, text that stays text, no script, no external resource."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element, SubElement

from tformer_cli.wording import SPACE_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LEVELS = 64
"""Shades of a map. Cells of one shade are one path, which keeps large files small."""
FONT = "font-family:system-ui,-apple-system,'Segoe UI','Noto Sans',sans-serif"
SCALE_STEPS, SCALE_FONT, SCALE_CELL = 11, 10.0, (8.0, 9.0)
"""Colors of a scale, and pixels of its letters and of each color."""
MARGIN = 24.0
"""Pixels around a figure."""
# ElementTree writes characters that XML 1.0 (section 2.2) does not allow as they are.
_NOT_XML = {code: 0xFFFD for code in (*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF)}


def new_svg(title: str = "", description: str = "") -> Element:
    """Makes an empty figure on white ground; see `svg_text`."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "style": FONT})
    for name, text in (("title", title), ("desc", description)):
        if text:
            SubElement(root, name).text = clean(text)
    SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    return root


def svg_text(root: Element, width: float, height: float) -> str:
    """Writes a figure of `new_svg` that has grown to a size in pixels."""
    size = {"width": number(width), "height": number(height)}
    root.attrib.update(size, viewBox=f"0 0 {size['width']} {size['height']}")
    ground = root.find("rect")
    if ground is not None:
        ground.attrib.update(size)
    return ET.tostring(root, encoding="unicode") + "\n"


def description_lines(svg: str) -> list[str]:
    """Reads the title and the description of a figure, as far as it has them."""
    root = ET.fromstring(svg)  # noqa: S314 - drawn by us
    return [element.text or "" for element in root if element.tag.endswith(("}title", "}desc"))]


def draw_cells(
    group: Element, rows: Sequence[Sequence[float]], color_of: Callable[[float], str]
) -> None:
    """Draws numbers from -1 to 1, each as a unit square, those of one shade as one path."""
    paths: dict[int, list[str]] = {}
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            # a cell of 0 is the ground: most cells of a map are, and are not drawn
            if level := round(value * LEVELS):
                paths.setdefault(level, []).append(f"M{j} {i}h1v1h-1z")
    for level in sorted(paths):
        fill = color_of(level / LEVELS)
        SubElement(group, "path", {"fill": fill, "d": "".join(paths[level])})


def draw_map(
    root: Element,
    rows: Sequence[Sequence[float]],
    color_of: Callable[[float], str],
    corner: tuple[float, float],
    cell: tuple[float, float],
) -> None:
    """Draws a framed map of numbers; see `draw_cells`."""
    scale = " ".join(map(number, dict.fromkeys(cell)))
    moved = f"translate({number(corner[0])} {number(corner[1])}) scale({scale})"
    group = SubElement(root, "g", {"transform": moved, "shape-rendering": "crispEdges"})
    draw_cells(group, rows, color_of)
    # outside the group: not every viewer knows a stroke that does not scale
    place = dict(zip(("x", "y"), map(number, corner), strict=True))
    size = {"width": number(len(rows[0]) * cell[0]), "height": number(len(rows) * cell[1])}
    line = {"fill": "none", "stroke": "#b9bec8", "shape-rendering": "crispEdges"}
    SubElement(root, "rect", {**place, **size, **line})


def draw_scale(
    root: Element,
    color_of: Callable[[float], str],
    corner: tuple[float, float],
    ends: tuple[str, str],
    *,
    is_signed: bool = False,
) -> float:
    """Draws the colors of a map from its smallest to its largest number; returns its right edge."""
    left, top = corner
    least = -1.0 if is_signed else 0.0
    steps = [least + (1.0 - least) * step / (SCALE_STEPS - 1) for step in range(SCALE_STEPS)]
    x = left + display_width(ends[0]) * SCALE_FONT * 0.6 + 4
    right = x + SCALE_STEPS * SCALE_CELL[0]
    draw_text(root, ends[0], x - 4, top + 8, SCALE_FONT, fill="#5c6370", anchor="end")
    draw_map(root, [steps], color_of, (x, top), SCALE_CELL)
    draw_text(root, ends[1], right + 4, top + 8, SCALE_FONT, fill="#5c6370")
    return right + 4 + display_width(ends[1]) * SCALE_FONT * 0.6


def draw_labels(
    root: Element,
    labels: tuple[Sequence[str], Sequence[str]],
    corner: tuple[float, float],
    cell: float,
    font: float,
) -> None:
    """Writes labels next to the rows and, turned, above the columns of a map."""
    left, top = corner
    for i, label in enumerate(labels[0]):
        draw_text(root, label, left - 5, top + (i + 0.5) * cell + font * 0.35, font, anchor="end")
    for j, label in enumerate(labels[1]):
        x = left + (j + 0.5) * cell + font * 0.35
        turn = f"rotate(-90 {number(x)} {number(top - 5)})"
        draw_text(root, label, x, top - 5, font, transform=turn)


def room_of_labels(labels: tuple[Sequence[str], Sequence[str]], font: float) -> Sequence[float]:
    """Pixels that labels take next to the rows and above the columns of a map."""
    return [max(map(display_width, side)) * font * 0.6 + 8 for side in labels]


def draw_text(
    parent: Element,
    text: str,
    x: float,
    y: float,
    size: float,
    *,
    fill: str = "#16181d",
    weight: str = "",
    anchor: str = "",
    transform: str = "",
) -> None:
    """Writes a text; characters that XML cannot hold become U+FFFD."""
    attributes = {"x": number(x), "y": number(y), "font-size": number(size), "fill": fill}
    options = {"font-weight": weight, "text-anchor": anchor, "transform": transform}
    attributes |= {name: value for name, value in options.items() if value}
    element = SubElement(parent, "text", attributes)
    if text.startswith(SPACE_LABEL) and text != SPACE_LABEL:
        # The mark hangs below the line and is as bold as a bar: it would stand apart from its word
        raised = {"font-size": number(0.7 * size), "fill": "#8a909c", "dy": number(-0.12 * size)}
        SubElement(element, "tspan", raised).text = SPACE_LABEL
        element = SubElement(element, "tspan", {"dy": number(0.12 * size)})
        text = text.removeprefix(SPACE_LABEL)
    element.text = clean(text)


def clean(text: str) -> str:
    """Replaces the characters that XML cannot hold by U+FFFD."""
    # tokens may hold half a character; XML may not
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.translate(_NOT_XML)


def display_width(text: str) -> int:
    """Columns that a text takes in a font of one width: wide characters take two, marks none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def number(value: float) -> str:
    # Processors differ in what a thousandth of a pixel does not show; -0 is 0
    return f"{round(value, 3) + 0.0:g}"
