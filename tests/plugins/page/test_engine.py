"""The page's engine computes what PyTorch computes: logits and the weights of all heads."""

from typing import get_args

import numpy as np
import pytest
import torch

from tests.foreign.own import LANGUAGE_MODEL, TRANSLATION
from tformer_cli.heads.gates import heads_off
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.capture.forced import recompute_weights, tapped_attentions
from tformer_cli.model import methods
from tformer_cli.model.config import ModelConfig

TABLES = {
    "positions": methods.PositionKind,
    "similarity": methods.SimilarityKind,
    "norm_kind": methods.NormKind,
    "norm": methods.Norm,
    "activation": methods.Activation,
}
METHODS = [{name: value} for name, kind in TABLES.items() for value in get_args(kind)]
SHAPES = [
    {"tied_embeddings": "none", "output_bias": True},
    {"tied_embeddings": "inputs", "bias": False},
    {"tied_embeddings": "decoder", "source_vocab_size": 15},
    {"n_key_heads": 2, "positions": "rotary"},
    {"n_key_heads": 1, "d_head": 6, "similarity": "cosine"},
    {"projections": False},
    {"gated": True, "activation": "swish", "embedding_norm": True, "scale_embeddings": False},
    {"decoder_cell": "ssru", "final_norm": "always"},
    {"encoder_heads": (4, 0), "decoder_heads": (1, 2, 4), "cross_heads": (4, 3, 0)},
    {
        "positions": "relative", "relative_buckets": 8, "relative_distance": 16, "norm": "pre",
        "encoder_heads": (1, 4), "decoder_heads": (2, 4, 4),
        "bias_heads": (3, 0, 1, 2, 3, 2, 0, 0, 1, 2, 3, 0, 1, 2, 3),
    },
    {"positions": "alibi", "n_heads": 6, "d_head": 4, "d_model": 24},
]  # fmt: skip
SOURCE = [5, 6, 7, 8, 11, 4, 3]
ROWS = [[2, 5, 6, 7, 8, 9, 4], [2, 9, 8, 7, 4, 4, 10]]
OFF = [HeadId("enc", 1, 2), HeadId("dec", 0, 0), HeadId("cross", 2, 1)]
TOLERANCE = 1e-5


def name_of(settings):
    return ",".join(f"{name}={value}" for name, value in settings.items())


def assert_close(ours, wanted):
    ours, wanted = np.array(ours), np.asarray(wanted)
    assert ours.size == wanted.size
    assert np.abs(ours.reshape(wanted.shape) - wanted).max(initial=0) < TOLERANCE


def maps_of(model, compute):
    """What PyTorch computes, and the weights of each attention, by kind and layer."""
    with torch.inference_mode(), tapped_attentions(model, recompute_weights) as tapped:
        computed = compute().numpy()
    return computed, {place: attention.weights for place, attention in tapped.items()}


def check_reading(engine, model, off=()):
    """Compares what both compute of the rows, position after position, with PyTorch's one pass."""
    has_source = model.config.n_encoder_layers > 0
    source, rows = torch.tensor([SOURCE] * 2), torch.tensor(ROWS)
    source = source if has_source else source[:, :0]
    asked = {"rows": ROWS, "source": SOURCE if has_source else None, "off": [*map(str, off)]}
    (found,) = engine.run(engine.job(model, "read", **asked))
    with heads_off(model, off):
        logits, maps = maps_of(model, lambda: model(source, source > 0, rows))
    assert_close(found["logits"], logits)
    for (kind, layer), weights in maps.items():
        for row in range(len(ROWS)):
            theirs = found["source"]["maps"] if kind == "enc" else found["maps"][row][kind]
            assert_close(theirs[layer], weights[row])


@pytest.mark.parametrize("settings", [*METHODS, *SHAPES], ids=name_of)
def test_translation_models_compute_the_same(engine, settings):
    check_reading(engine, engine.model(ModelConfig(**{**TRANSLATION, **settings})))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"positions": "rotary", "rotary_base": 500.0, "norm_kind": "rms", "gated": True},
        {"positions": "segments", "memory": 2, "max_positions": 3},
        {"positions": "alibi", "memory": 3, "max_positions": 2, "n_key_heads": 2},
    ],
    ids=name_of,
)
def test_language_models_compute_the_same(engine, settings):
    check_reading(engine, engine.model(ModelConfig(**{**LANGUAGE_MODEL, **settings})))


def test_heads_that_are_off_add_nothing_and_keep_their_weights(engine):
    model = engine.model(ModelConfig(**TRANSLATION))
    check_reading(engine, model, OFF)
    asked = {"rows": ROWS, "source": SOURCE}
    jobs = [engine.job(model, "read", **asked, off=[str(head)]) for head in OFF]
    every, *without = engine.run(engine.job(model, "read", **asked, off=[]), *jobs)
    for result in without:  # each of them counts
        assert np.abs(np.array(result["logits"]) - np.array(every["logits"])).max() > 0.01


@pytest.mark.parametrize(
    "settings",
    [
        {"n_labels": 3},
        {"n_labels": 3, "pooling": "first", "pooler": "tanh", "bias": False},
        {"n_labels": 3, "pooler": "relu", "positions": "alibi"},
        {"n_labels": 5, "head": "tags", "positions": "segments"},
        {"head": "tokens", "activation": "gelu", "positions": "learned"},
        {"head": "tokens", "tied_embeddings": "none", "norm_kind": "rms"},
        {"head": "none", "unit_length": True, "positions": "relative", "norm": "pre"},
    ],
    ids=name_of,
)
def test_encoders_compute_the_same(engine, settings):
    model = engine.model(ModelConfig(**{**TRANSLATION, "n_decoder_layers": 0, **settings}))
    source = torch.tensor([SOURCE])
    (found,) = engine.run(engine.job(model, "encode", ids=SOURCE))
    outputs, maps = maps_of(model, lambda: model(source, source > 0))
    assert_close(found["outputs"], outputs)
    for (_, layer), weights in maps.items():
        assert_close(found["maps"][layer], weights[0])


@pytest.mark.parametrize("positions", ["relative", "rotary", "sinusoidal", "segments"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_late_positions_are_as_exact(engine, positions, is_causal):
    """Beyond `relative_distance`, too: at the edge of a bucket the last digit counts."""
    depth = {"n_encoder_layers": 1 - is_causal, "n_decoder_layers": int(is_causal)}
    shape = {**TRANSLATION, **depth, "positions": positions, "max_positions": 200, "n_heads": 2}
    model = engine.model(ModelConfig(**shape, head="labels" if is_causal else "tokens"))
    text = [4 + place * place % 7 for place in range(150)]
    source = torch.tensor([[]] if is_causal else [text], dtype=torch.long)
    targets = (torch.tensor([text]),) if is_causal else ()
    asked = {"source": None, "rows": [text], "off": []} if is_causal else {"ids": text}
    (found,) = engine.run(engine.job(model, "read" if is_causal else "encode", **asked))
    _, maps = maps_of(model, lambda: model(source, source > 0, *targets))
    (weights,) = maps.values()
    assert_close((found["maps"][0]["dec"] if is_causal else found["maps"])[0], weights[0])
