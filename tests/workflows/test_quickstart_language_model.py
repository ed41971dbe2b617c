import math

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.recipe import load_recipe
from tformer_cli.workflows.quickstart import FAMOUS
from tformer_cli.workflows.quickstart_language_model import PROMPTS, quickstart_language_model


def test_trains_scores_and_writes_texts_and_the_page(tmp_path, monkeypatch):
    overrides = [
        "training.max_steps=4", "validation.every=4", "model.d_model=16", "model.n_heads=2",
        "model.d_ff=16", "tokenizer.vocab_size=300", "decoding.max_length=8",
        "data.train.0.pairs=200", "data.valid.0.pairs=200",
        f"data.cache_directory={tmp_path / 'cache'}",
    ]  # fmt: skip
    recipe = load_recipe("sentences", overrides)
    run = tmp_path / "run"
    result = quickstart_language_model(run, recipe=recipe, device="cpu")
    assert [prompt for prompt, _ in result.samples] == list(PROMPTS)
    scores = result.evaluation.scores
    assert scores.bits_per_byte == pytest.approx(
        scores.loss / math.log(2) * scores.n_tokens / scores.n_bytes
    )
    assert scores.loss < math.log(300) + 0.5
    page = result.page.read_text()
    assert all(text in page for text in FAMOUS)
    again = quickstart_language_model(run, recipe=recipe, device="cpu")
    assert again.training.was_finished
    assert again.samples == result.samples
    # the command shows the same
    monkeypatch.setattr("tformer_cli.recipe.load_recipe", lambda name, given: recipe)
    arguments = ["quickstart", "--task", "language-model", "-o", str(run), "-q", "--device", "cpu"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    assert f"{scores.bits_per_byte:.3f} bits per byte" in done.stdout
    assert f"open {run / 'heads.html'} in a browser" in done.stdout
    assert f"tformer generate {run}" in done.stdout
