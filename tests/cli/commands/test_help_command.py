import pytest
import typer
from typer.testing import CliRunner

from tformer_cli.cli.app import app

ENV = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}


def run(*args):
    return CliRunner().invoke(app, args, env=ENV, prog_name="tformer")


@pytest.mark.parametrize(
    "words", [[], ["translate"], ["tokenize"], ["tokenize", "train"], ["inspect", "heads"]]
)
def test_help_shows_the_screen_of_the_option(words):
    result = run("help", *words)
    assert result.exit_code == 0
    assert result.stdout == run(*words, "--help").stdout
    assert result.stdout.startswith(" ".join(["Usage: tformer", *words]))


def test_every_inspection_is_found_behind_inspect():
    root = typer.main.get_command(app)
    group = root.get_command(typer.Context(root), "inspect")
    names = [name for name in root.commands if name.startswith("inspect-")]
    assert len(names) == 10
    assert [f"inspect-{name}" for name in group.commands] == names
    assert all(group.commands[name[8:]] is root.commands[name] for name in names)


def test_inspect_alone_lists_its_commands():
    result = run("inspect")
    assert (result.exit_code, result.stdout) == (2, "")
    for name in ("heads", "report", "step", "logits", "flow", "align", "ablate", "diff"):
        assert f"│ {name} " in result.stderr
    assert "│ inspect " not in run("--help").stdout


def test_an_inspection_runs_behind_inspect():
    for words in (["inspect", "heads"], ["inspect-heads"]):
        explained = run(*words, "--explain", "no-model")
        assert explained.exit_code == 0
        assert "role" in explained.stdout
