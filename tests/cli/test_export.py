import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app

run = CliRunner().invoke


def test_exports_and_translates_with_the_engine(model):
    pytest.importorskip("ctranslate2")
    before = run(app, ["translate", str(model), "--engine", "ctranslate2", "dogs"])
    assert before.exit_code == 2
    assert before.stderr.count("\n") == 1
    assert f"`tformer export {model} --format ctranslate2` makes it" in before.stderr
    exported = run(app, ["export", str(model), "--quantization", "int8"])
    assert exported.exit_code == 0
    assert exported.stdout == ""
    assert (model / "ctranslate2" / "model.bin").is_file()
    after = run(app, ["translate", str(model), "--engine", "ctranslate2", "dogs", "", "A man"])
    assert after.exit_code == 0
    assert after.stdout.count("\n") == 3
    assert "in float32 by ctranslate2" in after.stderr
