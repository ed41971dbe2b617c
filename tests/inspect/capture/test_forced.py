""""""

import numpy as np
import pytest
import torch
from torch import nn

from tests.inspect.conftest import check_maps, dictionary_model, made_model
from tformer_cli.heads.names import HeadId, head_layout
from tformer_cli.inspect.capture.forced import (
    _batch_sizes,
    capture_batch,
    capture_maps,
    capture_pairs,
    capture_vectors,
    recompute_weights,
    tapped_attentions,
)
from tformer_cli.inspect.heads.metrics import metrics_of
from tformer_cli.model.attention import MultiHeadAttention

SOURCE, TARGET = [5, 9, 7, 11, 6, 8], [20, 24, 21]


@pytest.fixture(params=["post", "pre"])
def model(request):
    return made_model(noise=0.0, norm=request.param, max_positions=300)


def test_maps_have_the_shapes_of_unequal_depths_and_lengths(model):
    maps = capture_maps(model, SOURCE, TARGET)
    assert maps.source_ids == (*SOURCE, 3)
    assert maps.target_input_ids == (2, *TARGET)
    assert maps.target_ids == (*TARGET, 3)
    assert [m.shape for m in maps.enc] == [(4, 7, 7)] * 3
    assert [m.shape for m in maps.dec] == [(4, 4, 4)] * 2
    assert [m.shape for m in maps.cross] == [(4, 4, 7)] * 2
    assert all(m.dtype == np.float32 for m in (*maps.enc, *maps.dec, *maps.cross))
    assert set(maps.residuals) == set(head_layout(model))


def test_rows_sum_to_one_and_the_future_is_exactly_zero(model):
    maps = capture_maps(model, SOURCE, TARGET)
    for weights in (*maps.enc, *maps.dec, *maps.cross):
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
    for weights in maps.dec:
        assert not np.triu(weights, 1).any()
        assert (weights[:, 0, 0] == 1.0).all()


@pytest.mark.parametrize("n_source", [6, 230])
def test_the_residual_proves_the_maps_on_the_plain_and_the_fused_path(model, n_source):
    maps = capture_maps(model, (SOURCE * 40)[:n_source], TARGET)
    assert maps.residual < 1e-5
    assert maps.residual == max(maps.residuals.values())


def test_a_map_that_is_not_the_models_shows_in_the_residual(model, monkeypatch):
    attend = MultiHeadAttention.attend

    def attend_elsewhere(self, query, key, value, mask, bias=None, **how):
        listeners = list(self._listeners)
        self._listeners[:] = [lambda tap, f=f: f(tap._replace(query=-tap.query)) for f in listeners]
        try:
            return attend(self, query, key, value, mask, **how)
        finally:
            self._listeners[:] = listeners

    monkeypatch.setattr(MultiHeadAttention, "attend", attend_elsewhere)
    assert capture_maps(model, SOURCE, TARGET).residual > 1e-2


def test_queries_and_keys_make_the_weights(model):
    maps = capture_maps(model, SOURCE, TARGET)
    vectors = capture_vectors(model, maps)
    assert vectors.queries.keys() == vectors.keys.keys()
    assert len(vectors.queries) == 7
    for (kind, layer), queries in vectors.queries.items():
        keys, weights = vectors.keys[kind, layer], maps.layers(kind)[layer]
        assert queries.shape == (4, weights.shape[1], 8)
        assert keys.shape == (4, weights.shape[2], 8)
        scores = torch.from_numpy(queries @ keys.swapaxes(1, 2) / 8**0.5)
        if kind == "dec":
            scores = scores.masked_fill(~torch.ones(4, 4).tril().bool(), -torch.inf)
        np.testing.assert_allclose(scores.softmax(dim=-1), weights, atol=1e-6, rtol=0)


def test_weights_equal_those_of_torchs_own_attention(model):
    hidden = []
    attention = model.encoder.layers[0].self_attention
    handle = attention.register_forward_pre_hook(lambda _, args: hidden.append(args[0]))
    maps = capture_maps(model, SOURCE, TARGET)
    handle.remove()
    peer = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    with torch.no_grad():
        peer.in_proj_weight.copy_(attention.in_projection.weight)
        peer.in_proj_bias.copy_(attention.in_projection.bias)
        x = hidden[0].clone()
        _, expected = peer(x, x, x, need_weights=True, average_attn_weights=False)
    np.testing.assert_allclose(maps.enc[0], expected[0].detach(), atol=1e-6, rtol=0)


def test_cross_attention_equals_torchs_with_decoder_rows_and_source_columns(model):
    inputs = []
    attention = model.decoder.layers[1].cross_attention
    handle = attention.register_forward_pre_hook(lambda _, args: inputs.append(args[:2]))
    maps = capture_maps(model, SOURCE, TARGET)
    handle.remove()
    peer = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    with torch.no_grad():
        peer.in_proj_weight.copy_(attention.in_projection.weight)
        peer.in_proj_bias.copy_(attention.in_projection.bias)
        query, memory = (part.clone() for part in inputs[0])
        _, expected = peer(query, memory, memory, need_weights=True, average_attn_weights=False)
    np.testing.assert_allclose(maps.cross[1], expected[0].detach(), atol=1e-6, rtol=0)


def test_queries_without_weights_attend_evenly_to_what_they_see(model):
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.in_projection.weight[:32] = 0.0
                module.in_projection.bias[:32] = 0.0
    maps = capture_maps(model, SOURCE, TARGET)
    np.testing.assert_allclose(maps.enc[1], np.full((4, 7, 7), 1 / 7), rtol=1e-6)
    np.testing.assert_allclose(maps.cross[0], np.full((4, 4, 7), 1 / 7), rtol=1e-6)
    causal = np.tri(4) / np.arange(1, 5)[:, None]
    np.testing.assert_allclose(maps.dec[0], np.stack([causal] * 4), rtol=1e-6)


def test_a_dictionary_head_pins_which_row_is_which_token():
    source, target = [4, 5, 6, 7], [12, 13, 14, 15]
    # target token 8 + n stands for source token n
    reads = dictionary_model({8 + token: token for token in source})
    weights = capture_maps(reads, source, target).cross[0][0]
    assert weights[1:].argmax(axis=-1).tolist() == [0, 1, 2, 3]  # row i has read token i
    # the one before it in line is 7 + n, and the begin of sentence asks for the first source token
    predicts = dictionary_model({2: 4} | {7 + token: token for token in source})
    weights = capture_maps(predicts, source, target).cross[0][0]
    assert weights[:4].argmax(axis=-1).tolist() == [0, 1, 2, 3]  # row i predicts token i + 1


def test_listeners_are_gone_afterwards_even_after_an_error(model):
    capture_maps(model, SOURCE, TARGET)
    with pytest.raises(RuntimeError, match="stop"), tapped_attentions(model, recompute_weights):
        raise RuntimeError("stop")
    attentions = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    assert len(attentions) == 7
    assert not any(attention._listeners for attention in attentions)


def test_listening_changes_no_bit_of_the_logits(model):
    source, target = torch.tensor([[*SOURCE, 3]]), torch.tensor([[2, *TARGET]])
    mask = torch.ones_like(source, dtype=torch.bool)
    with torch.inference_mode():
        before = model(source, mask, target)
        with tapped_attentions(model, recompute_weights) as tapped:
            during = model(source, mask, target)
    assert len(tapped) == 7
    assert torch.equal(before, during)


def test_shortest_sentences_have_maps(model):
    maps = capture_maps(model, [], [])
    assert maps.weights(HeadId("cross", 0, 0)).tolist() == [[1.0]]


@pytest.mark.parametrize(("n_source", "n_target", "side"), [(300, 1, "source"), (1, 300, "target")])
def test_a_side_that_is_too_long_is_named(model, n_source, n_target, side):
    with pytest.raises(ValueError, match=f"the {side} has 300 tokens, but the model takes 299"):
        capture_maps(model, [5] * n_source, [6] * n_target)


def test_sources_are_read_as_the_model_reads_them():
    model = made_model(noise=0.0, source_eos=False, max_positions=8)
    maps = capture_maps(model, SOURCE, TARGET)
    assert (maps.source_ids, maps.source_tokens) == ((*SOURCE,), (*SOURCE,))
    assert [m.shape for m in (*maps.enc, *maps.cross)] == [(4, 6, 6)] * 3 + [(4, 4, 6)] * 2
    assert maps.residual < 1e-5
    assert not maps.has_source_eos
    batch = capture_batch(model, [(SOURCE, TARGET), (SOURCE[:2], TARGET)])
    assert not batch.has_source_eos.any()
    for weights, alone in zip(batch.maps()[0].cross, maps.cross, strict=True):
        np.testing.assert_allclose(weights, alone, rtol=1.3e-6, atol=1e-5)
    measured = metrics_of(maps, [HeadId("cross", 0, 0)])[HeadId("cross", 0, 0)]
    largest = maps.cross[0][0].max(axis=-1).mean(dtype=np.float64)  # the last key is a token
    assert measured["confidence"] == pytest.approx(largest)
    assert measured["sink_eos"] == 0.0
    with pytest.raises(ValueError, match="the source has 9 tokens, but the model takes 8"):
        capture_maps(model, [5] * 9, TARGET)


LENGTHS = [(1, 6), (19, 3), (6, 6), (30, 39), (39, 1), (0, 2)]


@pytest.fixture
def model_batches(one_thread):
    # in float64 nothing but a wrong cell can exceed the tolerance
    return made_model(torch.float64, 60, noise=0.0, max_positions=40)


@pytest.fixture
def pairs():
    return [tuple(torch.randint(4, 60, (n,)).tolist() for n in lengths) for lengths in LENGTHS * 2]


def test_every_pair_of_a_batch_has_the_maps_it_has_alone(model_batches, pairs):
    for pair, batch_maps in zip(pairs, capture_batch(model_batches, pairs).maps(), strict=True):
        check_maps(batch_maps, capture_maps(model_batches, *pair))


def test_batches_of_any_size_give_every_pair_once(model_batches, pairs, monkeypatch):
    for most_cells in (1, 3000, 10**9):
        monkeypatch.setattr("tformer_cli.inspect.capture.forced.MOST_CELLS", most_cells)
        maps_of = dict(capture_pairs(model_batches, pairs))
        assert sorted(maps_of) == list(range(len(pairs)))
        for index, maps in maps_of.items():
            check_maps(maps, capture_maps(model_batches, *pairs[index]))


def test_batches_come_in_few_sizes_so_that_no_library_meets_ever_new_shapes():
    for n_pairs in range(1, 70):
        sizes = list(_batch_sizes(n_pairs, 24))
        assert sum(sizes) == n_pairs
        assert set(sizes) <= {1, 2, 4, 8, 16}


def test_kinds_not_asked_for_are_left_out_and_no_listener_stays(model_batches, pairs):
    maps = capture_batch(model_batches, pairs[:2], kinds=["cross"]).maps()[0]
    assert (maps.enc, maps.dec, len(maps.cross)) == ((), (), 2)
    assert {head.kind for head in maps.residuals} == {"cross"}
    assert all(
        not m._listeners for m in model_batches.modules() if isinstance(m, MultiHeadAttention)
    )


def test_a_pair_that_is_too_long_is_refused(model_batches):
    with pytest.raises(ValueError, match="the target has 40 tokens, but the model takes 39"):
        capture_batch(model_batches, [([5], [6]), ([5], [6] * 40)])
