"""Heat maps of the selected heads as one SVG: well-formed XML, no script, no external resource."""

import math
from dataclasses import dataclass
from functools import partial
from xml.etree.ElementTree import Element, SubElement

from tformer_cli.heads.names import KINDS, HeadId, Kind
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.show.palette import hex_color
from tformer_cli.show.svg import (
    MARGIN,
    display_width,
    draw_labels,
    draw_map,
    draw_text,
    new_svg,
    svg_text,
)

LABELLED_PANELS = 16
"""Up to this many heads each get their tokens written beside them; more are drawn as thumbnails,
which share the labels at the edges of their kind."""
THUMBNAIL, LEAST_CELL = 96.0, 6.0
"""Size of a thumbnail, unless its tokens could not be read."""
_GAP, _TITLE = 26.0, 20.0


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
    shares_labels: bool = False
    """True if only the panels at the left and at the top have labels, outside of them."""

    @property
    def inside(self) -> tuple[float, float]:
        """Width and height of the labels that are part of each panel."""
        return (0, 0) if self.shares_labels else (self.label_width, self.label_height)

    @property
    def panel_width(self) -> float:
        return self.inside[0] + self.n_keys * self.cell

    @property
    def panel_height(self) -> float:
        return _TITLE + self.inside[1] + self.n_rows * self.cell


def render_svg(record: HeadsRecord) -> str:
    """Renders the selected heads of a sentence, the kinds below each other."""
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
    draw_text(root, record.weighting.kind_names[kind].capitalize(), MARGIN, y, 13.0, weight="600")
    y += 8
    left = MARGIN
    if grid.shares_labels:
        left, y = left + grid.label_width, y + grid.label_height
    for place, head in enumerate(heads):
        row, column = divmod(place, grid.n_columns)
        corner = left + column * (grid.panel_width + _GAP), y + row * (grid.panel_height + _GAP / 2)
        if grid.shares_labels:
            rows, columns = record.row_labels(kind), record.column_labels(kind)
            if column == 0:
                beside = corner[0], corner[1] + _TITLE
                draw_labels(root, (rows, ()), beside, grid.cell, grid.font)
            if row == 0:
                draw_labels(root, ((), columns), corner, grid.cell, grid.font)
        _panel(root, record, head, grid, corner)
    n_lines = math.ceil(len(heads) / grid.n_columns)
    right = left + min(len(heads), grid.n_columns) * (grid.panel_width + _GAP)
    return right, y + n_lines * (grid.panel_height + _GAP / 2) + 10


def _grid_of(record: HeadsRecord, kind: Kind, heads: list[HeadId]) -> _Grid:
    rows, columns = record.row_labels(kind), record.column_labels(kind)
    longest = max(len(rows), len(columns))
    shares_labels = len(record.heads) > LABELLED_PANELS
    cell = min(22.0, max(7.0, 420 / longest))
    if shares_labels:
        cell = max(LEAST_CELL, THUMBNAIL / longest)
    font = min(12.0, cell * 0.9)
    label_width = max(map(display_width, rows)) * font * 0.6 + 8
    label_height = max(map(display_width, columns)) * font * 0.6 + 8
    n_columns = min(len(heads), 3)
    if shares_labels:
        n_columns = max(sum(h.layer == head.layer for h in heads) for head in heads)
    sizes = cell, label_width, label_height, font, n_columns, len(rows), len(columns)
    return _Grid(*sizes, shares_labels)


def _panel(
    root: Element, record: HeadsRecord, head: HeadId, grid: _Grid, corner: tuple[float, float]
) -> None:
    panel = SubElement(root, "g", {"role": "img", "aria-label": str(head)})
    left = corner[0] + grid.inside[0]
    top = corner[1] + _TITLE + grid.inside[1]
    if not grid.shares_labels:
        labels = record.row_labels(head.kind), record.column_labels(head.kind)
        draw_labels(panel, labels, (left, top), grid.cell, grid.font)
    # Thumbnails have their name just above the map, labeled maps above the labels.
    draw_text(panel, str(head), left, corner[1] + 13, 11.0, weight="600")
    color_of = partial(hex_color, head.kind)
    shades = record.shades(head).tolist()
    draw_map(panel, shades, color_of, (left, top), (grid.cell, grid.cell))
