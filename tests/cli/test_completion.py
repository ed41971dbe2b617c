import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.recipe import recipe_names


def complete(line, cwd=None):
    """Returns what bash is offered behind a line."""
    env = {
        "_TFORMER_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - (not line.endswith(" "))),
    }
    return CliRunner().invoke(app, [], env=env, prog_name="tformer").stdout.split()


def test_recipes_and_files_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "x.toml").touch()
    assert complete("tformer train ") == [*recipe_names(), "mine.toml"]
    assert complete("tformer train m") == [
        *(name for name in recipe_names() if name.startswith("m")),
        *("mine.toml", "more"),
    ]
    assert complete("tformer train more/") == ["more/x.toml"]
    assert "template" in complete("tformer recipes copy t")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tformer train x --set model.d_m", ["model.d_model="]),
        ("tformer train x --set model.pre", ["model.preset="]),
        ("tformer inspect-heads m --heads cross.l", ["cross.last"]),
        ("tformer inspect-heads m --heads enc.0,!dec.*", ["enc.0,!dec.*.*"]),
        ("tformer inspect-step m --head d", ["dec.", "dec.last", "dec.*.*"]),
        ("tformer inspect-heads m --format sa", ["safetensors"]),
        ("tformer help tokenize s", ["stats"]),
        ("tformer help trans", ["translate", "translate-corpus"]),
        ("tformer inspect he", ["heads"]),
        ("tformer recipes c", ["copy"]),
    ],
)
def test_values_are_completed(line, offered):
    assert complete(line) == offered


def test_topics_are_completed():
    from tformer_cli.guide import guides

    topics = [*(guide.topic for guide in guides()), "sample-report"]
    assert complete("tformer guide ") == topics


def test_nothing_heavy_is_imported():
    code = (
        "import sys\n"
        "from tformer_cli.cli.app import app\n"
        "try:\n    app([], prog_name='tformer')\n"
        "finally:\n    assert not {'torch', 'numpy', 'tokenizers'} & set(sys.modules), 'heavy'\n"
    )
    for line in ("tformer train q", "tformer train q --set m", "tformer guide t"):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        env = {**os.environ, "_TFORMER_COMPLETE": "complete_bash", **words}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, check=False
        )
        assert b"heavy" not in done.stderr, line
        assert done.returncode == 0
