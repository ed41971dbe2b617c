"""Shapes of models and of their weights."""

import re

import pytest
import torch

from tests.model.conftest import VOCAB_SIZE, small_config, small_model
from tformer_cli.model.attention import causal_mask
from tformer_cli.model.config import PRESETS, ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.model.weight_shapes import parameter_count, parameter_shapes


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


@pytest.mark.parametrize("tied", ["all", "decoder", "inputs", "none"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "table"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"encoder_heads": (1, 0), "cross_heads": (2, 1, 0)},
        {"output_bias": True, "embedding_norm": True},
        {"final_norm": "always", "scale_embeddings": False},
        {"decoder_cell": "ssru", "cross_heads": (2, 1, 0)},
        {"d_head": 6, "cross_heads": (2, 1, 0), "norm_kind": "rms", "gated": True},
    ],
)
def test_parameters_are_named_and_counted_without_a_model(tied, norm, positions, bias, more):
    if tied not in ("all", "inputs"):
        more = {**more, "source_vocab_size": 60}
    config = small_config(tied_embeddings=tied, norm=norm, positions=positions, bias=bias, **more)
    model = Transformer(config, VOCAB_SIZE)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert parameter_shapes(config, VOCAB_SIZE) == shapes
    assert sum(p.numel() for p in model.parameters()) == parameter_count(config, VOCAB_SIZE)


def test_base_and_big_are_the_papers():
    # Table 3 gives 65 and 213 million parameters, with about 37,000 joint BPE entries.
    assert round(parameter_count(ModelConfig(**PRESETS["base"]), 37_000) / 1e6) == 63
    assert round(parameter_count(ModelConfig(**PRESETS["big"]), 37_000) / 1e6) == 214


def test_a_gate_of_one_changes_no_bit_and_zero_everywhere_leaves_the_bias_of_w_o():
    layer = small_model().decoder.layers[0].self_attention
    hidden = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    ungated = layer(hidden, mask=causal_mask(5))
    for shape in ((4, 1, 1), (2, 4, 1, 1), (2, 4, 5, 1)):
        layer.gate = torch.ones(shape)
        assert torch.equal(layer(hidden, mask=causal_mask(5)), ungated)
    layer.gate = torch.zeros(4, 1, 1)
    off = layer(hidden, mask=causal_mask(5))
    assert torch.equal(off, layer.out_projection.bias.expand_as(off))
    assert "gate" not in layer.state_dict()


def test_layers_may_differ_in_heads_and_decode_step_by_step_as_in_full(sentences):
    shape = {"encoder_heads": (1, 3), "decoder_heads": (2, 0, 4), "cross_heads": (0, 4, 1)}
    model = small_model(**shape)
    assert sum(p.numel() for p in model.parameters()) == parameter_count(model.config, 50)
    source, source_mask, target = sentences
    with torch.inference_mode():
        full = model(source, source_mask, target)
        cache = model.start_cache(model.encode(source, source_mask), source_mask, 1, 6)
        steps = [model.decode_step(target[:, i], cache) for i in range(6)]
    assert torch.allclose(torch.stack(steps, dim=1), full, atol=1e-5)


def test_layers_of_equal_heads_are_the_same_model():
    torch.manual_seed(3)
    implicit = Transformer(small_config(), 50).state_dict()
    torch.manual_seed(3)
    explicit = Transformer(small_config(encoder_heads=(4, 4), cross_heads=(4, 4, 4)), 50)
    assert all(torch.equal(v, implicit[name]) for name, v in explicit.state_dict().items())


@pytest.mark.parametrize(
    ("name", "heads", "message"),
    [
        ("encoder_heads", (4,), "encoder_heads: must name 2 layers, but names 1"),
        ("cross_heads", (4, 5, 4), "cross_heads: must be 0 to n_heads = 4"),
        ("decoder_heads", (4, -1, 4), "decoder_heads: must be 0 to n_heads = 4"),
        ("bias_heads", (0, 1), "bias_heads: must name 20 heads, those of self-attention, but"),
        ("bias_heads", (4,) * 20, "bias_heads: must be below n_heads = 4"),
    ],
)
def test_impossible_heads_are_refused(name, heads, message):
    with pytest.raises(ValueError, match=message):
        small_config(**{name: heads})


def test_heads_that_share_biases_say_which_are_theirs():
    with pytest.raises(ValueError, match="bias_heads: must say which heads of 4 are left"):
        small_model(positions="alibi", encoder_heads=(2, 4))
    small_model(positions="alibi", encoder_heads=(0, 4))
