import re
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import torch

from tests.inspect.conftest import LAYOUT
from tformer_cli.heads.names import KINDS, HeadId
from tformer_cli.inspect.heads.metrics import metrics_of
from tformer_cli.inspect.pages import render_view
from tformer_cli.plugins.instruments.comparison import (
    MAPS_DRAWN,
    HeadChange,
    HeadDiff,
    HeadDistances,
    changes_of,
    choose_drawn_changes,
    summary_of,
)
from tformer_cli.plugins.instruments.views.diff import (
    VIEW,
    DiffOptions,
    change_data,
)
from tformer_cli.show.palette import color, signed_color, signed_hex_color


@pytest.fixture
def diff(make_record):
    """A record and the same with the heads of its maps in another order, one of them changed."""
    before = make_record(source=("</p>", "b$", "&c", "d"))
    maps = before.captured
    after = replace(
        before,
        maps=replace(
            maps,
            enc=(maps.enc[0][::-1], maps.enc[1], maps.enc[2]),
            cross=(maps.cross[0], maps.cross[1][..., ::-1]),
        ),
    )
    distances = HeadDistances(LAYOUT, LAYOUT, KINDS)
    distances.add(before.captured, after.captured)
    metrics = tuple(metrics_of(record.captured, list(LAYOUT)) for record in (before, after))
    return HeadDiff(
        first=before.model,
        second=before.model,
        matching="layer",
        n_sentences=1,
        changes=tuple(changes_of((LAYOUT, LAYOUT), distances, metrics, list(KINDS), "layer")),
        shown=(before, after),
    )


def test_each_line_tells_of_a_pair(diff):
    lines = list(VIEW.lines(diff, DiffOptions(maps=True)))
    assert [line["a"] for line in lines] == [str(head) for head in LAYOUT]
    by_name = {line["a"]: line for line in lines}
    assert [by_name["enc.0.0"]["b"], by_name["enc.0.1"]["b"]] == ["enc.0.1", "enc.0.0"]
    assert by_name["enc.0.0"]["divergence"] == 0.0
    assert by_name["enc.0.0"]["divergence_in_place"] > 0.01
    assert by_name["enc.0.0"]["has_moved"]
    for name, line in by_name.items():
        assert line["schema"] == "tformer.headdiff/1"
        assert (line["divergence"] > 0.0) == name.startswith("cross.1.")
        rows = torch.tensor(line["difference"])
        assert rows.shape == (len(line["rows"]), len(line["columns"]))
        assert rows.sum(dim=-1).abs().max() < 1e-5
        assert (rows.abs().max() > 0.0) == name.startswith("cross.1.")
    assert "difference" not in change_data(diff, diff.changes[0])


def test_a_head_without_a_counterpart_has_null_on_the_other_side(diff):
    nothing = {"first": None, "divergence": None, "divergence_in_place": None}
    lone = replace(diff.changes[0], **nothing, first_role=None)
    line = change_data(diff, lone, with_map=True)
    assert (line["a"], line["divergence"], line["role_a"]) == (None, None, None)
    assert not line["has_moved"]
    assert not line["has_changed_role"]
    assert line["kind"] == "enc"
    assert "only in B: enc.0.1" in summary_of(replace(diff, changes=(lone,)))


def test_the_summary_counts(diff):
    assert summary_of(diff).startswith("1 sentence; 14 heads paired within their layer, mean ")
    moved = [str(change.first) for change in diff.changes if change.has_moved]
    assert moved[:2] == ["enc.0.0", "enc.0.1"]
    assert f"; {len(moved)} moved, 0 changed role" in summary_of(diff)
    assert summary_of(replace(diff, matching="kind", n_sentences=1234)).startswith(
        "1,234 sentences"
    )


def test_the_most_changed_come_first_in_the_picture(diff):
    assert len(choose_drawn_changes(diff)) == MAPS_DRAWN
    assert {str(change.first) for change in choose_drawn_changes(diff)[:2]} == {
        "cross.1.0",
        "cross.1.1",
    }
    assert diff.most_changed == choose_drawn_changes(diff)[0]
    root = ET.fromstring(VIEW.figure(diff))  # noqa: S314 - made here
    texts = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")]
    assert texts.count("A") == texts.count("B") == MAPS_DRAWN
    assert "</p>" in texts
    page = render_view(VIEW, [diff], DiffOptions())
    assert page.count("<h3>A</h3>") == page.count("<h3>B</h3>") == MAPS_DRAWN
    drawn = diff.most_changed
    numbers = diff.shown[1].captured.weights(drawn.second).ravel().tolist()
    shown = re.findall(r'title="(.*?)"', page.split("<h3>B</h3>")[1].split("</table>")[0])
    assert [float(number) for number in shown] == pytest.approx(numbers, rel=1e-5)
    assert "<bdi>&lt;/p&gt;</bdi>" in page
    assert page == render_view(VIEW, [diff], DiffOptions())


def test_more_is_orange_and_less_is_blue_and_both_grow_from_the_ground():
    assert signed_color(0.0) == color("enc", 0.0) == color("dec", 0.0) == (255, 255, 255)
    for on_dark in (False, True):
        red, _, blue = signed_color(0.5, on_dark=on_dark)
        assert red > blue + 60
        red, _, blue = signed_color(-0.5, on_dark=on_dark)
        assert blue > red + 60


def test_a_match_needs_a_head(diff):
    nobody = HeadChange(first=None, second=None)
    with pytest.raises(ValueError, match="at least one head"):
        _ = nobody.kind
    assert diff.changes[0].kind == HeadId("enc", 0, 0).kind


@pytest.mark.needs("png")
def test_the_picture_is_the_same_every_time_and_of_the_pairs_that_changed_most(diff):
    single, double = (replace(diff, changes=tuple(choose_drawn_changes(diff)[:n])) for n in (1, 2))
    picture = VIEW.file(single, "png")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert VIEW.file(single, "png") == picture
    width, height = struct.unpack(">II", picture[16:24])
    assert struct.unpack(">II", VIEW.file(double, "png")[16:24])[1] > height
    assert width > 600


def test_a_difference_is_drawn_in_two_colors_around_white():
    assert signed_hex_color(0.0) == "#ffffff"
    for value in (-1.0, -0.3, 0.2, 1.0):
        assert signed_hex_color(value) == "#{:02x}{:02x}{:02x}".format(*signed_color(value))
