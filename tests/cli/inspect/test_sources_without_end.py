"""Every way of looking into a model whose sources have no `</s>`, as those of OpenNMT-py."""

import json
import shutil

import pytest

from tests.commands import run
from tformer_cli.inspect.jobs.heads import inspect_heads

LINES = ["A man sleeps.", "Two dogs run."]


@pytest.fixture(scope="module")
def endless(model, tmp_path_factory):
    """A copy of a small model that reads its sources without `</s>`."""
    path = tmp_path_factory.mktemp("models") / "endless"
    shutil.copytree(model, path)
    config = json.loads((path / "config.json").read_text())
    config["model"]["source_eos"] = False
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("inspect-heads", ["--mode", "live"]),
        ("inspect-heads", ["--weights", "rollout"]),
        ("inspect-heads", ["--corpus"]),
        ("inspect-report", ["--mode", "live"]),
        ("inspect-step", ["--token", "0", "--head", "cross.0.0"]),
        ("inspect-step", ["--token", "0", "--head", "enc.0.0"]),
        ("inspect-logits", []),
        ("inspect-flow", []),
        ("inspect-align", []),
        ("inspect-ablate", ["--reference", "lines", "--scores", "1"]),
        ("inspect-diff", ["other"]),
        ("translate", ["--alignments", "soft", "--format", "tsv"]),
    ],
)
def test_every_view_shows_them(endless, tmp_path, monkeypatch, command, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES))
    given = [str(endless) if option == "other" else option for option in options]
    lines = LINES[:1] if command == "inspect-step" else ["-i", "lines"]
    arguments = [command, str(endless), *given, *lines, "--quiet"]
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout


@pytest.mark.parametrize("mode", ["forced", "live"])
def test_maps_have_no_column_for_an_end(endless, mode):
    (record,) = inspect_heads(endless, LINES[:1], mode=mode, for_page=True)
    assert record.source_pieces[-1] == "."
    assert record.captured.cross[0].shape[-1] == len(record.source_pieces)
    assert record.captured.residual < 1e-5
    assert {source for source, _ in record.aligned.links} <= set(range(3))
