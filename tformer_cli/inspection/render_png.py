"""Heat maps of the selected heads as a PNG, by matplotlib (the optional extra `png`)."""

import io
import warnings
from typing import TYPE_CHECKING

from tformer_cli.errors import UsageError
from tformer_cli.inspection.heads import HeadId, Kind
from tformer_cli.inspection.palette import LIGHT_RAMPS
from tformer_cli.inspection.record import HeadsRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELLED_PANELS = 16
"""Up to so many heads get their tokens written beside them."""
DOTS_PER_INCH = 150
"""Resolution of the picture."""


def render_png(record: HeadsRecord) -> bytes:
    """Renders the selected heads of a sentence.

    Raises:
        UsageError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "--format png: needs matplotlib; install it with pip install 'tformer[png]', "
            "or choose svg"
        ) from None
    is_labelled = len(record.heads) <= LABELLED_PANELS
    n_columns, lines = _arranged(record, is_labelled)
    longest = max(len(record.source_pieces), len(record.target_pieces))
    side = min(9.0, max(2.6, 0.19 * longest + 1.2)) if is_labelled else 1.4
    figure = Figure(figsize=(n_columns * side, len(lines) * side + 0.7), layout="constrained")
    figure.suptitle(_title(record), fontsize=9, parse_math=False)
    for row, heads in enumerate(lines):
        for column, head in enumerate(heads):
            axes = figure.add_subplot(len(lines), n_columns, row * n_columns + column + 1)
            _draw(axes, record, head, is_labelled)
    return _saved(figure, record)


def _arranged(record: HeadsRecord, is_labelled: bool) -> tuple[int, list[list[HeadId]]]:
    """Arranges heads in lines: a line a layer, or three a line where they are few and large."""
    layers: dict[tuple[Kind, int], list[HeadId]] = {}
    for head in record.heads:
        layers.setdefault((head.kind, 0 if is_labelled else head.layer), []).append(head)
    width = min(3, len(record.heads)) if is_labelled else max(map(len, layers.values()))
    lines = [
        heads[start : start + width]
        for heads in layers.values()
        for start in range(0, len(heads), width)
    ]
    return max(map(len, lines)), lines


def _draw(axes: "Axes", record: HeadsRecord, head: HeadId, is_labelled: bool) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list(head.kind, LIGHT_RAMPS[head.kind])
    weights = record.shades(head).numpy()
    axes.imshow(weights, cmap=colours, vmin=0, vmax=1, aspect="equal", interpolation="nearest")
    axes.set_title(str(head), fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    if not is_labelled:
        return
    rows, columns = record.row_labels(head.kind), record.column_labels(head.kind)
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.tick_params(length=0)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)  # a "$" is a token like another


def _title(record: HeadsRecord) -> str:
    weighting = record.weighting
    shades = "" if weighting.is_share else f"; darkest: {record.largest:.4g}"
    return f"{record.source}\n{record.target}\n{weighting.name}: {weighting.meaning}{shades}"


def _saved(figure: "Figure", record: HeadsRecord) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        warnings.filterwarnings(
            "ignore", message="Matplotlib currently does not support .* natively"
        )
        # A text chunk of a PNG has a keyword of Latin letters; what it says may be any text.
        says = (
            f"{record.weighting.name}: {record.weighting.meaning}. {record.weighting.conventions}"
        )
        metadata = {"Software": "tformer", "Description": says}
        figure.savefig(file, format="png", dpi=DOTS_PER_INCH, metadata=metadata)
    return file.getvalue()
