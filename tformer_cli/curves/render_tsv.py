"""The points of a chart as a table, for other programs."""

from collections.abc import Iterator

from tformer_cli.curves.chart import Chart


def render_tsv(chart: Chart) -> Iterator[str]:
    """Yields a header and a line a point: run, metric, x, value, weights (current or average)."""
    yield f"run\tmetric\t{chart.x}\tvalue\tweights"
    for panel in chart.panels:
        for curve in panel.curves:
            for x, value in curve.points:
                yield _line(chart.runs[curve.run], panel.name, x, value, "current")
            if curve.average is not None:
                yield _line(chart.runs[curve.run], panel.name, *curve.average, "average")


def _line(run: str, name: str, x: float, value: float, weights: str) -> str:
    return "\t".join((run, name, f"{x:.12g}", f"{value:.12g}", weights))
