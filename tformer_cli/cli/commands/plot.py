"""`tformer plot`: the curves of one run or several."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.options import OutputOption, PathRole, QuietOption, option
from tformer_cli.cli.streams import STANDARD_STREAM, results, text_console, utf8_line
from tformer_cli.curves.metrics import MetricName, XName
from tformer_cli.errors import UsageError
from tformer_cli.show.png import check_png

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tformer_cli.curves.chart import Chart, Panel
    from tformer_cli.curves.scales import Scale


class PlotFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
    tsv = "tsv"
    svg = "svg"
    png = "png"


_WIDEST, _NARROWEST, _HEIGHT = 56, 34, 8
"""Columns and lines of a panel on a terminal."""


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Run directories; a run may still be training."),
        PathRole.reads_directory,
    ],
    *,
    output: OutputOption = STANDARD_STREAM,
    output_format: Annotated[PlotFormat | None, format_option(PlotFormat, "tsv")] = None,
    x: Annotated[XName, option("Horizontal axis.", "--x")] = XName.step,
    metric: Annotated[
        list[MetricName] | None,
        option("Metric to draw. Repeatable.", shown="losses, scores, learning rate, speed"),
    ] = None,
    quiet: QuietOption = False,  # noqa: ARG001 - every command takes it; this one is quiet
) -> None:
    """Plot the training curves of one run or several.

    Losses, scores, learning rate and speed come from each run's metrics.jsonl. The format tsv is a
    table with one line per point: run, metric, x, value, weights (current, or average at the end of
    a run); time is in seconds.

    Examples:
        tformer plot runs/quickstart
        tformer plot runs/first runs/second --metric bleu --x time -o bleu.svg
        tformer plot runs/quickstart --format tsv > curves.tsv
    """
    chosen = chosen_format(output_format, output, PlotFormat, PlotFormat.tsv)
    if chosen == PlotFormat.png and output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError("--format png: is not text for a terminal; name a file with -o FILE")
    if chosen == PlotFormat.png:
        check_png()
    from tformer_cli.curves.plot import plot_runs

    chart = plot_runs(runs, x=x, metrics=metric or ())
    if chosen == PlotFormat.text:
        with results(output) as stream:
            show_chart(text_console(output, stream), chart)
        return
    parts = _rendered(chart, chosen)
    with results(output) as stream:
        stream.writelines(parts)


def _rendered(chart: "Chart", chosen: PlotFormat) -> list[bytes]:
    """Renders a chart as the bytes of a format."""
    if chosen == PlotFormat.tsv:
        from tformer_cli.curves.render_text import render_tsv

        return [utf8_line(line) for line in render_tsv(chart)]
    from tformer_cli.curves.render_svg import render_svg
    from tformer_cli.show.png import render_png

    if chosen == PlotFormat.svg:
        return [render_svg(chart).encode("utf-8")]
    return [render_png(render_svg(chart))]


def show_chart(console: "Console", chart: "Chart") -> None:
    """Prints the panels with characters, as many beside each other as there is room for."""
    from rich.text import Text

    from tformer_cli.curves.scales import x_scale
    from tformer_cli.show.terminal import is_ascii_only

    is_ascii = is_ascii_only(console)
    n_columns = max(1, min(3, len(chart.panels), console.width // _NARROWEST))
    width = max(20, min(_WIDEST, console.width // n_columns - 1))
    console.print(_legend(chart, is_ascii=is_ascii))
    scale = x_scale(chart)
    for start in range(0, len(chart.panels), n_columns):
        panels = chart.panels[start : start + n_columns]
        drawn = [list(_styled(panel, scale, width, is_ascii=is_ascii)) for panel in panels]
        for line in zip(*drawn, strict=True):
            row = Text()
            for piece in line:
                piece.pad_right(width + 1 - piece.cell_len)
                row.append_text(piece)
            row.rstrip()
            console.print(row, no_wrap=True, crop=True, overflow="crop")


def _legend(chart: "Chart", *, is_ascii: bool) -> "Text":
    from rich.text import Text

    from tformer_cli.show.palette import TERMINAL_LINES, style_of_line
    from tformer_cli.show.terminal import isolated, shown

    names = [
        Text(
            isolated(shown(label, is_ascii=is_ascii)),
            style=f"bold {TERMINAL_LINES[style_of_line(run)[0]]}",
        )
        for run, label in enumerate(chart.runs)
    ]
    return Text("  ").join(names)


def _styled(panel: "Panel", scale: "Scale", width: int, *, is_ascii: bool) -> Iterator["Text"]:
    from rich.text import Text

    from tformer_cli.curves.render_text import render_text
    from tformer_cli.show.palette import TERMINAL_LINES, style_of_line

    for number, line in enumerate(render_text(panel, scale, width, _HEIGHT, is_ascii=is_ascii)):
        text = Text()
        for piece, run in line:
            style = "bold" if number == 0 else "dim"
            text.append(piece, style if run is None else TERMINAL_LINES[style_of_line(run)[0]])
        yield text
