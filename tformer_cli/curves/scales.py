"""Axes: positions of values, and round values as ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tformer_cli.curves.chart import Chart, Panel
from tformer_cli.curves.metrics import XName

_ROUND = (1.0, 2.0, 5.0, 10.0)
_TIME_UNITS = ((3 * 3600, 3600.0, "hours"), (180, 60.0, "minutes"), (0, 1.0, "seconds"))
_X_LABELS = {XName.step: "step", XName.tokens: "target tokens", XName.epochs: "epochs"}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis."""

    low: float
    """The value at its beginning."""
    high: float
    """The value at its end, above `low`."""
    ticks: tuple[float, ...]
    """Round values within."""
    labels: tuple[str, ...]
    """Written forms of them."""
    is_logarithmic: bool = False
    """True if equal steps are equal factors."""
    name: str = ""
    """Quantity that it measures."""

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
    low = low if low > (high - low) else 0.0
    high = high if high > low else low + 1.0
    unit, name = 1.0, _X_LABELS.get(chart.x, "")
    if chart.x == XName.time:
        unit, name = next((unit, name) for least, unit, name in _TIME_UNITS if high >= least)
    ticks = [tick for tick in round_ticks(low / unit, high / unit, n_ticks) if tick * unit <= high]
    if chart.x == XName.step:
        ticks = [tick for tick in ticks if tick == int(tick)]
    ticks = [tick for tick in ticks if tick * unit >= low] or [low / unit]
    return Scale(
        low=low,
        high=high,
        ticks=tuple(tick * unit for tick in ticks),
        labels=tuple(written(ticks)),
        name=name,
    )


def y_scale(panel: Panel, n_ticks: int = 6) -> Scale:
    """Makes the axis of a panel, from one round value to another."""
    values = [y for _, y in panel.points]
    if panel.metric.is_logarithmic and min(values) > 0.0:
        return _logarithmic(values)
    low = min(0.0, *values) if panel.metric.starts_at_zero else min(values)
    high = max(values)
    largest = max(abs(low), abs(high))
    if high - low <= 1e-12 * largest:  # a flat curve still needs some height
        low, high = (0.0, 1.0) if largest < 1e-300 else (min(0.0, high * 2), max(0.0, high * 2))
    ticks = round_ticks(low, high, n_ticks)
    return Scale(low=ticks[0], high=ticks[-1], ticks=tuple(ticks), labels=tuple(written(ticks)))


def round_ticks(low: float, high: float, n_ticks: int) -> list[float]:
    """Lists round values from at most `low` to at least `high`, about `n_ticks` of them."""
    rough = (high - low) / max(1, n_ticks - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in _ROUND if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _logarithmic(values: Sequence[float]) -> Scale:
    """Makes an axis between two of 1, 2, 5, 10, …; many decades are marked by powers of ten."""
    exponents = range(
        math.floor(math.log10(min(values))) - 1, math.ceil(math.log10(max(values))) + 2
    )
    marks = [factor * 10.0**exponent for exponent in exponents for factor in (1.0, 2.0, 5.0)]
    low = max(mark for mark in marks if mark <= min(values) * (1 + 1e-9))
    high = min(mark for mark in marks if mark >= max(values) * (1 - 1e-9) and mark > low)
    ticks = [mark for mark in marks if low <= mark <= high]
    if len(ticks) > 6:
        ticks = [mark for mark in ticks if math.log10(mark) == round(math.log10(mark))]
    labels = tuple(written([tick])[0] for tick in ticks)
    return Scale(low=low, high=high, ticks=tuple(ticks), labels=labels, is_logarithmic=True)


def written(ticks: Sequence[float]) -> list[str]:
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
    """Writes one value in about four digits."""
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}"
    n_decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:,.{n_decimals}f}"
