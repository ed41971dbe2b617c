"""A chart as text: panels drawn with characters for a terminal, or a table for programs."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tformer_cli.curves.chart import Chart, Curve, Panel
from tformer_cli.curves.scales import Scale, y_scale

TextLine = list[tuple[str, int | None]]
"""Pieces of a line, each with the run that it is drawn for; None: axes and words."""

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a Braille character's dots, four rows of two (the Unicode block from U+2800)."""
_LABEL_WIDTH = 7


def render_text(
    panel: Panel, x: Scale, width: int, height: int, *, is_ascii: bool = False
) -> list[TextLine]:
    """Draws a panel: its name, the curves between their axes, the labels of x.

    Args:
        panel: the panel.
        x: the axis of all panels.
        width: columns altogether, at least 20.
        height: lines of the curves, at least 2.
        is_ascii: true if the terminal shows ASCII only.
    """
    y = y_scale(panel, n_ticks=3)
    n_columns = width - _LABEL_WIDTH - 2
    cells = _cells(panel.curves, x, y, n_columns, height)
    labels = {round((1 - y.place(tick)) * (height - 1)): text for tick, text in _ticks(y)}
    bar, tee, corner, dash = "|||-" if is_ascii else "│┤└─"
    lines: list[TextLine] = [[(f"{'':{_LABEL_WIDTH + 2}}{panel.metric.label}", None)]]
    for row in range(height):
        label = labels.get(row, "")
        axis = f"{label[:_LABEL_WIDTH]:>{_LABEL_WIDTH}} {tee if label else bar}"
        lines.append([(axis, None), *_drawn(cells[row], is_ascii=is_ascii)])
    lines.append([(f"{'':{_LABEL_WIDTH}} {corner}{dash * n_columns}", None)])
    lines.append([(f"{'':{_LABEL_WIDTH + 2}}{_x_labels(x, n_columns)}", None)])
    return lines


def _ticks(scale: Scale) -> list[tuple[float, str]]:
    return list(zip(scale.ticks, scale.labels, strict=True))


def _x_labels(x: Scale, width: int) -> str:
    """The first and the last label of an axis, and its name, as far as there is room."""
    last_label = f"{x.labels[-1]} {x.name}"
    place = min(round(x.place(x.ticks[-1]) * width), width - len(last_label))
    gap = place - len(x.labels[0])
    return f"{x.labels[0]}{' ' * gap}{last_label}" if gap > 0 else last_label


def _cells(
    curves: Sequence[Curve], x: Scale, y: Scale, width: int, height: int
) -> list[list[tuple[int, int]]]:
    """The dots of each character and the run that drew there last."""
    cells = [[(0, -1)] * width for _ in range(height)]
    for curve in curves:
        dots = [
            (x.place(a) * (2 * width - 1), (1 - y.place(b)) * (4 * height - 1))
            for a, b in curve.points
        ]
        for column, row in _connected(dots):
            bits, _ = cells[row // 4][column // 2]
            cells[row // 4][column // 2] = (bits | _DOTS[row % 4][column % 2], curve.run)
    return cells


def _connected(dots: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """All dots on the lines from dot to dot."""
    found = [(round(column), round(row)) for column, row in dots[:1]]
    for (left, top), (right, bottom) in pairwise(dots):
        n_steps = max(1, round(max(abs(right - left), abs(bottom - top))))
        shares = [number / n_steps for number in range(1, n_steps + 1)]
        found += [
            (round(left + (right - left) * share), round(top + (bottom - top) * share))
            for share in shares
        ]
    return found


def _drawn(cells: Sequence[tuple[int, int]], *, is_ascii: bool) -> TextLine:
    pieces: TextLine = []
    for bits, run in cells:
        character = " " if not bits else "*" if is_ascii else chr(0x2800 + bits)
        pieces.append((character, run if bits else None))
    return pieces


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
