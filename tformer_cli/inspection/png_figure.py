"""What pictures in PNG share: matplotlib (the optional extra `png`), labelled maps, the bytes."""

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
"""Resolution of the pictures."""


def new_figure(width: float, height: float) -> "Figure":
    """Makes an empty figure, of a size in inches.

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
    return Figure(figsize=(width, height), layout="constrained")


def draw_map(axes: "Axes", values: Tensor, colours: Sequence[str], low: float, title: str) -> None:
    """Draws a map without labels.

    Args:
        axes: where to.
        values: (Q, K) numbers from `low` to 1.
        colours: the colours of `low`, of 1 and, at equal distances, of numbers between.
        low: the lowest number that has a colour of its own.
        title: what stands above it.
    """
    from matplotlib.colors import LinearSegmentedColormap

    ramp = LinearSegmentedColormap.from_list("ramp", list(colours))
    axes.imshow(
        values.numpy(), cmap=ramp, vmin=low, vmax=1, aspect="equal", interpolation="nearest"
    )
    axes.set_title(title, fontsize=8, parse_math=False)
    axes.set_xticks([])
    axes.set_yticks([])


def label_map(axes: "Axes", rows: Sequence[str], columns: Sequence[str]) -> None:
    """Writes tokens beside the rows and above the columns of a map."""
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.tick_params(length=0)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)  # a "$" is a token like another


def png_bytes(figure: "Figure", description: str) -> bytes:
    """Renders a figure; the same one gives the same bytes.

    Args:
        figure: the figure.
        description: what the picture shows, kept in its metadata.
    """
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        warnings.filterwarnings(
            "ignore", message="Matplotlib currently does not support .* natively"
        )
        # A text chunk of a PNG has a keyword of Latin letters; what it says may be any text.
        metadata = {"Software": "tformer", "Description": description}
        figure.savefig(file, format="png", dpi=DOTS_PER_INCH, metadata=metadata)
    return file.getvalue()
