"""Heat maps of the selected heads as one SVG: well-formed XML, no script, no external resource."""

import math
import unicodedata
from dataclasses import dataclass
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element, SubElement

from torch import Tensor

from tformer_cli.inspection.capture.heads import KINDS, HeadId, Kind
from tformer_cli.inspection.figures.palette import hex_color
from tformer_cli.inspection.record import HeadsRecord

LEVELS = 64
"""Shades of a map. Cells of one shade are one path, which keeps large files small."""
LABELLED_PANELS = 16
"""Up to this many heads get their tokens written beside them; more are drawn as thumbnails."""
_FONT = "font-family:system-ui,-apple-system,'Segoe UI','Noto Sans',sans-serif"
_GAP, _MARGIN, _TITLE = 26.0, 24.0, 20.0
_NOT_XML = {code: 0xFFFD for code in (*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF)}


@dataclass(frozen=True)
class _Grid:
    """Sizes of the panels of one kind."""

    cell: float
    label_width: float
    label_height: float
    font: float
    n_columns: int
    n_rows: int
    n_keys: int

    @property
    def panel_width(self) -> float:
        return self.label_width + self.n_keys * self.cell

    @property
    def panel_height(self) -> float:
        return _TITLE + self.label_height + self.n_rows * self.cell


def render_svg(record: HeadsRecord) -> str:
    """Renders the selected heads of a sentence, the kinds below each other."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "style": _FONT})
    SubElement(root, "title").text = _clean(f"Attention heads: {record.source}")
    SubElement(root, "desc").text = _clean(" ".join(_says(record)))
    background = SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    y = _heading(root, record)
    width = 640.0
    for kind in KINDS:
        heads = [head for head in record.heads if head.kind == kind]
        if heads:
            right, y = _section(root, record, kind, heads, y)
            width = max(width, right)
    size = {"width": _number(width + _MARGIN), "height": _number(y)}
    root.attrib.update(size, viewBox=f"0 0 {size['width']} {size['height']}")
    background.attrib.update(size)
    return ET.tostring(root, encoding="unicode") + "\n"


def _heading(root: Element, record: HeadsRecord) -> float:
    lines = (
        (record.source, 15.0, "#16181d"),
        (record.target, 15.0, "#16181d"),
        *((sentence, 10.0, "#5c6370") for sentence in _says(record)),
    )
    y = _MARGIN
    for text, size, fill in lines:
        y += size + 5
        draw_text(root, text, _MARGIN, y, size, fill=fill)
    return y + 10


def _says(record: HeadsRecord) -> list[str]:
    """Explanation of the numbers and the axes of a map, in sentences."""
    weighting = record.weighting
    sentences = [f"{weighting.name}: {weighting.meaning} ({weighting.source})."]
    if not weighting.is_share:
        sentences.append(f"Shades run from 0 to the largest number, {record.largest:.4g}.")
    return [*sentences, *weighting.conventions.replace(". ", ".\n").split("\n")]


def _section(
    root: Element, record: HeadsRecord, kind: Kind, heads: list[HeadId], y: float
) -> tuple[float, float]:
    """Draws the heads of a kind; returns the right and the lower edge."""
    grid = _grid_of(record, kind, heads)
    y += 20
    draw_text(root, record.weighting.kind_names[kind].capitalize(), _MARGIN, y, 13.0, weight="600")
    y += 8
    for place, head in enumerate(heads):
        row, column = divmod(place, grid.n_columns)
        x = _MARGIN + column * (grid.panel_width + _GAP)
        _panel(root, record, head, grid, (x, y + row * (grid.panel_height + _GAP / 2)))
    n_lines = math.ceil(len(heads) / grid.n_columns)
    right = _MARGIN + min(len(heads), grid.n_columns) * (grid.panel_width + _GAP)
    return right, y + n_lines * (grid.panel_height + _GAP / 2) + 10


def _grid_of(record: HeadsRecord, kind: Kind, heads: list[HeadId]) -> _Grid:
    rows, columns = record.row_labels(kind), record.column_labels(kind)
    longest = max(len(rows), len(columns))
    if len(record.heads) > LABELLED_PANELS:
        in_a_layer = max(sum(h.layer == head.layer for h in heads) for head in heads)
        return _Grid(max(1.5, 96 / longest), 0, 0, 0, in_a_layer, len(rows), len(columns))
    cell = min(22.0, max(7.0, 420 / longest))
    font = min(12.0, cell * 0.9)
    label_width = max(map(display_width, rows)) * font * 0.6 + 8
    label_height = max(map(display_width, columns)) * font * 0.6 + 8
    n_columns = min(len(heads), 3)
    return _Grid(cell, label_width, label_height, font, n_columns, len(rows), len(columns))


def _panel(
    root: Element, record: HeadsRecord, head: HeadId, grid: _Grid, corner: tuple[float, float]
) -> None:
    panel = SubElement(root, "g", {"role": "img", "aria-label": str(head)})
    left = corner[0] + grid.label_width
    top = corner[1] + _TITLE + grid.label_height
    if grid.font:
        _labels(panel, record, head.kind, grid, (left, top))
    # Thumbnails have their name just above the map, labeled maps above the labels.
    draw_text(panel, str(head), left, corner[1] + 13, 11.0, weight="600")
    scale = f"translate({_number(left)} {_number(top)}) scale({_number(grid.cell)})"
    map_group = SubElement(panel, "g", {"transform": scale, "shape-rendering": "crispEdges"})
    draw_cells(map_group, record.shades(head), head.kind)
    frame = {"width": str(grid.n_keys), "height": str(grid.n_rows), "fill": "none"}
    frame |= {"stroke": "#b9bec8", "vector-effect": "non-scaling-stroke"}
    SubElement(map_group, "rect", frame)


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


def _labels(
    panel: Element, record: HeadsRecord, kind: Kind, grid: _Grid, origin: tuple[float, float]
) -> None:
    left, top = origin
    for i, label in enumerate(record.row_labels(kind)):
        y = top + (i + 0.5) * grid.cell + grid.font * 0.35
        draw_text(panel, label, left - 5, y, grid.font, anchor="end")
    for j, label in enumerate(record.column_labels(kind)):
        x = left + (j + 0.5) * grid.cell + grid.font * 0.35
        turn = f"rotate(-90 {_number(x)} {_number(top - 5)})"
        draw_text(panel, label, x, top - 5, grid.font, transform=turn)


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
    attributes = {"x": _number(x), "y": _number(y), "font-size": _number(size), "fill": fill}
    given = {"font-weight": weight, "text-anchor": anchor, "transform": transform}
    attributes |= {name: value for name, value in given.items() if value}
    SubElement(parent, "text", attributes).text = _clean(text)


def _clean(text: str) -> str:
    """Replaces the characters that XML cannot hold by U+FFFD."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.translate(_NOT_XML)


def display_width(text: str) -> int:
    """Columns that a text takes in a font of one width: wide characters take two, marks none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _number(value: float) -> str:
    return f"{value:.6g}"
