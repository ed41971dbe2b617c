import json
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app


@pytest.fixture
def run(tmp_path):
    """A run that is being written."""
    directory = tmp_path / "run"
    directory.mkdir()
    entries = [
        {"kind": "report", "step": n, "loss": 10 / n, "learning_rate": 1e-3, "tokens_per_second": 5}
        for n in range(1, 21)
    ]
    text = "".join(json.dumps(entry) + "\n" for entry in entries) + '{"kind": "rep'
    (directory / "metrics.jsonl").write_text(text)
    return directory


def plot(*arguments, **options):
    return CliRunner().invoke(app, ["plot", *map(str, arguments)], **options)


def test_a_pipe_gets_a_table(run):
    result = plot(run, "--metric", "loss")
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[:2] == ["run\tmetric\tstep\tvalue\tweights", "run\tloss\t1\t10\tcurrent"]
    assert len(lines) == 21


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_terminal_gets_curves_of_its_width(run, width):
    result = plot(run, "--format", "text", env={"COLUMNS": str(width)})
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "run"
    assert max(map(len, lines)) <= width
    assert "Training lo" in result.stdout
    assert any(0x2800 < ord(character) < 0x2900 for character in result.stdout)


def test_a_file_has_the_format_of_its_ending(run, tmp_path):
    for name in ("a.svg", "a.tsv"):
        assert plot(run, "-o", tmp_path / name).exit_code == 0
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")  # noqa: S314 - it was written just before
    assert (tmp_path / "a.tsv").read_text().startswith("run\tmetric")
    result = plot(run, "--format", "svg")
    assert result.stdout == (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "-o", "a.jpg"], "--output: a.jpg would not be a .jpg file"),
        (["RUN", "missing"], "missing: no such run directory"),
        (["RUN", "--metric", "bleu"], "--metric: no run has bleu"),
        (["RUN", "--metric", "blue"], "'blue' is not one of"),
        (["RUN", "--x", "day"], "'day' is not one of"),
        ([], "RUN: is missing; usage: "),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = plot(*(run if word == "RUN" else word for word in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "a.jpg").exists()


def test_a_name_that_promises_another_format_is_refused(run, tmp_path):
    result = plot(run, "-o", tmp_path / "curves.svg", "--format", "png")
    assert result.exit_code == 2
    assert "would not be a .svg file" in result.stderr
    assert not (tmp_path / "curves.svg").exists()
