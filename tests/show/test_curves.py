"""Curves of runs, and how they are drawn."""

import math
import random
import re
import struct
from xml.etree import ElementTree as ET

import pytest

from tformer_cli.errors import DataError, UsageError
from tformer_cli.plugins.instruments.chart import (
    Chart,
    Curve,
    Panel,
    chart_rows,
    columns_of,
    make_chart,
    render_svg,
    render_text,
    round_ticks,
    short,
    write_ticks,
    x_scale,
    y_scale,
)
from tformer_cli.plugins.instruments.seed_curves import read_system
from tformer_cli.show import png
from tformer_cli.show.curves import DEFAULT_METRICS, MetricName, XName, read_run
from tformer_cli.show.delimited import delimited_lines
from tformer_cli.show.palette import DARK_LINES, LIGHT_LINES, TERMINAL_LINES, style_of_line
from tformer_cli.show.png import render_png
from tformer_cli.wording import installing


def test_the_last_entry_of_a_step_counts_and_steps_come_in_order(make_run, report, validation):
    run = read_run(
        make_run(
            "run",
            report(10, 5.0),
            report(20, 4.0),
            validation(20, 1.0),
            report(30, 9.0),
            report(20, 3.5),
            validation(20, 2.0),
            report(30, 3.0),
            {"kind": "other", "step": 4},
        )
    )
    assert run.points(MetricName.loss, XName.step) == [(10, 5.0), (20, 3.5), (30, 3.0)]
    assert run.points(MetricName.bleu, XName.step) == [(20, 2.0)]
    assert run.points(MetricName.gradient_norm, XName.step) == []


def test_a_half_written_line_is_omitted_wherever_it_is_cut(make_run, report, tmp_path):
    whole = '{"kind": "report", "step": 20, "loss": 1.0}'
    for length in range(len(whole)):
        run = read_run(make_run(f"run{length}", report(10), rest=whole[:length]))
        assert run.points(MetricName.loss, XName.step) == [(10, 2.0)]
    run = read_run(make_run("run", report(10), rest=whole))
    assert run.points(MetricName.loss, XName.step) == [(10, 2.0), (20, 1.0)]


def test_averaged_weights_are_kept_apart(two_runs):
    run = read_run(two_runs[0])
    assert run.points(MetricName.bleu, XName.step) == [(50, 12.5), (100, 20.0)]
    assert run.points(MetricName.bleu, XName.step, averaged=True) == [(100, 21.0)]
    assert run.points(MetricName.loss, XName.step, averaged=True) == []


def test_validations_lie_between_the_reports_beside_them(make_run, report, validation):
    entries = (report(10), report(20, seconds=100.0), validation(5), validation(15))
    run = read_run(make_run("run", *entries, validation(30)))
    assert run.points(MetricName.bleu, XName.time) == [(10.0, 10.0), (60.0, 10.0), (180.0, 10.0)]
    assert [x for x, _ in run.points(MetricName.loss, XName.tokens)] == [1000, 2000]
    assert [x for x, _ in run.points(MetricName.loss, XName.epochs)] == [1.0, 2.0]


@pytest.mark.parametrize("value", [math.nan, math.inf, "7", None, True, [1]])
def test_values_that_are_not_finite_are_omitted(make_run, report, value):
    run = read_run(make_run("run", report(10, value), report(20)))
    assert run.points(MetricName.loss, XName.step) == [(20, 2.0)]


@pytest.mark.parametrize("line", ["{", "[1]", '{"step": "a"}', '{"kind": "report"}', "[" * 99999])
def test_a_damaged_line_is_named(make_run, report, line):
    run = make_run("run", report(10), rest=f"{line}\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2: is damaged; remove that line"):
        read_run(run)


def test_a_directory_that_is_not_a_run_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"missing: no such run directory"):
        read_run(tmp_path / "missing")
    with pytest.raises(DataError, match=r": has no metrics\.jsonl;"):
        read_run(tmp_path)


def test_special_files_are_not_read(make_run, spoil):
    run = make_run("run")
    with pytest.raises(DataError, match=f"cannot be read .{spoil(run / 'metrics.jsonl')}.; name"):
        read_run(run)


def test_the_usual_panels_are_drawn_as_far_as_runs_have_them(two_runs):
    whole, begun = map(read_run, two_runs)
    chart = make_chart([whole, begun], XName.step)
    assert [panel.name for panel in chart.panels] == list(DEFAULT_METRICS)
    assert [len(panel.curves) for panel in chart.panels] == [2, 2, 2, 1, 1, 1]
    assert chart.has_averages
    alone = make_chart([begun], XName.step)
    assert [panel.name for panel in alone.panels] == list(DEFAULT_METRICS[:3])
    assert not alone.has_averages


def test_a_metric_that_no_run_has_is_an_error_where_it_was_asked_for(two_runs, make_run):
    begun = read_run(two_runs[1])
    with pytest.raises(DataError, match=r"--metric: no run has bleu \(.*gun"):
        make_chart([begun], XName.step, [MetricName.loss, MetricName.bleu])
    empty = read_run(make_run("empty"))
    with pytest.raises(DataError, match="nothing to draw yet"):
        make_chart([empty], XName.step)
    problem = {"failed_step": 2, "problem": "the loss or its gradient is NaN or infinity"}
    failed = make_run("failed", *[{"kind": "rollback", "step": 0, **problem}] * 3)
    with pytest.raises(
        DataError, match=r"training fails at step 2: .* NaN .*rolled back 3 times\);"
    ):
        make_chart([empty, read_run(failed)], XName.step, [MetricName.loss])


def test_a_metric_at_unlike_steps_of_a_group_is_an_error_that_says_so(
    make_run, report, validation, tmp_path
):
    (tmp_path / "group").mkdir()
    for seed, step in ((1, 10), (2, 20)):
        make_run(f"group/seed-{seed}", report(10), validation(step))
    system = read_system(tmp_path / "group")
    with pytest.raises(DataError, match=r"--metric: the runs have no step in common with bleu \("):
        make_chart([system], XName.step, [MetricName.bleu])
    assert make_chart([system], XName.step, [MetricName.loss]).seeds == (2,)
    with pytest.raises(DataError, match="--metric: no run has gradient_norm"):
        make_chart([system], XName.step, [MetricName.gradient_norm])


def test_runs_are_called_by_their_names_unless_these_are_the_same(make_run, report, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [make_run(name, report(10)) for name in ("a/run", "b/run", "tab\there")]
    first, second, third = map(read_run, paths)
    assert make_chart([first, third], XName.step).runs == (
        "run",
        "tab\N{REPLACEMENT CHARACTER}here",
    )
    assert make_chart([first, second], XName.step).runs == (str(paths[0]), str(paths[1]))


def panel_of(name, *values, xs=None):
    points = tuple(zip(xs or range(len(values)), values, strict=True))
    return Panel(name=name, curves=(Curve(run=0, points=points),))


def chart_over(x, *xs):
    shown = panel_of(MetricName.loss, *([1.0] * len(xs)), xs=xs)
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
    scale = y_scale(panel_of(MetricName.loss, *values))
    assert scale.low < scale.high
    assert all(0.0 <= scale.place(value) <= 1.0 for value in values)


def test_scores_and_rates_start_at_zero_but_losses_do_not():
    assert y_scale(panel_of(MetricName.bleu, 30.0, 31.0)).low == 0.0
    assert y_scale(panel_of(MetricName.loss, 30.0, 31.0)).low == 30.0


def test_perplexities_are_logarithmic():
    scale = y_scale(panel_of(MetricName.perplexity, 7000.0, 12.0))
    assert (scale.low, scale.high) == (10.0, 10000.0)
    assert scale.ticks == (10.0, 100.0, 1000.0, 10000.0)
    assert math.isclose(scale.place(100.0), 1 / 3)
    near = y_scale(panel_of(MetricName.perplexity, 5.1, 4.3))
    assert near.ticks == (2.0, 5.0, 10.0)
    assert not y_scale(panel_of(MetricName.gradient_norm, 0.0, 1.0)).is_logarithmic


def test_the_horizontal_axis_suits_its_quantity():
    steps = x_scale(chart_over(XName.step, 50, 12000))
    assert (steps.low, steps.high, steps.name) == (0.0, 12000, "step")
    assert steps.labels == ("0", "2k", "4k", "6k", "8k", "10k", "12k")
    assert x_scale(chart_over(XName.step, 1, 2)).labels == ("0", "1", "2")
    assert x_scale(chart_over(XName.step, 1000, 1010)).low == 1000
    times = x_scale(chart_over(XName.time, 60.0, 7200.0))
    assert (times.labels[-1], times.ticks[-1], times.name) == ("120", 7200.0, "minutes")
    assert x_scale(chart_over(XName.time, 60.0)).name == "seconds"
    assert x_scale(chart_over(XName.time, 1.0, 50_000.0)).name == "hours"


def test_values_are_written_short_and_in_one_form():
    assert write_ticks([0.0, 0.5, 1.0]) == ["0", "0.5", "1.0"]
    assert write_ticks([0.0, 1000.0, 2000.0]) == ["0", "1,000", "2,000"]
    assert write_ticks([0.0, 5000.0, 10000.0]) == ["0", "5k", "10k"]
    assert write_ticks([0.0, 5e6]) == ["0", "5M"]
    assert write_ticks([0.0, 2e-4, 4e-4]) == ["0", "0.0002", "0.0004"]
    assert [short(value) for value in (0.0, 2.3456, 38.55, 9812.3, 1e-5, 1e7)] == [
        "0.000", "2.346", "38.5", "9,812", "1e-05", "1e+07",
    ]  # fmt: skip


SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def chart(two_runs):
    return make_chart(list(map(read_run, two_runs)), XName.step)


def test_an_svg_holds_text_for_eyes_and_ears(chart):
    picture = render_svg(chart)
    root = ET.fromstring(picture)  # noqa: S314 - it was written just before
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"whole", "be<gun>$x$", "averaged weights", "BLEU", "Learning rate"} <= set(texts)
    assert root.find(f"{SVG}title").text == "Training curves: whole, be<gun>$x$"
    assert "BLEU: whole ends at 20.0." in root.find(f"{SVG}desc").text
    assert "prefers-color-scheme:dark" in root.find(f"{SVG}style").text
    assert "<script" not in picture
    assert render_svg(chart) == picture


def test_curves_lie_within_their_panels_and_where_their_values_are(chart):
    root = ET.fromstring(render_svg(chart))  # noqa: S314 - it was written just before
    curves = [e for e in root.iter(f"{SVG}path") if e.get("class") == "curve s0"][1:]
    places = [tuple(map(float, place.split())) for place in curves[0].get("d")[1:].split("L")]
    assert places[0] == (29.0, 0.0)  # step 10 of 100, loss 50 of 50
    assert places[-1] == (290.0, 144.0)  # step 100, loss 5
    for curve in curves:
        for place in curve.get("d")[1:].split("L"):
            x, y = map(float, place.split())
            assert 0 <= x <= 290
            assert 0 <= y <= 160


def test_every_run_looks_different(make_run, report):
    looks = {style_of_line(run) for run in range(21)}
    assert len(looks) == 21
    assert len(LIGHT_LINES) == len(DARK_LINES) == len(TERMINAL_LINES)
    runs = [read_run(make_run(f"run{n}", report(10), report(20))) for n in range(9)]
    assert 'stroke-dasharray="6 3"' in render_svg(make_chart(runs, XName.step))


def test_panels_stand_in_even_rows():
    assert [columns_of(n) for n in range(1, 8)] == [1, 2, 3, 2, 3, 3, 3]


def test_without_resvg_the_extra_is_named(chart, monkeypatch):
    monkeypatch.setattr(png, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=re.escape(installing("png"))):
        render_png(render_svg(chart))


@pytest.mark.needs("png")
def test_a_png_is_the_same_every_time_whatever_the_names(chart):
    picture = render_png(render_svg(chart))
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", picture[16:24])) > 400
    assert render_png(render_svg(chart)) == picture


def draw_panel(points, *, is_ascii=False):
    panel = Panel(name=MetricName.bleu, curves=(Curve(run=3, points=points),))
    scale = x_scale(Chart(runs=("run",), x=XName.step, panels=(panel,)))
    return render_text(panel, scale, width=20, height=4, is_ascii=is_ascii)


def test_a_straight_line_is_a_diagonal_of_dots():
    lines = draw_panel(((0, 0.0), (40, 8.0)))
    assert ["".join(text for text, _ in line) for line in lines] == [
        "         BLEU",
        "     10 ┤          ⢀",
        "        │       ⡠⠔⠊⠁",
        "      5 ┤   ⢀⠤⠒⠉    ",
        "      0 ┤⡠⠔⠊⠁       ",
        "        └───────────",
        "         0   40 step",
    ]
    assert {run for line in lines for _, run in line} == {None, 3}


def test_terminals_of_ascii_get_stars():
    lines = draw_panel(((0, 0.0), (40, 8.0)), is_ascii=True)
    assert all(text.isascii() for line in lines for text, _ in line)
    assert "".join(text for text, _ in lines[2]) == "        |       ****"


def test_a_single_point_is_a_dot():
    dots = [text for line in draw_panel(((7, 3.0),)) for text, run in line if run == 3]
    assert len(dots) == 1


def test_a_table_has_a_line_a_point(two_runs):
    chart = make_chart([read_run(two_runs[0])], XName.time, [MetricName.bleu])
    assert list(delimited_lines(chart_rows(chart), "tsv")) == [
        "run\tmetric\ttime\tvalue\tweights",
        "whole\tbleu\t100\t12.5\tcurrent",
        "whole\tbleu\t200\t20\tcurrent",
        "whole\tbleu\t200\t21\taverage",
    ]
