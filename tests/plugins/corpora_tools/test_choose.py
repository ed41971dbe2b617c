"""The settings chosen for a user's text, beside the recipes whose results were measured."""

import time
import tomllib

import pytest
import torch

from tformer_cli.plugins.corpora_tools import choose as chooser
from tformer_cli.plugins.corpora_tools.choose import (
    Choice,
    CorpusSize,
    Limits,
    choose,
    estimate,
    expectation,
    given_limits,
    measured_speed,
    recipe_text,
)
from tformer_cli.recipe import load_recipe, make_recipe
from tformer_cli.trainer import speed

MULTI30K = CorpusSize(n_pairs=29_000, target_bytes=2_080_000)
"""English to German: 460,000 target tokens an epoch by the recipe's tokenizer."""
SPEEDS = {"tiny": 10_000, "small": 3_000, "base": 400}


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Two cores with bfloat16, where tiny and small were measured."""
    monkeypatch.setattr(chooser, "measured_speed", lambda size, preset, precision: SPEEDS[preset])


def choose_settings(size, *, on_gpu=False, fine_tunes=False, gpu_memory=0, **limits):
    limits = Limits(**limits)
    reach = estimate(size, limits, on_gpu=on_gpu, gpu_memory=gpu_memory)
    choices = choose(size, limits, reach, fine_tunes=fine_tunes)
    message = expectation(size, limits, reach, fine_tunes=fine_tunes)
    return {choice.key: choice.value for choice in choices}, message


def pairs(number):
    return CorpusSize(n_pairs=number, target_bytes=72 * number)


def test_multi30k_gets_its_best_measured_recipe():
    best = load_recipe("multi30k-en-de-muon")
    settings, message = choose_settings(MULTI30K)
    training = {
        key.partition(".")[2]: value for key, value in settings.items() if "training." in key
    }
    for key in ("optimizer", "learning_rate", "tokens_per_batch", "schedule", "max_epochs"):
        assert training[key] == getattr(best.training, key), key
    assert abs(training["warmup_steps"] - best.training.warmup_steps) <= 10
    assert settings["tokenizer.vocab_size"] == best.tokenizer.vocab_size
    assert (settings["model.preset"], settings["model.dropout"]) == ("tiny", best.model.dropout)
    assert settings["decoding.beam_size"] == best.decoding.beam_size
    # the measured run took 13 minutes at 11,700 tokens a second
    pace = "at 10,000 target tokens a second of a tiny model, predicted from matrix products"
    assert message.startswith(f"expect about 15 minutes of training, {pace}; ")
    assert "38.3 to 39.9 BLEU" in message


def test_estimated_tokens_are_those_that_were_counted():
    assert MULTI30K.target_tokens == pytest.approx(460_000, rel=0.02)


@pytest.mark.parametrize(
    ("number", "limits", "preset", "vocabulary"),
    [
        (1_000, {}, "tiny", 1000),
        (9_000, {}, "tiny", 2000),
        (161_795, {}, "small", 8000),
        (161_795, {"minutes": 5.0}, "tiny", 8000),
        (4_500_000, {}, "small", 32_000),
        (4_500_000, {"on_gpu": True}, "base", 32_000),
    ],
)
def test_the_preset_follows_from_size_and_time(number, limits, preset, vocabulary):
    settings, _ = choose_settings(pairs(number), **limits)
    assert (settings["model.preset"], settings["tokenizer.vocab_size"]) == (preset, vocabulary)


@pytest.mark.parametrize(
    ("number", "gigabytes", "tokens"),
    [
        (4_500_000, 80, 25_000),  # the GPU is busy
        (161_795, 80, 25_000),
        (60_000, 80, 10_105),  # an epoch has a hundred steps
        (29_000, 80, 4_865),
        (300, 80, 2048),
        (4_500_000, 10, 21_362),  # the memory is full
        (4_500_000, 4, 8192),  # and trying tells
    ],
)
def test_batches_for_a_gpu_follow_memory_text_and_size(number, gigabytes, tokens):
    size = MULTI30K if number == 29_000 else pairs(number)
    on_cpu, _ = choose_settings(size)
    settings, _ = choose_settings(size, on_gpu=True, gpu_memory=gigabytes * 10**9)
    assert settings["training.tokens_per_batch"] == tokens
    factor = tokens / on_cpu["training.tokens_per_batch"]
    if number < 1_000_000:  # more pairs have a larger model on a GPU
        rate = settings["training.learning_rate"] / on_cpu["training.learning_rate"]
        assert rate == pytest.approx(factor**0.5, rel=0.01)
        warmup = on_cpu["training.warmup_steps"] / factor
        assert settings["training.warmup_steps"] == pytest.approx(warmup, abs=0.5)
    assert settings["training.max_epochs"] == choose_settings(size)[0]["training.max_epochs"]


def test_larger_batches_say_why():
    limits = Limits()
    reach = estimate(pairs(161_795), limits, on_gpu=True, gpu_memory=80 * 10**9)
    whys = {c.key: c.why for c in choose(pairs(161_795), limits, reach, fine_tunes=False)}
    assert "raised for batches of 6.1 times the tokens" in whys["training.learning_rate"]
    assert whys["training.tokens_per_batch"].startswith("for 161,795 pairs, 6.1 times as many")


def test_short_runs_have_less_dropout_and_higher_rates():
    recipes = [choose_settings(MULTI30K, minutes=minutes)[0] for minutes in (2.0, 4.0, 12.0, 40.0)]
    assert [settings["model.dropout"] for settings in recipes] == [0.0, 0.1, 0.15, 0.2]
    assert [settings["training.learning_rate"] for settings in recipes] == [8e-3, 8e-3, 8e-3, 5e-3]
    positions = [settings.get("model.positions") for settings in recipes]
    assert positions == ["rotary", "rotary", "rotary", None]
    assert [settings["training.max_minutes"] for settings in recipes] == [2.0, 4.0, 12.0, 40.0]


@pytest.mark.parametrize(
    ("limits", "chosen", "missing"),
    [
        ({}, {"max_epochs": 20}, ("max_steps", "max_minutes")),
        ({"steps": 9000}, {"max_steps": 9000}, ("max_epochs", "max_minutes")),
        ({"epochs": 3}, {"max_epochs": 3}, ("max_steps", "max_minutes")),
        ({"minutes": 3.0}, {"max_minutes": 3.0, "max_epochs": 60}, ("max_steps",)),
    ],
)
def test_a_limit_that_is_given_is_the_limit(limits, chosen, missing):
    settings, _ = choose_settings(MULTI30K, **limits)
    for key, value in chosen.items():
        assert settings[f"training.{key}"] == value
    assert not {f"training.{key}" for key in missing} & settings.keys()


def test_the_first_of_several_limits_ends_the_run():
    for limits in ({"steps": 9, "minutes": 30.0}, {"steps": 9, "epochs": 5}, {"steps": 9}):
        reach = estimate(MULTI30K, Limits(**limits), on_gpu=False)
        assert reach.steps == pytest.approx(9)
    assert "about 1 minute of training, at" in choose_settings(MULTI30K, steps=9, minutes=30.0)[1]
    reach = estimate(MULTI30K, Limits(steps=9000, epochs=2), on_gpu=False)
    assert reach.epochs == 2


def test_a_short_run_reaches_its_learning_rate():
    warmups = [
        choose_settings(MULTI30K, steps=n)[0]["training.warmup_steps"] for n in (1, 30, 200, 8000)
    ]
    assert warmups == [1, 8, 40, 100]


def test_speeds_and_models_follow_from_products(monkeypatch):
    predict = measured_speed.__wrapped__
    monkeypatch.setattr(chooser, "measured_speed", predict)
    monkeypatch.setattr(speed.ProductProbe, "measure", lambda probe: None)
    size, chosen = pairs(1_200_000), []
    for gigaflops, precision, speeds in (
        (10.0, "float32", [510, 180, 32]),
        (30.0, "float32", [1400, 510, 91]),
        (100.0, "float32", [4100, 2000, 360]),  # one core had 4,300 to 4,700, 1,700, 210
        (105.0, "bfloat16", [8200, 2900, 510]),  # and 7,500, 2,900 and 370
        (1000.0, "bfloat16", [66_000, 33_000, 5800]),
    ):
        for rate in (1e9 * gigaflops, 1.02e9 * gigaflops):
            in_half = property(lambda probe, rate=rate: rate * 4 / probe._dtype.itemsize)
            monkeypatch.setattr(speed.ProductProbe, "rate", in_half)
            assert [predict(MULTI30K, name, precision) for name in SPEEDS] == speeds
            limits = Limits(minutes=800.0)
            chosen.append(estimate(size, limits, on_gpu=False, precision=precision).preset)
    assert chosen == ["tiny"] * 6 + ["small"] * 2 + ["base"] * 2


def test_a_speed_is_measured_within_a_second(monkeypatch):
    monkeypatch.setattr(speed, "_ALL_SECONDS", 0.2)  # as outside of tests
    start = time.process_time()
    assert measured_speed.__wrapped__(MULTI30K, "tiny", "float32") > 10
    assert time.process_time() - start < torch.get_num_threads()


def test_limits_are_found_in_tables():
    values = {"training": {"max_steps": 10, "max_minutes": 2, "max_epochs": "many"}}
    assert given_limits(values) == Limits(steps=10, minutes=2)
    assert given_limits({"training": 3}) == given_limits({}) == Limits()


def test_a_run_from_a_model_takes_its_shape_and_tokenizer():
    settings, _ = choose_settings(MULTI30K, fine_tunes=True)
    assert settings["training.learning_rate"] == 5e-4
    assert not {"model.preset", "model.norm", "tokenizer.vocab_size"} & settings.keys()


def test_what_was_not_measured_is_not_promised():
    assert "no BLEU estimate" in choose_settings(pairs(161_795))[1]
    assert "no BLEU estimate" in choose_settings(MULTI30K, minutes=1.0)[1]
    assert "no time estimate for this GPU" in choose_settings(MULTI30K, on_gpu=True)[1]
    assert "teach words, not a language" in choose_settings(pairs(1_000))[1]
    assert "teach words" not in choose_settings(pairs(1_000), fine_tunes=True)[1]


@pytest.mark.parametrize("number", [300, 5_000, 29_000, 161_795, 4_500_000, 50_000_000])
@pytest.mark.parametrize("limits", [{}, {"minutes": 0.5}, {"steps": 4}])
@pytest.mark.parametrize("gpu_memory", [0, 80 * 10**9])
def test_every_chosen_recipe_can_be_trained(number, limits, gpu_memory):
    size, run_limits = pairs(number), Limits(**limits)
    reach = estimate(size, run_limits, on_gpu=gpu_memory > 0, gpu_memory=gpu_memory)
    data = Choice(key="data.train", value=[{"source": 'a"\n.en', "target": "ü\u2028"}])
    text = recipe_text(["two\nlines"], [data, *choose(size, run_limits, reach, fine_tunes=False)])
    recipe = make_recipe(tomllib.loads(text), "test")
    assert (recipe.data.train[0].source, recipe.data.train[0].target) == ('a"\n.en', "ü\u2028")
