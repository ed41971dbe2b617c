import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.inspect.heads.test_timeline import lines
from tformer_cli.cli.app import app
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.views.timeline import HeadCourse, HeadTimeline, TimelineView


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "heads.jsonl").write_text("".join(f"{line}\n" for line in lines()))
    return directory


def run(*arguments):
    return CliRunner().invoke(app, ["inspect-heads", *map(str, arguments)])


def test_in_a_pipe_there_is_a_line_for_each_head(directory):
    result = run(directory, "--over-time")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["id"] for one in found] == ["enc.0.0", "enc.1.0", "cross.0.0", "cross.0.1"]
    assert found[0]["roles"] == ["broad", "previous", "previous", "previous"]
    assert found[0]["last_change"] == 10
    assert result.stderr == ""
    chosen = run(directory, "--over-time", "--heads", "cross@role=aligner").stdout.splitlines()
    assert [json.loads(line)["id"] for line in chosen] == ["cross.0.1"]


def test_a_terminal_gets_a_sign_for_each_head_and_step(directory):
    text = run(directory, "--over-time", "--format", "text").stdout
    assert "enc.0.0    ▒◀◀◀  previous since 10" in text
    assert "enc.1.0    ▒·◀·  other since 30" in text
    assert "cross.0.0  ▒▒▒▒  broad throughout" in text
    assert "◀ previous first at 10 (enc.0.0), now 1" in text


def long_timeline(n_steps):
    roles = tuple("broad" if step < n_steps // 2 else "self" for step in range(n_steps))
    course = HeadCourse(head=HeadId("enc", 0, 0), roles=roles, metrics={})
    steps = tuple(100 * step for step in range(n_steps))
    return HeadTimeline(run="long", steps=steps, n_sentences=3, courses=(course,))


@pytest.mark.parametrize("n_steps", [1, 2, 45, 46, 90, 1000])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_many_records_are_thinned_out_and_the_last_is_kept(n_steps, encoding):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=80, highlight=False)
    TimelineView().text(console, long_timeline(n_steps), None)
    file.flush()
    text = file.buffer.getvalue().decode(encoding)
    assert all(len(line) <= 80 for line in text.splitlines())
    (course,) = (line for line in text.splitlines() if line.startswith("enc.0.0"))
    signs = course.split()[1]
    assert len(signs) <= 45
    assert signs[-1] == ("●" if encoding == "utf-8" else "o")
    axis = text.splitlines()[text.splitlines().index(course) - 1]
    assert axis.split()[-1] == str(100 * (n_steps - 1))
    assert ("shown:" in text) == (n_steps > 45)


def test_pictures_and_pages(directory, tmp_path):
    for name, begin in {"x.svg": "<svg", "x.html": "<!DOCTYPE html>", "x.txt": "mine"}.items():
        assert run(directory, "--over-time", "-o", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_text().startswith(begin)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["A man"], "TEXT: --over-time reads what the run has written; leave it out"),
        (["--corpus"], "--corpus: --over-time reads"),
        (
            ["--format", "npz"],
            "--over-time: is for text, jsonl, svg, png, html; --format npz shows maps",
        ),
        (["--heads", "dec"], "the heads are enc.0-1.0-0"),
    ],
)
def test_options_without_a_meaning_here_are_one_line(directory, arguments, message):
    result = run(directory, "--over-time", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_model_directory_alone_gets_advice_on_following_heads(model):
    result = run(model, "--over-time")
    assert result.exit_code == 2
    assert "--set training.inspect_every=100" in result.stderr
