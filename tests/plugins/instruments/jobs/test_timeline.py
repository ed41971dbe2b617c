import json
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tformer_cli.errors import DataError
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.pages import render_view
from tformer_cli.inspect.view import NoOptions
from tformer_cli.inspect.views.timeline import VIEW, read_timeline, render_timeline_svg
from tformer_cli.plugins.instruments.jobs.follow_heads import head_at_step

METRICS = {
    "broad": {"entropy_norm": 0.9},
    "previous": {"prev": 0.8},
    "other": {"entropy_norm": 0.1},
    "aligner": {"diagonality": 0.9, "confidence": 0.9},
}
ROLES = {
    HeadId("enc", 0, 0): ["broad", "previous", "previous", "previous"],
    HeadId("enc", 1, 0): ["broad", "other", "previous", "other"],
    HeadId("cross", 0, 0): ["broad", "broad", "broad", "broad"],
    HeadId("cross", 0, 1): ["broad", "broad", "broad", "aligner"],
}


def lines():
    return [
        json.dumps(head_at_step(10 * place, head, 5, METRICS[roles[place]]))
        for place in range(4)
        for head, roles in ROLES.items()
    ]


@pytest.fixture
def run(tmp_path):
    (tmp_path / "heads.jsonl").write_text("".join(f"{line}\n" for line in lines()))
    return tmp_path


def test_roles_are_read_back_by_head_and_step(run):
    timeline = read_timeline(run)
    assert timeline.steps == (0, 10, 20, 30)
    assert {course.head: list(course.roles) for course in timeline.courses} == ROLES
    assert [str(c.head) for c in timeline.courses] == [
        "enc.0.0",
        "enc.1.0",
        "cross.0.0",
        "cross.0.1",
    ]
    assert timeline.n_sentences == 5
    assert (timeline.layout.enc, timeline.layout.dec, timeline.layout.cross) == ((1, 1), (), (2,))
    assert timeline.courses[0].metrics == METRICS["previous"]


def test_when_roles_appear_and_change_last(run):
    timeline = read_timeline(run)
    described = {course["id"]: course for course in map(timeline.describe, timeline.courses)}
    roles = {name: (d["role"], d["last_change"], d["first_steps"]) for name, d in described.items()}
    assert roles == {
        "enc.0.0": ("previous", 10, {"broad": 0, "previous": 10}),
        "enc.1.0": ("other", 30, {"broad": 0, "other": 10, "previous": 20}),
        "cross.0.0": ("broad", None, {"broad": 0}),
        "cross.0.1": ("aligner", 30, {"broad": 0, "aligner": 30}),
    }
    assert timeline.first_appearances() == {
        "broad": (0, HeadId("enc", 0, 0)),
        "previous": (10, HeadId("enc", 0, 0)),
        "other": (10, HeadId("enc", 1, 0)),
        "aligner": (30, HeadId("cross", 0, 1)),
    }


@pytest.mark.parametrize("n_bytes", [1, 100, 500, 700])
def test_a_step_that_is_being_written_is_left_out(run, n_bytes):
    file = run / "heads.jsonl"
    file.write_bytes(file.read_bytes()[:-n_bytes])
    assert read_timeline(run).steps == ((0, 10, 20, 30) if n_bytes == 1 else (0, 10, 20))


def test_a_role_that_is_not_known_is_another(run):
    file = run / "heads.jsonl"
    file.write_text(file.read_text().replace('"aligner"', '"of tomorrow"'))
    assert read_timeline(run).courses[-1].roles[-1] == "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no step yet"),
        ("{}\n", r"heads.jsonl, line 1: is damaged; remove that line"),
        ("[1]\n{}\n", "heads.jsonl, line 1: "),
        (lines()[0] + "\nnonsense\n" + lines()[1] + "\n", "heads.jsonl, line 2: "),
        (lines()[0].replace('"enc"', '"pen"') + "\n", "heads.jsonl, line 1: "),
    ],
)
def test_damage_is_told_with_its_line(tmp_path, text, message):
    (tmp_path / "heads.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        read_timeline(tmp_path)


def test_what_is_no_run_that_followed_heads_is_told_how_to(tmp_path):
    with pytest.raises(DataError, match=r"train with --set training\.inspect_every=100"):
        read_timeline(tmp_path)
    with pytest.raises(DataError, match="no such run directory"):
        read_timeline(tmp_path / "none")


def test_the_picture_has_a_bar_for_each_stretch_of_a_role(run):
    timeline = replace(read_timeline(run), run='<a&"b">')
    svg = render_timeline_svg(timeline)
    root = ET.fromstring(svg)  # noqa: S314 - made here
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert titles == [
        'Roles of the heads of <a&"b"> over its steps',
        "enc.0.0: broad, steps 0 to 0",
        "enc.0.0: previous, steps 10 to 30",
        "enc.1.0: broad, steps 0 to 0",
        "enc.1.0: other, steps 10 to 10",
        "enc.1.0: previous, steps 20 to 20",
        "enc.1.0: other, steps 30 to 30",
        "cross.0.0: broad, steps 0 to 30",
        "cross.0.1: broad, steps 0 to 20",
        "cross.0.1: aligner, steps 30 to 30",
    ]
    page = render_view(VIEW, [timeline], NoOptions())
    assert svg in page
    assert "<a&" not in page
    assert page == render_view(VIEW, [timeline], NoOptions())


@pytest.mark.needs("png")
def test_the_picture_grows_with_the_heads_and_is_the_same_every_time(run):
    timeline = read_timeline(run)
    picture = VIEW.file(timeline, "png")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert VIEW.file(timeline, "png") == picture
    fewer = replace(timeline, courses=timeline.courses[:1])
    heights = [struct.unpack(">II", png[16:24])[1] for png in (picture, VIEW.file(fewer, "png"))]
    assert heights[0] > heights[1] > 100
    assert VIEW.file(replace(timeline, courses=()), "png").startswith(b"\x89PNG")


def test_what_is_no_ordinary_file_is_not_read(tmp_path, spoil):
    named = spoil(tmp_path / "heads.jsonl")
    with pytest.raises(DataError, match=f"cannot be read .{named}.; name"):
        read_timeline(tmp_path)
