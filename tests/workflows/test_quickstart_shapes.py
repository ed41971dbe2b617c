import re

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.recipe import load_recipe
from tformer_cli.workflows.quickstart_shapes import N_SAMPLES, quickstart_shapes


def test_trains_and_shows_heads_over_pictures(tmp_path, monkeypatch):
    overrides = [
        "training.max_steps=4", "validation.every=4", "model.d_model=16", "model.n_heads=2",
        "model.d_ff=16", "data.train.0.pairs=100", "data.valid.0.pairs=100",
        f"data.cache_directory={tmp_path / 'cache'}",
    ]  # fmt: skip
    recipe = load_recipe("shapes", overrides)
    run = tmp_path / "run"
    result = quickstart_shapes(run, recipe=recipe, device="cpu")
    assert result.samples[0][0] == "shapes:test:1#0"
    assert result.evaluation.scores.n_examples == 20
    assert quickstart_shapes(run, recipe=recipe, device="cpu").training.was_finished
    page = result.page.read_text()
    # the picture, rollout, ALTI and two heads in each of three layers
    assert len(re.findall("<figure>", page)) == N_SAMPLES * (3 + 6)
    # the command shows the same
    monkeypatch.setattr("tformer_cli.recipe.load_recipe", lambda name, given: recipe)
    done = CliRunner().invoke(
        app, ["quickstart", "--task", "image", "-o", str(run), "-q", "--device", "cpu"]
    )
    assert done.exit_code == 0, done.stderr
    accuracy = f"accuracy {100 * result.evaluation.scores.accuracy:.1f}"
    assert accuracy in done.stdout
    assert f"tformer inspect-image {run} shapes:test:1#0" in done.stdout


@pytest.mark.slow
def test_the_shipped_recipe_tells_shapes_apart(tmp_path):
    """About two minutes of processor time."""
    result = quickstart_shapes(tmp_path / "run", recipe=load_recipe("shapes"), device="cpu")
    assert result.evaluation.scores.accuracy >= 0.92
