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
