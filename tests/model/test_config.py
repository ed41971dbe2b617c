import re

import pytest

from tformer_cli.model.config import PRESETS, ModelConfig


def test_the_preset_base_is_the_default():
    assert ModelConfig(**PRESETS["base"]) == ModelConfig()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"d_model": 500},
            "n_heads: 8 does not divide d_model = 500; choose a number of heads that does",
        ),
        ({"d_model": 0}, "d_model: must be 1 to 65536, but is 0"),
        ({"n_encoder_layers": 10**9}, "n_encoder_layers: must be 0 to 1000, but is 1000000000"),
        ({"dropout": 1.0}, "dropout: must be at least 0 and below 1, but is 1.0"),
        ({"max_positions": 1}, "max_positions: must be 2 to 1048576, but is 1"),
        (
            {"d_model": 7, "n_heads": 7},
            "d_model: sinusoidal positions need an even width, but it is 7",
        ),
        (
            {"decoder_cell": "ssru", "decoder_heads": (8,) * 6},
            (
                'decoder_heads: with decoder_cell = "ssru" the decoder has no self-attention; '
                "leave it empty"
            ),
        ),
        (
            {"positions": "rotary", "rotary_base": 1.0},
            "rotary_base: must be above 1 and at most 1e+12, but is 1",
        ),
        (
            {"source_vocab_size": -1},
            "source_vocab_size: must be 0 to 16777216, but is -1",
        ),
        (
            {"source_vocab_size": 60},
            (
                "source_vocab_size: a vocabulary of its own needs tied_embeddings = "
                '"decoder" or "none", but it is "all"'
            ),
        ),
    ],
)
def test_impossible_shapes_are_refused_in_a_whole_sentence(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ModelConfig(**changes)


ENCODER = {"n_decoder_layers": 0}
LANGUAGE_MODEL = {"n_encoder_layers": 0, "tied_embeddings": "none"}
IMAGES = {**ENCODER, "patch_size": 4}


@pytest.mark.parametrize(
    ("settings", "name", "value", "owner"),
    [
        *(({}, name, False, "language models") for name in ("target_bos", "target_eos")),
        ({"positions": "alibi"}, "memory", 4, "language models"),
        (LANGUAGE_MODEL, "cross_heads", (4,) * 6, "models with a source"),
        (LANGUAGE_MODEL, "source_vocab_size", 60, "models with a source"),
        ({}, "head", "tokens", "encoders without a decoder"),
        ({}, "n_labels", 2, "encoders without a decoder"),
        ({}, "pooling", "first", "encoders without a decoder"),
        ({}, "pooler", "tanh", "encoders without a decoder"),
        ({}, "unit_length", True, "encoders without a decoder"),
        ({**ENCODER, "head": "tokens"}, "n_labels", 3, "classifiers"),
        ({**ENCODER, "head": "none"}, "pooler", "tanh", "classifiers"),
        (ENCODER, "decoder_heads", (4,), "models with a target"),
        (ENCODER, "cross_heads", (4,), "models with a target"),
        (ENCODER, "decoder_cell", "ssru", "models with a target"),
        (ENCODER, "output_bias", True, "models with a target"),
        (ENCODER, "source_vocab_size", 60, "models with a target"),
        ({}, "image_size", (8, 8, 3), "image models"),
        ({}, "image_mean", (0.5,), "image models"),
        ({}, "image_std", (0.5,), "image models"),
        ({}, "image_shift", 1, "image models"),
        ({}, "image_flip", True, "image models"),
        ({}, "class_token", True, "image models"),
        (IMAGES, "max_positions", 64, "text models"),
        (IMAGES, "source_eos", False, "text models"),
        (IMAGES, "scale_embeddings", False, "text models"),
        ({}, "rotary_base", 500_000.0, 'positions = "rotary"'),
        ({"positions": "alibi"}, "relative_buckets", 8, 'positions = "relative"'),
        ({"positions": "rotary"}, "relative_distance", 64, 'positions = "relative"'),
    ],
)
def test_a_setting_of_other_models_keeps_its_default(settings, name, value, owner):
    default = ModelConfig.__dataclass_fields__[name].default
    ModelConfig(**{**settings, name: default})
    with pytest.raises(ValueError, match=f"^{name}: only for {re.escape(owner)}.*; omit it$"):
        ModelConfig(**{**settings, name: value})
