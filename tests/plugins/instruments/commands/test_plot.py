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


@pytest.fixture
def seeds(tmp_path):
    """The folder of three seeds, of which the last is behind the others."""
    for seed, n_reports in ((1, 4), (2, 4), (3, 2)):
        directory = tmp_path / f"base/seed-{seed}"
        directory.mkdir(parents=True)
        entries = [
            {"kind": "report", "step": 10 * n, "loss": 8 / n + seed, "seconds": seed * n}
            for n in range(1, n_reports + 1)
        ]
        scores = {"bleu": 10.0 * seed}
        if seed < 3:
            entries.append(
                {"kind": "validation", "weights": "average", "step": 40, "scores": scores}
            )
            entries.append({"kind": "validation", "step": 20, "scores": scores})
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        (directory / "metrics.jsonl").write_text(text)
    return tmp_path / "base"


def test_a_folder_of_seeds_is_a_mean_and_a_band(seeds, run):
    lines = plot(seeds, run, "--metric", "loss").stdout.splitlines()
    assert lines[0] == "run\tmetric\tstep\tvalue\tweights\tlow\thigh"
    # loss 9, 10, 11 at step 10: mean 10, deviation 1; one run alone has no band
    assert lines[1:3] == [
        "base\tloss\t10\t10\tcurrent\t9\t11",
        "base\tloss\t20\t6\tcurrent\t5\t7",
    ]
    assert lines[3] == "run\tloss\t1\t10\tcurrent\t\t"
    assert len(lines) == 23
    times = plot(seeds, "--metric", "loss", "--x", "time").stdout.splitlines()
    assert [line.split("\t")[2] for line in times] == ["time", "2", "4"]
    scores = plot(seeds, "--metric", "bleu").stdout.splitlines()
    assert scores[1].startswith("base\tbleu\t20\t15\tcurrent\t7.92893")
    assert scores[2] == "base\tbleu\t40\t15\taverage\t\t"


def test_bands_are_drawn(seeds, run, tmp_path):
    shown = plot(seeds, run, "--format", "text", "--metric", "loss").stdout
    assert shown.startswith("base (3 seeds)  run\nline: mean; band: ± one standard deviation\n")
    ascii_only = plot(seeds, "--format", "text", "--metric", "loss", env={"TERM": "dumb"})
    assert ascii_only.exit_code == 0
    plot(seeds, "--metric", "loss", "-o", tmp_path / "a.svg")
    root = ET.parse(tmp_path / "a.svg").getroot()  # noqa: S314 - it was written just before
    (band,) = [node for node in root.iter() if node.get("class") == "band f0"]
    # from (10, 11) and (20, 7) back along (20, 5) and (10, 9)
    places = [tuple(map(float, pair.split())) for pair in band.get("d")[1:-1].split("L")]
    assert len(places) == 4
    assert places[0][0] == places[3][0] < places[1][0] == places[2][0]
    assert places[0][1] < places[3][1] < places[2][1]
    assert "band" not in plot(run, "--metric", "loss", "--format", "svg").stdout
