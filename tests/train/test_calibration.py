"""Doubt that a training calibrates at its end: for which runs, and by which pairs."""

import re

import pytest

from tests.commands import run
from tests.zoo import recipe_of
from tformer_cli.recipe import load_recipe
from tformer_cli.text.corpora import SentencePair
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.train import calibration
from tformer_cli.train.calibration import affordable_pairs, calibrate_run

HELD = [SentencePair(f"two dogs {n}", f"deux chiens {n}") for n in range(600)]


@pytest.fixture
def recipe(zoo, tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(recipe_of("translate", zoo.inputs))
    return load_recipe(str(file), [])


@pytest.fixture
def calls(monkeypatch):
    """Records what the calibration is asked to read, in place of a model that translates well."""
    made = []
    monkeypatch.setattr(calibration, "load_place", lambda place: lambda *call: made.append(call))
    return made


def test_the_first_pairs_that_cost_no_more_than_the_budget(zoo):
    tokenizer = read_tokenizer(zoo["translate"])
    pairs = [SentencePair("a", text) for text in ("un chien", "deux", "un chien")]
    n_tokens = [len(tokenizer.target.encode(pair.target)) + 1 for pair in pairs]
    for count in (1, 2, 3):
        budget = 7 * sum(n_tokens[:count])
        assert affordable_pairs(pairs, tokenizer, 3, budget) == pairs[:count]
        assert affordable_pairs(pairs, tokenizer, 3, budget - 1) == pairs[: count - 1]


def test_a_long_training_calibrates_by_pairs_that_a_share_of_it_pays(zoo, recipe, calls):
    said = calibrate_run(recipe, zoo["translate"], HELD, 10**9, "cpu")
    assert re.fullmatch(r"doubt is calibrated by 500 held-out pairs in \d+\.\d s", said)
    ((opened, sources, references),) = calls
    assert opened.directory.path == zoo["translate"]
    pairs = HELD[:500]
    assert sources == [pair.source for pair in pairs]
    assert references == [pair.target for pair in pairs]
    tokenizer = read_tokenizer(zoo["translate"])
    for n_tokens in (10**6, 10**5, 4 * 10**4):
        affordable = affordable_pairs(
            pairs, tokenizer, recipe.decoding.beam_size, 3 * n_tokens / 20
        )
        calls.clear()
        said = calibrate_run(recipe, zoo["translate"], HELD, n_tokens, "cpu")
        assert [len(sources) for _, sources, _ in calls] == [
            count for count in [len(affordable)] if count >= 200
        ]
        assert ("not calibrated" in said) == (len(affordable) < 200)
    # On a GPU a search costs more of a training's tokens
    calls.clear()
    assert "not calibrated" in calibrate_run(recipe, zoo["translate"], HELD, 10**6, "cuda:0")
    assert not calls


def test_a_short_training_says_what_does_it(zoo, recipe, calls):
    said = calibrate_run(recipe, zoo["translate"], HELD, 1000, "cpu")
    assert said == (
        "doubt is not calibrated, as it would cost over 5% of so short a training; `tformer "
        f"calibrate {zoo['translate']} -i FILE --reference FILE` does it"
    )
    assert not calls


def test_a_model_that_translates_nothing_well_has_no_doubt(zoo, recipe, tmp_path):
    said = calibrate_run(recipe, zoo["translate"], HELD, 10**9, "cpu")
    assert said.startswith("doubt is not calibrated: --below: all of 500 lines have a chrF below")
    assert not (zoo["translate"] / "doubt.json").exists()


def test_other_kinds_are_not_calibrated(zoo, calls):
    recipe = load_recipe("ratings", [])
    assert (calibrate_run(recipe, zoo["translate"], HELD, 10**9, "cpu"), calls) == ("", [])


def test_train_says_what_became_of_the_doubt_in_a_line(zoo, tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(recipe_of("translate", zoo.inputs))
    done = run("train", file, "-o", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "doubt" in line]
    assert [line.startswith(f"{tmp_path / 'run'}: doubt is not ") for line in lines] == [True]
    assert not (tmp_path / "run" / "doubt.json").exists()
