import math
import random

import pytest

from tformer_cli.curves.chart import Chart, Curve, Panel
from tformer_cli.curves.metrics import MetricName, XName
from tformer_cli.curves.scales import round_ticks, short, written, x_scale, y_scale


def panel(name, *values, xs=None):
    points = tuple(zip(xs or range(len(values)), values, strict=True))
    return Panel(name=name, curves=(Curve(run=0, points=points),))


def chart(x, *xs):
    shown = panel(MetricName.loss, *([1.0] * len(xs)), xs=xs)
    return Chart(runs=("run",), x=x, panels=(shown,))


def test_ticks_are_round_and_enclose_any_values():
    dice = random.Random(1)
    for _ in range(500):
        low = dice.uniform(-1, 1) * 10 ** dice.uniform(-6, 6)
        high = low + 10 ** dice.uniform(-6, 6)
        ticks = round_ticks(low, high, 6)
        blur = 1e-8 * (ticks[1] - ticks[0])
        assert ticks[0] <= low + blur
        assert ticks[-1] >= high - blur
        assert 2 <= len(ticks) <= 8
        leading = f"{ticks[1] - ticks[0]:.0e}"[0]
        assert leading in "125"


@pytest.mark.parametrize(
    "values",
    [[0.0], [5.0], [-3.0], [0.0, 0.0], [5e-324], [1e-300], [1e12, 1e12], [1.0, 1.0 + 2e-16]],
)
def test_flat_curves_have_an_axis_too(values):
    scale = y_scale(panel(MetricName.loss, *values))
    assert scale.low < scale.high
    assert all(0.0 <= scale.place(value) <= 1.0 for value in values)


def test_scores_and_rates_start_at_zero_but_losses_do_not():
    assert y_scale(panel(MetricName.bleu, 30.0, 31.0)).low == 0.0
    assert y_scale(panel(MetricName.loss, 30.0, 31.0)).low == 30.0


def test_perplexities_are_logarithmic():
    scale = y_scale(panel(MetricName.perplexity, 7000.0, 12.0))
    assert (scale.low, scale.high) == (10.0, 10000.0)
    assert scale.ticks == (10.0, 100.0, 1000.0, 10000.0)
    assert math.isclose(scale.place(100.0), 1 / 3)
    near = y_scale(panel(MetricName.perplexity, 5.1, 4.3))
    assert near.ticks == (2.0, 5.0, 10.0)
    assert not y_scale(panel(MetricName.gradient_norm, 0.0, 1.0)).is_logarithmic


def test_the_horizontal_axis_suits_its_quantity():
    steps = x_scale(chart(XName.step, 50, 12000))
    assert (steps.low, steps.high, steps.name) == (0.0, 12000, "step")
    assert steps.labels == ("0", "2k", "4k", "6k", "8k", "10k", "12k")
    assert x_scale(chart(XName.step, 1, 2)).labels == ("0", "1", "2")
    assert x_scale(chart(XName.step, 1000, 1010)).low == 1000
    times = x_scale(chart(XName.time, 60.0, 7200.0))
    assert (times.labels[-1], times.ticks[-1], times.name) == ("120", 7200.0, "minutes")
    assert x_scale(chart(XName.time, 60.0)).name == "seconds"
    assert x_scale(chart(XName.time, 1.0, 50_000.0)).name == "hours"


def test_values_are_written_short_and_in_one_form():
    assert written([0.0, 0.5, 1.0]) == ["0", "0.5", "1.0"]
    assert written([0.0, 1000.0, 2000.0]) == ["0", "1,000", "2,000"]
    assert written([0.0, 5000.0, 10000.0]) == ["0", "5k", "10k"]
    assert written([0.0, 5e6]) == ["0", "5M"]
    assert written([0.0, 2e-4, 4e-4]) == ["0", "0.0002", "0.0004"]
    assert [short(value) for value in (0.0, 2.3456, 38.55, 9812.3, 1e-5, 1e7)] == [
        "0.000", "2.346", "38.5", "9,812", "1e-05", "1e+07",
    ]  # fmt: skip
