import struct
from xml.etree import ElementTree as ET

import pytest

from tformer_cli.errors import UsageError
from tformer_cli.show import png
from tformer_cli.show.chart import columns_of, render_svg, render_text, render_tsv
from tformer_cli.show.curves import (
    Chart,
    Curve,
    MetricName,
    Panel,
    XName,
    make_chart,
    read_run,
    x_scale,
)
from tformer_cli.show.palette import DARK_LINES, LIGHT_LINES, TERMINAL_LINES, style_of_line
from tformer_cli.show.png import render_png

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
    with pytest.raises(UsageError, match=r"pip install 'tformer\[png\]'"):
        render_png(render_svg(chart))


def test_a_png_is_the_same_every_time_whatever_the_names(chart):
    pytest.importorskip("resvg_py")
    picture = render_png(render_svg(chart))
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", picture[16:24])) > 400
    assert render_png(render_svg(chart)) == picture


def drawn(points, *, is_ascii=False):
    panel = Panel(name=MetricName.bleu, curves=(Curve(run=3, points=points),))
    scale = x_scale(Chart(runs=("run",), x=XName.step, panels=(panel,)))
    return render_text(panel, scale, width=20, height=4, is_ascii=is_ascii)


def test_a_straight_line_is_a_diagonal_of_dots():
    lines = drawn(((0, 0.0), (40, 8.0)))
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
    lines = drawn(((0, 0.0), (40, 8.0)), is_ascii=True)
    assert all(text.isascii() for line in lines for text, _ in line)
    assert "".join(text for text, _ in lines[2]) == "        |       ****"


def test_a_single_point_is_a_dot():
    dots = [text for line in drawn(((7, 3.0),)) for text, run in line if run == 3]
    assert len(dots) == 1


def test_a_table_has_a_line_a_point(two_runs):
    chart = make_chart([read_run(two_runs[0])], XName.time, [MetricName.bleu])
    assert list(render_tsv(chart)) == [
        "run\tmetric\ttime\tvalue\tweights",
        "whole\tbleu\t100\t12.5\tcurrent",
        "whole\tbleu\t200\t20\tcurrent",
        "whole\tbleu\t200\t21\taverage",
    ]
