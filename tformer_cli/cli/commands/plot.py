"""`tformer plot`: the curves of one run or several."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.options import OutputOption, PathRole, QuietOption, option
from tformer_cli.cli.streams import STANDARD_STREAM, results, text_console, utf8_line
from tformer_cli.errors import UsageError
from tformer_cli.show.curves import MetricName, XName, make_chart, read_run
from tformer_cli.show.png import check_png, render_png


class PlotFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
    tsv = "tsv"
    svg = "svg"
    png = "png"


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
    from tformer_cli.show.chart import render_svg, render_tsv, show_chart

    found = make_chart([read_run(run) for run in runs], x, metric or ())
    if chosen == PlotFormat.text:
        with results(output) as stream:
            show_chart(text_console(output, stream), found)
        return
    if chosen == PlotFormat.tsv:
        parts = [utf8_line(line) for line in render_tsv(found)]
    else:
        svg = render_svg(found)
        parts = [render_png(svg) if chosen == PlotFormat.png else svg.encode("utf-8")]
    with results(output) as stream:
        stream.writelines(parts)
