"""Models that take sentences, by what is known of their training."""

import json
from dataclasses import replace

import pytest

from tformer_cli.artifacts.config_file import ImportOrigin, ModelInfo, read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.kinds.translate import trained_on_sentences
from tformer_cli.recipe import make_recipe
from tformer_cli.train.train import train

ONE, SEVERAL = "the house is green.", "The house is green. It is old."


def origin(kind):
    return ImportOrigin(kind=kind, source="a", files={}, ids=())


@pytest.mark.parametrize(
    ("info", "is_of_sentences"),
    [
        ({}, False),
        ({"several_sentences": 0.0}, True),
        ({"several_sentences": 0.2}, True),
        ({"several_sentences": 0.3}, False),
        ({"origin": origin("Bergamot (Firefox)")}, True),
        ({"origin": origin("Hugging Face Marian (OPUS-MT)")}, True),
        ({"origin": origin("Hugging Face M2M-100 / NLLB")}, True),
        ({"origin": origin("Argos")}, True),
        ({"origin": origin("Hugging Face T5")}, False),
        ({"origin": origin("CTranslate2")}, False),
        ({"origin": origin("Marian"), "several_sentences": 0.9}, False),  # trained further
    ],
)
def test_it_is_known_by_statistics_or_kind(model, info, is_of_sentences):
    directory = replace(load_model_directory(model), info=ModelInfo(**info))
    assert trained_on_sentences(directory) is is_of_sentences


@pytest.mark.parametrize(
    ("recipe", "is_of_sentences"),
    [
        ('[[data.train]]\nbuilt_in = "train"\n', True),
        ('[[data.train]]\nbuilt_in = "train"\n[[data.train]]\nbuilt_in = ""\n', False),
        ('[[data.train]]\nsource = "a"\n', False),
        ("[data]\ntrain = []\n", False),
        ("[data]\ntrain = 1\n", False),
        ("\x00", False),
    ],
)
def test_a_run_from_before_is_known_by_its_recipe(model, tmp_path, recipe, is_of_sentences):
    (tmp_path / "recipe.toml").write_text(recipe)
    directory = replace(load_model_directory(model), path=tmp_path)
    assert trained_on_sentences(directory) is is_of_sentences


def test_a_classifier_takes_texts(classifier):
    directory = load_model_directory(classifier, tasks=("classify",))
    directory = replace(directory, info=replace(directory.info, several_sentences=0.0))
    assert not trained_on_sentences(directory)


@pytest.mark.parametrize(("n_several", "share"), [(0, 0.0), (10, 0.25), (40, 1.0)])
def test_training_stores_the_share_of_lines_and_the_words(tmp_path, n_several, share):
    lines = [SEVERAL] * n_several + [ONE] * (40 - n_several)
    text = tmp_path / "a"
    text.write_text("\n".join(lines) + "\n")
    too_long = tmp_path / "b"
    too_long.write_text("house " * 5000)
    recipe = make_recipe(
        {
            "data": {
                "train": [{"source": str(one), "target": str(one)} for one in (text, too_long)],
                "cache_directory": str(tmp_path),
            },
            "tokenizer": {"vocab_size": 300},
            "model": {
                "d_model": 16,
                "n_heads": 2,
                "d_ff": 32,
                "n_encoder_layers": 1,
                "n_decoder_layers": 1,
            },
            "training": {"max_steps": 1, "precision": "float32"},
        },
        "test",
    )
    run = train(recipe, tmp_path / "run").run
    assert read_config(run).several_sentences == share
    words = json.loads((run / "frequencies.json").read_text())["words"]
    assert words == sorted({"the", "house", "is", "green", *(["it", "old"] if n_several else [])})
