from collections import Counter

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.ratings import FAMOUS, write_ratings
from tformer_cli.recipe import load_recipe
from tformer_cli.workflows.inspection.ablate import inspect_ablate
from tformer_cli.workflows.inspection.views import inspect_view
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
    check_that_the_words_that_decide_are_found(tmp_path / "run", tmp_path / "corpus")


def check_that_the_words_that_decide_are_found(run, corpus):
    """The flow leads to the gold words, and one head reads the negation."""
    write_ratings(corpus)
    texts = (corpus / "test.txt").read_text().splitlines()[:300]
    gold = [
        {int(word) for word in line.split()}
        for line in (corpus / "test.gold").read_text().splitlines()
    ]
    n_led, n_negated, n_read = 0, 0, Counter()
    for text, words, flow in zip(texts, gold, inspect_view("flow", run, texts), strict=False):
        n_led += int(flow.flows["alti"].source[0].argmax()) in words
        negations = [place for place, word in enumerate(text.split()) if word in ("not", "never")]
        n_negated += len(negations)
        for reading in flow.readings:
            n_read[reading.head] += reading.first in negations
    assert n_led > 0.7 * len(texts)
    assert max(n_read.values()) > 0.7 * n_negated
    (famous,) = inspect_view("flow", run, [FAMOUS])
    shares = famous.flows["alti"].source[0]
    largest = {famous.sentence.source_pieces[place] for place in shares.topk(2).indices.tolist()}
    assert largest == {"▁not", "▁terrible"}
    ((head, _),) = n_read.most_common(1)
    (reading,) = (one for one in famous.readings if one.head == head)
    assert famous.sentence.source_pieces[reading.first] == "▁not"
    # the model needs that head
    ablated = inspect_ablate(run, texts, [(corpus / "test.label").read_text().splitlines()[:300]])
    (effect,) = (one for one in ablated.effects if one.head == head)
    (accuracy,) = effect.scores
    assert (accuracy.name, accuracy.baseline) == ("accuracy", 100.0)
    assert accuracy.high < 0.0
