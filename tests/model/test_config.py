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
            {"rotary_base": 500_000.0},
            'rotary_base: needs positions = "rotary", but they are "sinusoidal"',
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
