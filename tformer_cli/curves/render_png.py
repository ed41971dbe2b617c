"""A chart as PNG, by matplotlib (the optional extra `png`)."""

from typing import TYPE_CHECKING, Any

from tformer_cli.curves.chart import Chart, Panel
from tformer_cli.curves.palette import LIGHT, style_of
from tformer_cli.curves.render_svg import columns_of
from tformer_cli.curves.scales import Scale, x_scale, y_scale
from tformer_cli.figures import new_figure, png_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES = {"": "-", "6 3": "--", "2 3": ":"}
_INK, _GRAY, _PALE = "#24292f", "#59636e", "#e4e8ec"


def render_png(chart: Chart) -> bytes:
    """Renders the panels in rows of at most three, under a legend.

    Raises:
        UsageError: if matplotlib is not installed.
    """
    n_columns = columns_of(len(chart.panels))
    n_rows = -(-len(chart.panels) // n_columns)
    figure = new_figure(3.7 * n_columns, 2.4 * n_rows + 0.5)
    x = x_scale(chart)
    for place, panel in enumerate(chart.panels):
        _draw(figure.add_subplot(n_rows, n_columns, place + 1), panel, x)
    _legend(figure, chart)
    return png_bytes(figure)


def _draw(axes: "Axes", panel: Panel, x: Scale) -> None:
    y = y_scale(panel)
    axes.set_title(panel.metric.label, fontsize=9, fontweight="bold", loc="left", color=_INK)
    # The same ticks as in SVG: matplotlib's own would differ in number and form
    axes.set_yscale("log" if y.is_logarithmic else "linear")
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    axes.set_xticks(x.ticks, x.labels)
    axes.set_yticks(y.ticks, y.labels)
    axes.minorticks_off()  # a logarithmic axis would label them
    axes.set_xlabel(x.name, fontsize=8, loc="right", color=_GRAY)
    axes.tick_params(labelsize=8, labelcolor=_GRAY, color=_GRAY)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=_PALE)
    axes.set_axisbelow(True)
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(_GRAY)
    for curve in panel.curves:
        color, dash = style_of(curve.run)
        across, up = zip(*curve.points, strict=True)
        marker = "o" if len(curve.points) <= 12 else ""
        look: dict[str, Any] = {
            "color": LIGHT[color],
            "linestyle": _DASHES[dash],
            "marker": marker,
        }
        # Not clipped: points on the edge of the axes show whole markers
        axes.plot(across, up, linewidth=1.5, markersize=3.5, clip_on=False, **look)
        if curve.average is not None:
            look = {"color": LIGHT[color], "markerfacecolor": "white", "marker": "D"}
            axes.plot(*curve.average, markersize=5, clip_on=False, **look)


def _legend(figure: "Figure", chart: Chart) -> None:
    from matplotlib.lines import Line2D

    lines = []
    for run, label in enumerate(chart.runs):
        color, dash = style_of(run)
        line: dict[str, Any] = {"color": LIGHT[color], "linestyle": _DASHES[dash]}
        lines.append(Line2D([], [], label=label, **line))
    if chart.has_averages:
        look: dict[str, Any] = {
            "color": _GRAY,
            "markerfacecolor": "white",
            "marker": "D",
            "linestyle": "",
        }
        lines.append(Line2D([], [], markersize=5, label="averaged weights", **look))
    legend = figure.legend(
        handles=lines,
        loc="outside upper left",
        ncols=2 * columns_of(len(chart.panels)),
        frameon=False,
        fontsize=9,
        labelcolor=_INK,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a "$" in a name is a letter like another
