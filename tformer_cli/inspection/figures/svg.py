"""Figures as SVG: well-formed XML, text that stays text, no script, no external resource."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element, SubElement

from tformer_cli.inspection.figures.palette import hex_color

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.inspection.capture.heads import Kind

LEVELS = 64
"""Shades of a map. Cells of one shade are one path, which keeps large files small."""
FONT = "font-family:system-ui,-apple-system,'Segoe UI','Noto Sans',sans-serif"
MARGIN = 24.0
"""Pixels around a figure."""
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


def draw_cells(group: Element, weights: Tensor, kind: Kind) -> None:
    """Draws the cells, each as a unit square, those of one shade as one path."""
    levels = (weights * LEVELS).round().int().tolist()
    paths: dict[int, list[str]] = {}
    for i, row in enumerate(levels):
        for j, level in enumerate(row):
            if level:
                paths.setdefault(level, []).append(f"M{j} {i}h1v1h-1z")
    for level in sorted(paths):
        fill = hex_color(kind, level / LEVELS)
        SubElement(group, "path", {"fill": fill, "d": "".join(paths[level])})


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
    given = {"font-weight": weight, "text-anchor": anchor, "transform": transform}
    attributes |= {name: value for name, value in given.items() if value}
    SubElement(parent, "text", attributes).text = clean(text)


def clean(text: str) -> str:
    """Replaces the characters that XML cannot hold by U+FFFD."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.translate(_NOT_XML)


def display_width(text: str) -> int:
    """Columns that a text takes in a font of one width: wide characters take two, marks none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def number(value: float) -> str:
    """Writes a number with six digits."""
    return f"{value:.6g}"
