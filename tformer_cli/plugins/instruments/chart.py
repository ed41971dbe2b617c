"""A chart of curves: as SVG, with characters on a terminal, or as a table for programs."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element, SubElement

from tformer_cli.errors import DataError
from tformer_cli.plugins.instruments.seed_curves import SeedMetrics
from tformer_cli.show.curves import DEFAULT_METRICS, MetricName, Point, RunMetrics, XName
from tformer_cli.show.palette import DARK_LINES, LIGHT_LINES, TERMINAL_LINES, style_of_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_PLOT_WIDTH, _PLOT_HEIGHT = 290.0, 160.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 18.0, 30.0, 44.0
_MARGIN, _LINE = 16.0, 22.0
# Curves of at most this many points show each of them.
_MARKED = 12
_FONT = "system-ui,-apple-system,'Segoe UI','Noto Sans',sans-serif"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric of a run."""

    run: int
    """Index of the chart's run."""
    points: tuple[Point, ...]
    average: Point | None = None
    band: tuple[tuple[float, float, float], ...] = ()
    """(x, low, high) at each point: one standard deviation around a mean of several runs."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A metric of all runs that have it: at least one."""

    name: MetricName
    curves: tuple[Curve, ...]

    @property
    def points(self) -> list[Point]:
        averages = [curve.average for curve in self.curves if curve.average is not None]
        edges = [(x, y) for curve in self.curves for x, *ys in curve.band for y in ys]
        return [point for curve in self.curves for point in curve.points] + averages + edges


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels, at least one, over the same x; time is in seconds."""

    runs: tuple[str, ...]
    x: XName
    panels: tuple[Panel, ...]
    seeds: tuple[int, ...] = ()
    """Number of runs that each curve is the mean of; empty: one each."""

    @property
    def titles(self) -> list[str]:
        """Names of the curves, with the number of seeds where there are several."""
        counts = self.seeds or [1] * len(self.runs)
        return [
            f"{name} ({count} seeds)" if count > 1 else name
            for name, count in zip(self.runs, counts, strict=True)
        ]

    @property
    def has_averages(self) -> bool:
        return any(c.average is not None for panel in self.panels for c in panel.curves)

    @property
    def has_bands(self) -> bool:
        return any(c.band for panel in self.panels for c in panel.curves)


def make_chart(
    systems: Sequence[RunMetrics | SeedMetrics], x: XName, names: Sequence[MetricName] = ()
) -> Chart:
    """Collects the curves of some systems: the metrics asked for, or the usual that they have.

    Runs of a `train --seeds` are one system, with a mean and a band.
    """
    runs = [
        run
        for system in systems
        for run in (system.runs if isinstance(system, SeedMetrics) else (system,))
    ]
    if not any(run.reports or run.validations or run.averages for run in runs):
        raise DataError(max(runs, key=lambda run: len(run.rollbacks)).why_empty)
    panels = [_make_panel(systems, x, name) for name in dict.fromkeys(names) or DEFAULT_METRICS]
    paths = ", ".join(str(system.path) for system in systems)
    for panel in panels:
        if names and not panel.curves:
            if any(run.points(panel.name, XName.step) for run in runs):
                raise DataError(
                    f"--metric: the runs have no step in common with {panel.name} ({paths}); "
                    "name one of them"
                )
            raise DataError(
                f"--metric: no run has {panel.name} ({paths}); omit it, or wait for the "
                f"first {panel.name.kind}"
            )
    shown = tuple(panel for panel in panels if panel.curves)
    if not shown:
        raise DataError(f"{paths}: nothing to draw; name one with --metric")
    return Chart(
        runs=_labels([system.path for system in systems]),
        x=x,
        panels=shown,
        seeds=tuple(len(s.runs) if isinstance(s, SeedMetrics) else 1 for s in systems),
    )


def _make_panel(systems: Sequence[RunMetrics | SeedMetrics], x: XName, name: MetricName) -> Panel:
    curves = []
    for number, system in enumerate(systems):
        if isinstance(system, SeedMetrics):
            means = system.points(name, x)
            points = tuple((mean.x, mean.value) for mean in means)
            average, band = system.average(name, x), tuple(mean.band for mean in means)
        else:
            points, band = tuple(system.points(name, x)), ()
            averages = system.points(name, x, averaged=True)
            average = averages[-1] if averages else None
        if points:
            curves.append(Curve(run=number, points=points, average=average, band=band))
    return Panel(name=name, curves=tuple(curves))


def _labels(paths: Sequence[Path]) -> tuple[str, ...]:
    """The last part of each path, or all of it where two are alike."""
    # "." and "runs/a/" have no last part
    names = [path.resolve().name for path in paths]
    labels = names if len(set(names)) == len(names) else [str(path) for path in paths]
    # They go into XML, tables and terminals, and must steer none of these.
    return tuple(
        "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in label)
        for label in labels
    )


_ROUND = (1.0, 2.0, 5.0, 10.0)
_TIME_UNITS = ((3 * 3600, 3600.0, "hours"), (180, 60.0, "minutes"), (0, 1.0, "seconds"))
_X_LABELS = {XName.step: "step", XName.tokens: "target tokens", XName.epochs: "epochs"}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis from `low` to `high`, which is above it, with round values as ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    is_logarithmic: bool = False
    """True if equal steps are equal factors."""
    name: str = ""

    def place(self, value: float) -> float:
        """Returns the position of a value: 0 at the beginning, 1 at the end."""
        low, high = self.low, self.high
        if self.is_logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return (value - low) / (high - low)


def x_scale(chart: Chart, n_ticks: int = 7) -> Scale:
    """Makes the axis that all panels share; it begins at 0 unless all is far from it."""
    values = [x for panel in chart.panels for x, _ in panel.points]
    low, high = min(values), max(values)
    # near 0 the distance from it tells something; far from it, it would press the curve flat
    low = low if low > (high - low) else 0.0
    high = high if high > low else low + 1.0
    unit, name = 1.0, _X_LABELS.get(chart.x, "")
    if chart.x == XName.time:
        unit, name = next((unit, name) for least, unit, name in _TIME_UNITS if high >= least)
    ticks = [tick for tick in round_ticks(low / unit, high / unit, n_ticks) if tick * unit <= high]
    if chart.x == XName.step:
        # steps are whole numbers
        ticks = [tick for tick in ticks if tick == int(tick)]
    ticks = [tick for tick in ticks if tick * unit >= low] or [low / unit]
    labels = tuple(write_ticks(ticks))
    scaled = tuple(tick * unit for tick in ticks)
    return Scale(low=low, high=high, ticks=scaled, labels=labels, name=name)


def y_scale(panel: Panel, n_ticks: int = 6) -> Scale:
    """Makes the axis of a panel, from one round value to another."""
    values = [y for _, y in panel.points]
    if panel.name.axis == "log" and min(values) > 0.0:
        return _logarithmic(values)
    low = min(0.0, *values) if panel.name.axis == "zero" else min(values)
    high = max(values)
    largest = max(abs(low), abs(high))
    if high - low <= 1e-12 * largest:  # a flat curve still needs some height
        low, high = (0.0, 1.0) if largest < 1e-300 else (min(0.0, high * 2), max(0.0, high * 2))
    ticks = round_ticks(low, high, n_ticks)
    return Scale(low=ticks[0], high=ticks[-1], ticks=tuple(ticks), labels=tuple(write_ticks(ticks)))


def round_ticks(low: float, high: float, n_ticks: int) -> list[float]:
    """Lists round values from at most `low` to at least `high`, about `n_ticks` of them."""
    rough = (high - low) / max(1, n_ticks - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    # 1e-9: what is equal but for rounding must not cost a whole step
    step = next(factor * power for factor in _ROUND if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _logarithmic(values: Sequence[float]) -> Scale:
    """Makes an axis between two of 1, 2, 5, 10, …; many decades are marked by powers of ten."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    exponents = range(first - 1, last + 2)
    marks = [factor * 10.0**exponent for exponent in exponents for factor in (1.0, 2.0, 5.0)]
    low = max(mark for mark in marks if mark <= min(values) * (1 + 1e-9))
    high = min(mark for mark in marks if mark >= max(values) * (1 - 1e-9) and mark > low)
    ticks = [mark for mark in marks if low <= mark <= high]
    # labels of many decades would overlap
    if len(ticks) > 6:
        ticks = [mark for mark in ticks if math.log10(mark) == round(math.log10(mark))]
    labels = tuple(write_ticks([tick])[0] for tick in ticks)
    return Scale(low=low, high=high, ticks=tuple(ticks), labels=labels, is_logarithmic=True)


def write_ticks(ticks: Sequence[float]) -> list[str]:
    """Writes values in one form, as short as distinguishes them: 0.5, 2,000, 40k, 1.5M, 5e-05."""
    largest = max(map(abs, ticks))
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if largest >= least:
            return [_plain(tick / unit) + (letter if tick else "") for tick in ticks]
    if 0.0 < largest < 1e-3:
        return [f"{tick:.3g}" for tick in ticks]
    n_decimals = max(len(_plain(tick).partition(".")[2]) for tick in ticks)
    return [f"{tick:,.{n_decimals}f}" if tick else "0" for tick in ticks]


def _plain(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def short(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}"
    n_decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:,.{n_decimals}f}"


def render_svg(chart: Chart) -> str:
    """Renders the panels in rows of at most three, under a legend."""
    n_columns = columns_of(len(chart.panels))
    width = 2 * _MARGIN + n_columns * (_LEFT + _PLOT_WIDTH + _RIGHT)
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
    root.set("aria-labelledby", "title description")
    SubElement(root, "title", {"id": "title"}).text = f"Training curves: {', '.join(chart.titles)}"
    SubElement(root, "desc", {"id": "description"}).text = description(chart)
    SubElement(root, "style").text = _style(has_bands=chart.has_bands)
    SubElement(root, "rect", {"width": "100%", "height": "100%", "class": "ground"})
    # names take as many lines as they need
    top = _legend(root, chart, width)
    scale = x_scale(chart)
    for place, panel in enumerate(chart.panels):
        row, column = divmod(place, n_columns)
        x = _MARGIN + column * (_LEFT + _PLOT_WIDTH + _RIGHT)
        y = top + row * (_TOP + _PLOT_HEIGHT + _BOTTOM)
        corner = f"translate({_number(x + _LEFT)} {_number(y + _TOP)})"
        group = SubElement(root, "g", {"transform": corner})
        _panel(group, panel, scale, is_alone=len(chart.runs) == 1)
    n_rows = -(-len(chart.panels) // n_columns)
    height = top + n_rows * (_TOP + _PLOT_HEIGHT + _BOTTOM) + _MARGIN / 2
    size = {"width": _number(width), "height": _number(height)}
    root.attrib.update(size, viewBox=f"0 0 {size['width']} {size['height']}")
    return ET.tostring(root, encoding="unicode") + "\n"


def columns_of(n_panels: int) -> int:
    # four look better as two rows of two
    return n_panels if n_panels <= 3 else 2 if n_panels == 4 else 3


def description(chart: Chart) -> str:
    """Describes the chart in words: the last value of every curve."""
    # for screen readers, which `aria-labelledby` sends here
    parts = [
        f"{panel.name.label}: "
        + ", ".join(f"{chart.runs[c.run]} ends at {short(c.points[-1][1])}" for c in panel.curves)
        for panel in chart.panels
    ]
    return ". ".join(parts) + "."


def _style(*, has_bands: bool) -> str:
    # rules, not attributes: only they can follow the reader's choice of a light or dark page
    rules = [
        f"text{{font:12px {_FONT};fill:#24292f}}",
        ".small{font-size:11px;fill:#59636e}.name{font-weight:600}",
        ".ground{fill:#fff}.grid{stroke:#e4e8ec}.axis{stroke:#8c959f}",
        ".curve{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}",
        ".hollow{stroke-width:1.8;fill:#fff}",
    ]
    if has_bands:
        rules += [".band{opacity:.2}"]
    rules += [_colors(LIGHT_LINES)]
    dark = [
        "text{fill:#e6edf3}.small{fill:#9198a1}.ground,.hollow{fill:#0d1117}",
        ".grid{stroke:#262c36}.axis{stroke:#656c76}",
        _colors(DARK_LINES),
    ]
    return "".join(rules) + "@media (prefers-color-scheme:dark){" + "".join(dark) + "}"


def _colors(colors: Sequence[str]) -> str:
    return "".join(f".s{n}{{stroke:{c}}}.f{n}{{fill:{c}}}" for n, c in enumerate(colors))


def _legend(root: Element, chart: Chart, width: float) -> float:
    """Draws the runs' names, in as many lines as they need; returns their lower edge."""
    x, y = _MARGIN + 6, _MARGIN + 8.0
    for run, label in enumerate(chart.titles):
        # about a letter's width in 12 px; too much room is better than an overlap
        text_width = 34 + 7.2 * len(label) + 20
        if x > _MARGIN + 6 and x + text_width > width:
            x, y = _MARGIN + 6, y + _LINE
        if len(chart.runs) > 1:
            _stroke(root, run, {"d": f"M{_number(x)} {_number(y - 4)}h22"})
            _text(root, label, x + 30, y)
        else:
            _text(root, label, x, y, css="name")
        x += text_width
    if chart.has_averages:
        if x + 140 > width:
            x, y = _MARGIN + 6, y + _LINE
        SubElement(root, "path", {"d": _diamond(x + 6, y - 4), "class": "axis hollow"})
        _text(root, "averaged weights", x + 18, y, css="small")
        x += 140
    if chart.has_bands:
        if x + 250 > width:
            x, y = _MARGIN + 6, y + _LINE
        _text(root, _BAND_LEGEND, x, y, css="small")
    return y + 8


def _panel(group: Element, panel: Panel, x: Scale, *, is_alone: bool) -> None:
    y = y_scale(panel)
    _text(group, panel.name.label, 0, -12, css="name")
    if is_alone:
        last = short(panel.curves[0].points[-1][1])
        _text(group, f"last {last}", _PLOT_WIDTH, -12, css="small", anchor="end")
    _axes(group, x, y)
    for curve in panel.curves:
        _curve(group, curve, x, y)


def _axes(group: Element, x: Scale, y: Scale) -> None:
    for tick, label in zip(y.ticks, y.labels, strict=True):
        height = _PLOT_HEIGHT * (1 - y.place(tick))
        is_base = tick == y.low
        line = {"d": f"M0 {_number(height)}H{_number(_PLOT_WIDTH)}", "fill": "none"}
        SubElement(group, "path", line | {"class": "axis" if is_base else "grid"})
        _text(group, label, -8, height + 4, css="small", anchor="end")
    for tick, label in zip(x.ticks, x.labels, strict=True):
        place = _PLOT_WIDTH * x.place(tick)
        mark = {"d": f"M{_number(place)} {_number(_PLOT_HEIGHT)}v4", "class": "axis"}
        SubElement(group, "path", mark)
        _text(group, label, place, _PLOT_HEIGHT + 17, css="small", anchor="middle")
    _text(group, x.name, _PLOT_WIDTH, _PLOT_HEIGHT + 32, css="small", anchor="end")


def _curve(group: Element, curve: Curve, x: Scale, y: Scale) -> None:
    if curve.band:
        # along the upper edge, and back along the lower one
        edge = [(a, high) for a, _, high in curve.band]
        edge += [(a, low) for a, low, _ in reversed(curve.band)]
        outline = "L".join(" ".join(_place(point, x, y)) for point in edge)
        color, _ = style_of_line(curve.run)
        SubElement(group, "path", {"d": f"M{outline}z", "class": f"band f{color}"})
    places = [_place(point, x, y) for point in curve.points]
    if len(places) > 1:
        _stroke(group, curve.run, {"d": "M" + "L".join(f"{a} {b}" for a, b in places)})
    color, _ = style_of_line(curve.run)
    # few points would look like a course that was measured throughout
    for a, b in places if len(places) <= _MARKED else ():
        SubElement(group, "circle", {"cx": a, "cy": b, "r": "2.6", "class": f"f{color}"})
    if curve.average is not None:
        across, up = map(float, _place(curve.average, x, y))
        SubElement(group, "path", {"d": _diamond(across, up), "class": f"s{color} hollow"})


def _place(point: Point, x: Scale, y: Scale) -> tuple[str, str]:
    across, up = x.place(point[0]), y.place(point[1])
    return _number(_PLOT_WIDTH * across), _number(_PLOT_HEIGHT * (1 - up))


def _stroke(parent: Element, run: int, attributes: dict[str, str]) -> None:
    color, dash = style_of_line(run)
    dashed = {"stroke-dasharray": dash} if dash else {}
    SubElement(parent, "path", attributes | {"class": f"curve s{color}"} | dashed)


def _diamond(x: float, y: float) -> str:
    return f"M{_number(x)} {_number(y - 5)}l5 5l-5 5l-5 -5z"


def _text(
    parent: Element, text: str, x: float, y: float, *, css: str = "", anchor: str = ""
) -> None:
    attributes = {"x": _number(x), "y": _number(y)}
    options = {"class": css, "text-anchor": anchor}
    attributes |= {name: value for name, value in options.items() if value}
    SubElement(parent, "text", attributes).text = text


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a Braille character's dots, four rows of two (the Unicode block from U+2800)."""
_LINE_BIT = 0x100
"""Bit of a character that a line goes through: a band alone has not got it."""
_BAND_LEGEND = "line: mean; band: ± one standard deviation"
_LABEL_WIDTH = 7
_WIDEST, _NARROWEST, _HEIGHT = 56, 34, 8
"""Columns and lines of a panel on a terminal."""
# Pieces of a line, each with the run that it is drawn for; None: axes and words.
TextLine = list[tuple[str, int | None]]


def show_chart(console: "Console", chart: Chart) -> None:
    """Prints the panels with characters, as many side by side as there is room for."""
    # rich takes long to import, and SVG and tables do without it
    from rich.text import Text

    from tformer_cli.show.terminal import is_ascii_only, isolate_text, show_text

    is_ascii = is_ascii_only(console)
    names = [
        Text(isolate_text(show_text(label, is_ascii=is_ascii)), f"bold {_terminal_color(run)}")
        for run, label in enumerate(chart.titles)
    ]
    console.print(Text("  ").join(names))
    if chart.has_bands:
        console.print(Text(_BAND_LEGEND.replace("±", "+-" if is_ascii else "±"), "dim"))
    n_columns = max(1, min(3, len(chart.panels), console.width // _NARROWEST))
    width = max(20, min(_WIDEST, console.width // n_columns - 1))
    scale = x_scale(chart)
    for start in range(0, len(chart.panels), n_columns):
        drawn = [
            render_text(panel, scale, width, _HEIGHT, is_ascii=is_ascii)
            for panel in chart.panels[start : start + n_columns]
        ]
        for number, line in enumerate(zip(*drawn, strict=True)):
            row = Text()
            for pieces in line:
                styled = _style_text(pieces, "dim" if number else "bold")
                styled.pad_right(width + 1 - styled.cell_len)
                row.append_text(styled)
            row.rstrip()
            console.print(row, no_wrap=True, crop=True, overflow="crop")


def _style_text(pieces: TextLine, style: str) -> "Text":
    from rich.text import Text

    styled = ((piece, style if run is None else _terminal_color(run)) for piece, run in pieces)
    return Text.assemble(*styled)


def _terminal_color(run: int) -> str:
    return TERMINAL_LINES[style_of_line(run)[0]]


def render_text(
    panel: Panel, x: Scale, width: int, height: int, *, is_ascii: bool = False
) -> list[TextLine]:
    """Draws a panel, at least 20 columns wide: its name, the curves between their axes."""
    axes = x, y_scale(panel, n_ticks=3)
    name: TextLine = [(f"{'':{_LABEL_WIDTH + 2}}{panel.name.label}", None)]
    return [name, *render_curves(panel.curves, axes, width, height, is_ascii=is_ascii)]


def render_curves(
    curves: Sequence[Curve],
    axes: tuple[Scale, Scale],
    width: int,
    height: int,
    *,
    is_ascii: bool = False,
) -> list[TextLine]:
    """Draws curves between their axes (x, y), at least 20 columns wide and `height` lines high."""
    x, y = axes
    n_columns = width - _LABEL_WIDTH - 2
    cells = _cells(curves, x, y, n_columns, height)
    ticks = zip(y.ticks, y.labels, strict=True)
    labels = {round((1 - y.place(tick)) * (height - 1)): text for tick, text in ticks}
    bar, tee, corner, dash = "|||-" if is_ascii else "│┤└─"
    lines: list[TextLine] = []
    for row, drawn in enumerate(cells):
        label = labels.get(row, "")
        axis = f"{label[:_LABEL_WIDTH]:>{_LABEL_WIDTH}} {tee if label else bar}"
        lines.append([(axis, None), *(_piece(*cell, is_ascii=is_ascii) for cell in drawn)])
    lines.append([(f"{'':{_LABEL_WIDTH}} {corner}{dash * n_columns}", None)])
    lines.append([(f"{'':{_LABEL_WIDTH + 2}}{_x_labels(x, n_columns)}", None)])
    return lines


def _piece(bits: int, run: int, *, is_ascii: bool) -> tuple[str, int | None]:
    if not bits:
        return " ", None
    if is_ascii:
        return "*" if bits & _LINE_BIT else ".", run
    return chr(0x2800 + bits % _LINE_BIT), run


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

    def draw(column: int, row: int, run: int, more: int = 0) -> None:
        # a character has one color: of curves that cross there, the last one's
        bits, _ = cells[row // 4][column // 2]
        cells[row // 4][column // 2] = (bits | _DOTS[row % 4][column % 2] | more, run)

    def dots(points: Iterable[Point]) -> list[tuple[float, float]]:
        return [
            (x.place(a) * (2 * width - 1), (1 - y.place(b)) * (4 * height - 1)) for a, b in points
        ]

    for curve in (c for c in curves if c.band):  # first: lines lie on all bands
        lows, highs = (
            dict(_connect_dots(dots((a, edges[side]) for a, *edges in curve.band)))
            for side in (0, 1)
        )
        for column in range(0, 2 * width, 2):
            for row in range(highs.get(column, 0), lows.get(column, -1) + 1):
                if row % 2 == 0:
                    draw(column, row, curve.run)
    for curve in curves:
        for column, row in _connect_dots(dots(curve.points)):
            draw(column, row, curve.run, _LINE_BIT)
    return cells


def _connect_dots(dots: Sequence[tuple[float, float]]) -> Iterator[tuple[int, int]]:
    """All dots on the lines from dot to dot."""
    yield round(dots[0][0]), round(dots[0][1])
    for (left, top), (right, bottom) in pairwise(dots):
        n_steps = max(1, round(max(abs(right - left), abs(bottom - top))))
        for number in range(1, n_steps + 1):
            share = number / n_steps
            yield round(left + (right - left) * share), round(top + (bottom - top) * share)


def chart_rows(chart: Chart) -> Iterator[Sequence[str]]:
    """Yields a header and a row a point: run, metric, x, value, weights (current or average).

    Where a system has several seeds there are two more: low and high, the edges of its band.
    """
    yield "run", "metric", chart.x, "value", "weights", *(("low", "high") * chart.has_bands)
    for panel in chart.panels:
        for curve in panel.curves:
            points = [(*point, "current") for point in curve.points]
            edges = [(f"{low:.12g}", f"{high:.12g}") for _, low, high in curve.band]
            if curve.average is not None:
                points.append((*curve.average, "average"))
            for number, (x, value, weights) in enumerate(points):
                run = chart.runs[curve.run]
                no_edges = ("", "") * chart.has_bands
                band = edges[number] if number < len(edges) else no_edges
                yield run, panel.name, f"{x:.12g}", f"{value:.12g}", weights, *band
