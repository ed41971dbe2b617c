"""Runs in, a chart of their curves out."""

from collections.abc import Sequence
from pathlib import Path

from tformer_cli.curves.chart import Chart, make_chart
from tformer_cli.curves.metrics import MetricName, XName
from tformer_cli.curves.read import read_run


def plot_runs(
    runs: Sequence[Path], *, x: XName = XName.step, metrics: Sequence[MetricName] = ()
) -> Chart:
    """Collects the curves of runs, which `curves.render_svg` and its neighbors draw.

    Args:
        runs: run directories, finished or at work; at least one.
        x: the horizontal axis.
        metrics: metrics to draw; none: the usual ones, as far as the runs have them.

    Raises:
        DataError: if a run cannot be read, or has no metrics.
    """
    return make_chart([read_run(run) for run in runs], x, metrics)
