"""Parts that maps in PNG share: the map, and the tokens beside it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_map(axes: "Axes", values: Tensor, colors: Sequence[str], low: float, title: str) -> None:
    """Draws a map without labels.

    Args:
        axes: where to.
        values: (Q, K) numbers from `low` to 1.
        colors: the colors of `low`, of 1 and, at equal distances, of numbers between.
        low: the lowest number that has a color of its own.
        title: what stands above it.
    """
    from matplotlib.colors import LinearSegmentedColormap

    ramp = LinearSegmentedColormap.from_list("ramp", list(colors))
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
