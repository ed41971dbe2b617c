import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.ratings import FAMOUS
from tformer_cli.recipe import load_recipe
from tformer_cli.workflows.quickstart_ratings import quickstart_ratings


def test_trains_and_rates_what_training_never_shows(tmp_path, monkeypatch):
    overrides = [
        "training.max_steps=4", "validation.every=4", "model.d_model=16", "model.n_heads=2",
        "model.d_ff=16", "data.train.0.pairs=100", "data.valid.0.pairs=100",
        f"data.cache_directory={tmp_path / 'cache'}",
    ]  # fmt: skip
    recipe = load_recipe("ratings", overrides)
    run = tmp_path / "run"
    result = quickstart_ratings(run, recipe=recipe, device="cpu")
    assert result.samples[0][0] == FAMOUS
    assert result.evaluation.scores.n_examples == 20
    assert quickstart_ratings(run, recipe=recipe, device="cpu").training.was_finished
    assert FAMOUS in result.page.read_text()
    # the command shows the same
    monkeypatch.setattr("tformer_cli.recipe.load_recipe", lambda name, given: recipe)
    done = CliRunner().invoke(
        app, ["quickstart", "--task", "rating", "-o", str(run), "-q", "--device", "cpu"]
    )
    assert done.exit_code == 0, done.stderr
    assert FAMOUS in done.stdout
    accuracy = f"accuracy {100 * result.evaluation.scores.accuracy:.1f}"
    assert accuracy in done.stdout
    assert f"tformer classify {run}" in done.stdout
    assert f"open {run / 'heads.html'} in a browser" in done.stdout


@pytest.mark.slow
def test_the_shipped_recipe_rates_all_unseen_combinations_right(tmp_path):
    """A minute or two on two cores."""
    result = quickstart_ratings(tmp_path / "run", recipe=load_recipe("ratings"), device="cpu")
    assert result.evaluation.scores.accuracy == 1.0
    assert result.samples[0] == (FAMOUS, "3", "3")
