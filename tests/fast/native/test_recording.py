"""Maps of what the kernels record of a pair, against the tap of a forced pass of torch's."""

import numpy as np
import pytest
import torch

from tests.fast.native.test_search import SHAPES, make_model
from tests.inspect.conftest import check_maps
from tformer_cli.fast.native.torch_weights import native_model
from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.heads.gates import heads_off
from tformer_cli.heads.names import KINDS, HeadId, head_layout
from tformer_cli.inspect.capture.forced import capture_maps, capture_vectors
from tformer_cli.inspect.capture.maps import (
    recorded_attentions,
    recorded_maps,
    recorded_vectors,
)
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.search.engine import Searcher
from tformer_cli.search.torch_engine import TorchEngine

PAIRS = [((4,), ()), ((), (5,)), ((9, 8, 7, 30, 5, 6, 11), (12, 4, 39)), ((6, 7), (4, 5, 6, 7, 8))]


@pytest.mark.parametrize("name", SHAPES)
def test_maps_and_vectors_are_those_of_torch(kernels, name):
    model = make_model(**SHAPES[name])
    # float32 rounds scores by their size, which grows with the width of heads
    rounding = 2e-5 if name == "wide heads" else 2e-6
    native, config = native_model(kernels, model), model.config
    for source, target in PAIRS:
        recorded = native.record(source, target)
        maps = recorded_maps(config, recorded, source, target)
        expected = capture_maps(model, source, target)
        assert maps.source_ids == expected.source_ids
        assert maps.target_ids == expected.target_ids
        assert maps.residuals.keys() == expected.residuals.keys() == set(head_layout(model))
        attentions = recorded_attentions(config, recorded, len(maps.source_ids), len(target) + 1)
        largest = max(abs(attention.values).max(initial=1.0) for attention in attentions.values())
        assert maps.residual < rounding * largest
        ours, theirs = recorded_vectors(config, recorded, maps), capture_vectors(model, expected)
        assert ours.queries.keys() == theirs.queries.keys() == theirs.keys.keys()
        for kind, layer in theirs.queries:
            found = maps.layers(kind)[layer]
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected.layers(kind)[layer], rtol=0, atol=rounding)
            for side in ("queries", "keys"):
                vectors, wanted = (getattr(record, side)[kind, layer] for record in (ours, theirs))
                np.testing.assert_allclose(vectors, wanted, rtol=1e-5, atol=10 * rounding)
        assert (ours.factors, ours.similarity) == (theirs.factors, theirs.similarity) == ({}, {})


def test_rows_sum_to_one_and_the_future_is_exactly_zero(kernels):
    model = make_model(n_key_heads=2)
    source, target = PAIRS[2]
    recorded = native_model(kernels, model).record(source, target)
    maps = recorded_maps(model.config, recorded, source, target)
    for weights in (*maps.enc, *maps.dec, *maps.cross):
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-6)
    for weights in maps.dec:
        assert not np.triu(weights, 1).any()


def test_another_context_shows_in_the_residual(kernels):
    model = make_model()
    recorded = native_model(kernels, model).record(*PAIRS[2])
    recorded[-model.config.d_model :] += 0.5  # the last row of the last context
    maps = recorded_maps(model.config, recorded, *PAIRS[2])
    wrong = {head for head, error in maps.residuals.items() if error > 0.4}
    assert wrong == {HeadId("cross", 1, head) for head in range(4)}


@pytest.mark.parametrize("shape", [{}, SHAPES["one head of keys, odd widths"], SHAPES["recurrent"]])
def test_every_level_of_processor_writes_every_number_and_none_behind_them(training_library, shape):
    model, (source, target) = make_model(**shape), PAIRS[2]
    native = native_model(training_library, model)
    size = len(native.record(source, target))
    room = np.full(size + 64, np.nan, np.float32)
    native.score([source], [target], recorded=room)
    assert not np.isnan(room[:size]).any()
    assert np.isnan(room[size:]).all()
    maps = recorded_maps(model.config, room[:size], source, target)
    expected = capture_maps(model, source, target)
    for kind in KINDS:
        for weights, wanted in zip(maps.layers(kind), expected.layers(kind), strict=True):
            np.testing.assert_allclose(weights, wanted, rtol=0, atol=2e-6)


def searcher_of(model):
    return Searcher(model, [CompiledEngine(), TorchEngine(torch.device("cpu"))])


def test_a_model_that_is_changed_in_torch_is_recorded_as_it_is_now_or_not_at_all():
    model = make_model()
    searcher = searcher_of(model)
    source, target = PAIRS[2]
    check_maps(
        recorded_maps(model.config, searcher.record(source, target), source, target),
        capture_maps(model, source, target),
    )
    with heads_off(model, [HeadId("enc", 0, 1)]):
        assert searcher.record(source, target) is None
    with torch.no_grad():
        model.source_embedding.weight.neg_()
    check_maps(
        recorded_maps(model.config, searcher.record(source, target), source, target),
        capture_maps(model, source, target),
    )


def test_models_without_both_stacks_are_not_recorded(kernels):
    shape = {"d_model": 32, "n_heads": 4, "d_ff": 48, "max_positions": 48}
    classifier = Classifier(ModelConfig(**shape, n_decoder_layers=0, n_labels=2), 40).eval()
    for model in (make_model(n_encoder_layers=0), classifier):
        with pytest.raises(ValueError, match="encoder and decoder is recorded"):
            native_model(kernels, model).record((4,), (5,))
