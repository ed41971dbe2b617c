"""`tformer plot`: the curves of one run or several."""

from pathlib import Path
from typing import Annotated

from tformer_cli.cli.format_choice import check_format, chosen_format, format_option
from tformer_cli.cli.options import (
    OutputOption,
    QuietOption,
    argument,
    option_field,
)
from tformer_cli.cli.streams import STANDARD_STREAM, results, text_console, utf8_line
from tformer_cli.show.curves import MetricName, XName
from tformer_cli.show.delimited import delimited_lines
from tformer_cli.show.figure_files import FIGURES

FORMATS = ("text", "tsv", "csv", *FIGURES)


def plot(
    runs: list[Path] = argument(
        "RUN",
        "Run directories, or folders of `train --seeds`, which are drawn as mean and band; a run "
        "may still be training.",
        role="reads_directory",
    ),
    *,
    output: OutputOption = STANDARD_STREAM,
    output_format: Annotated[str | None, format_option(FORMATS, "tsv")] = None,
    x: XName = option_field(XName.step, "Horizontal axis."),
    metric: list[MetricName] | None = option_field(
        None, "Metric to draw. Repeatable.", shown="losses, scores, learning rate, speed"
    ),
    quiet: QuietOption = False,  # noqa: ARG001 - every command takes it; this one is quiet
) -> None:
    """Plot the training curves of one run or several.

    Losses, scores, learning rate and speed come from each run's metrics.jsonl. tsv and csv have
    one line per point: run, metric, x, value, weights (current, or average at the end of a run);
    time is in seconds. The runs of several seeds are one line, their mean, in a band of one
    standard deviation to either side; the tables then have low and high, too.

    Examples:
        tformer plot runs/quickstart
        tformer plot runs/first runs/second --metric bleu --x time -o bleu.svg
        tformer plot runs/base runs/rotary --metric bleu    # folders of --seeds
        tformer plot runs/quickstart --format tsv > curves.tsv
    """
    chosen = chosen_format(output_format, output, FORMATS, "tsv")
    # Before any run is read: a missing package is an error at once
    check_format(chosen, output)
    from tformer_cli.plugins.instruments.chart import chart_rows, make_chart, render_svg, show_chart
    from tformer_cli.plugins.instruments.seed_curves import read_system

    chart = make_chart(list(map(read_system, runs)), x, metric or ())
    if chosen == "text":
        with results(output) as stream:
            show_chart(text_console(output, stream), chart)
        return
    if chosen in FIGURES:
        figure = FIGURES[chosen].render(render_svg(chart))
        parts = [figure if isinstance(figure, bytes) else figure.encode("utf-8")]
    else:
        parts = [utf8_line(line) for line in delimited_lines(chart_rows(chart), chosen)]
    with results(output) as stream:
        stream.writelines(parts)
