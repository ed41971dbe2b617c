"""Heat maps of the selected heads as a PNG, by matplotlib (the optional extra `png`)."""

from typing import TYPE_CHECKING

from tformer_cli.figures import new_figure, png_bytes
from tformer_cli.inspection.capture.heads import HeadId, Kind
from tformer_cli.inspection.figures.palette import LIGHT_RAMPS
from tformer_cli.inspection.figures.png_figure import draw_map, label_map
from tformer_cli.inspection.record import HeadsRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELLED_PANELS = 16
"""Up to this many heads get their tokens written beside them."""


def render_png(record: HeadsRecord) -> bytes:
    """Renders the selected heads of a sentence.

    Raises:
        UsageError: if matplotlib is not installed.
    """
    is_labeled = len(record.heads) <= LABELLED_PANELS
    n_columns, lines = _arranged(record, is_labeled)
    longest = max(len(record.source_pieces), len(record.target_pieces))
    side = min(9.0, max(2.6, 0.19 * longest + 1.2)) if is_labeled else 1.4
    figure = new_figure(n_columns * side, len(lines) * side + 0.7)
    figure.suptitle(_title(record), fontsize=9, parse_math=False)
    for row, heads in enumerate(lines):
        for column, head in enumerate(heads):
            axes = figure.add_subplot(len(lines), n_columns, row * n_columns + column + 1)
            _draw(axes, record, head, is_labeled)
    says = f"{record.weighting.name}: {record.weighting.meaning}. {record.weighting.conventions}"
    return png_bytes(figure, says)


def _arranged(record: HeadsRecord, is_labeled: bool) -> tuple[int, list[list[HeadId]]]:
    """Arranges heads in lines: a line a layer, or three a line where they are few and large."""
    layers: dict[tuple[Kind, int], list[HeadId]] = {}
    for head in record.heads:
        layers.setdefault((head.kind, 0 if is_labeled else head.layer), []).append(head)
    width = min(3, len(record.heads)) if is_labeled else max(map(len, layers.values()))
    lines = [
        heads[start : start + width]
        for heads in layers.values()
        for start in range(0, len(heads), width)
    ]
    return max(map(len, lines)), lines


def _draw(axes: "Axes", record: HeadsRecord, head: HeadId, is_labeled: bool) -> None:
    draw_map(axes, record.shades(head), LIGHT_RAMPS[head.kind], 0.0, str(head))
    if is_labeled:
        label_map(axes, record.row_labels(head.kind), record.column_labels(head.kind))


def _title(record: HeadsRecord) -> str:
    weighting = record.weighting
    shades = "" if weighting.is_share else f"; darkest: {record.largest:.4g}"
    return f"{record.source}\n{record.target}\n{weighting.name}: {weighting.meaning}{shades}"
