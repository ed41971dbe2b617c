""""""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tformer_cli.errors import UsageError
from tformer_cli.heads.names import (
    HeadId,
    LayerId,
    attentions,
    head_layout,
    layer_layout,
)
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.capture.maps import AttentionMaps
from tformer_cli.plugins.instruments import weighting as maps
from tformer_cli.plugins.instruments.weighting import (
    attention_mixing,
    contributions,
    norm_residual,
    observe_sublayers,
    roll_out,
    roll_out_stack,
    value_norms,
    weighted_maps,
)

SOURCE, TARGET = (5, 9, 7, 11, 6, 8), (20, 24, 21)


PRUNED = {"encoder_heads": (4, 0, 1), "decoder_heads": (2, 0), "cross_heads": (0, 3)}


@pytest.fixture(params=[{"norm": "post"}, {"norm": "pre", **PRUNED}], ids=["post", "pre pruned"])
def model(request, make_model):
    return make_model(**request.param)


def test_alpha_is_what_was_captured(model):
    maps = capture_maps(model, SOURCE, TARGET)
    assert weighted_maps(model, maps, "alpha") is maps


def test_norms_are_of_every_head_and_prove_the_attentions_output(model):
    maps = capture_maps(model, SOURCE, TARGET)
    norms = weighted_maps(model, maps, "norm")
    assert list(norms.residuals) == [head for kind_layer in _in_order(model) for head in kind_layer]
    assert set(norms.residuals) == set(head_layout(model))
    assert norms.residual <= 1e-5
    for kind in ("enc", "dec", "cross"):
        for ours, theirs in zip(norms.layers(kind), maps.layers(kind), strict=True):
            assert ours.shape == theirs.shape
            assert ours.dtype == np.float32
            np.testing.assert_array_equal(ours == 0, theirs == 0)


def _in_order(model):
    """The heads of each attention, in the order that the model computes them."""
    layout = head_layout(model)
    yield from ([HeadId("enc", n, h) for h in range(k)] for n, k in enumerate(layout.enc))
    for n, heads in enumerate(zip(layout.dec, layout.cross, strict=True)):
        for kind, n_heads in zip(("dec", "cross"), heads, strict=True):
            yield [HeadId(kind, n, h) for h in range(n_heads)]


def test_a_recurrent_decoder_has_norms_and_cannot_be_rolled_out(make_model):
    model = make_model(decoder_cell="ssru")
    maps = capture_maps(model, SOURCE, TARGET)
    assert not maps.dec
    assert str(layer_layout(model)) == "enc.0-2, cross.0-1"
    norms = weighted_maps(model, maps, "norm")
    assert norms.residual <= 1e-5
    assert set(norms.residuals) == set(head_layout(model))
    for weighting in ("rollout", "alti"):
        with pytest.raises(UsageError, match=f"^{weighting}: a recurrent unit replaces"):
            weighted_maps(model, maps, weighting)


@pytest.mark.parametrize("weighting", ["rollout", "alti"])
def test_maps_of_layers_have_one_a_layer_and_shares_that_sum_to_one(model, weighting):
    maps = weighted_maps(model, capture_maps(model, SOURCE, TARGET), weighting)
    layers = list(layer_layout(model))
    assert [str(layer) for layer in layers] == [
        *("enc.0", "enc.1", "enc.2", "dec.0", "dec.1", "cross.0", "cross.1")
    ]
    assert set(maps.residuals) == set(layers)
    assert maps.residual <= 1e-5
    for layer in layers:
        assert maps.weights(layer).ndim == 2
    for encoder in maps.enc:
        np.testing.assert_allclose(encoder.sum(axis=-1), np.ones((1, 7)), rtol=1e-6)
    for prefix, source in zip(maps.dec, maps.cross, strict=True):
        assert not np.triu(prefix, 1).any()
        sums = prefix.sum(axis=-1) + source.sum(axis=-1)
        np.testing.assert_allclose(sums, np.ones((1, 4)), rtol=1e-6)


def test_alti_multiplies_the_contributions_of_the_layers(make_model):
    """By hand for two decoder layers, in the order in which they are computed."""
    model = make_model(torch.float64, norm="pre")
    maps = weighted_maps(model, capture_maps(model, SOURCE, TARGET), "alti")
    sublayers = observe_sublayers(model, (*SOURCE, 3), (2, *TARGET))
    c0, c1, c2, own0, cross0, own1, cross1 = (contributions(s).shares for s in sublayers)
    memory = c2 @ c1 @ c0
    first = cross0[:, :7] @ memory
    kept = torch.diag(cross1[:, 7]) @ own1
    np.testing.assert_allclose(maps.enc[2][0], memory, atol=1e-6)
    np.testing.assert_allclose(maps.cross[0][0], first, atol=1e-6)
    np.testing.assert_allclose(maps.cross[1][0], cross1[:, :7] @ memory + kept @ first, atol=1e-6)
    expected = kept @ torch.diag(cross0[:, 7]) @ own0
    np.testing.assert_allclose(maps.dec[1][0], expected, atol=1e-6)


def test_a_layer_answers_for_all_before_it(make_model):
    model = make_model()
    maps = weighted_maps(model, capture_maps(model, SOURCE, TARGET), "alti")
    found = {
        (s.kind, s.layer): contributions(s).residual
        for s in observe_sublayers(model, (*SOURCE, 3), (2, *TARGET))
    }
    encoder = [found["enc", n] for n in range(3)]
    assert maps.residuals[LayerId("enc", 1, 0)] == max(encoder[:2])
    first = max(*encoder, found["dec", 0], found["cross", 0])
    assert maps.residuals[LayerId("dec", 0, 0)] == maps.residuals[LayerId("cross", 0, 0)] == first
    assert maps.residuals[LayerId("cross", 1, 0)] == max(found.values())


def test_rollout_gives_the_source_the_same_share_whatever_the_heads_do(make_model):
    maps = weighted_maps(make_model(), capture_maps(make_model(), SOURCE, TARGET), "rollout")
    for n, source in enumerate(maps.cross, start=1):
        np.testing.assert_allclose(source.sum(axis=-1), np.full((1, 4), 1 - 2.0**-n), rtol=1e-6)


def test_shortest_sentences_have_maps(make_model):
    model = make_model()
    for weighting in ("norm", "rollout", "alti"):
        maps = weighted_maps(model, capture_maps(model, (), ()), weighting)
        assert maps.cross[-1].shape[-2:] == (1, 1)
        assert all(
            np.isfinite(layer).all()
            for kind in ("enc", "dec", "cross")
            for layer in maps.layers(kind)
        )


def maps_of(enc, dec, cross):
    n_target, n_source = cross[0].shape[1:]
    return AttentionMaps(
        source_ids=(5,) * n_source,
        target_input_ids=(2,) * n_target,
        enc=tuple(tensor.numpy() for tensor in enc),
        dec=tuple(tensor.numpy() for tensor in dec),
        cross=tuple(tensor.numpy() for tensor in cross),
        residuals={},
    )


def causal(n):
    return (torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]).expand(2, n, n)


def test_uniform_attention_has_its_closed_form():
    n, n_layers = 7, 6
    maps = maps_of(
        [torch.full((2, n, n), 1 / n)] * n_layers, [causal(3)], [torch.ones(2, 3, n) / n]
    )
    for layer, rolled in enumerate(roll_out(attention_mixing(maps))["enc"], start=1):
        off = (1 - 2**-layer) / n
        expected = torch.full((n, n), off).double() + 2**-layer * torch.eye(n).double()
        torch.testing.assert_close(rolled, expected, atol=1e-7, rtol=0)
    assert rolled[2, 2].item() == pytest.approx(0.15625, abs=1e-7)
    assert rolled[2, 3].item() == pytest.approx(0.140625, abs=1e-7)


def test_heads_that_look_at_themselves_leave_every_token_where_it_is():
    maps = maps_of([torch.eye(5).expand(2, 5, 5)] * 4, [causal(3)], [torch.ones(2, 3, 5) / 5])
    assert all(
        torch.equal(rolled, torch.eye(5).double())
        for rolled in roll_out(attention_mixing(maps))["enc"]
    )


def test_one_layer_by_hand():
    """Of the second position a quarter each stays, comes from the prefix and is halved again."""
    enc = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])  # both look at the first source token
    dec = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])  # both look at the begin of sentence
    cross = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    rolled = roll_out(attention_mixing(maps_of([enc], [dec], [cross])))
    assert rolled["enc"][0].tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert rolled["cross"][0].tolist() == [[0.5, 0.0], [0.25, 0.25]]
    assert rolled["dec"][0].tolist() == [[0.5, 0.0], [0.25, 0.25]]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_rows_sum_to_one_and_the_future_is_exactly_zero(make_model, norm):
    rolled = roll_out(attention_mixing(capture_maps(make_model(norm=norm), SOURCE, TARGET)))
    assert (len(rolled["enc"]), len(rolled["dec"]), len(rolled["cross"])) == (3, 2, 2)
    for encoder in rolled["enc"]:
        torch.testing.assert_close(encoder.sum(dim=-1), torch.ones(7).double())
    for prefix, source in zip(rolled["dec"], rolled["cross"], strict=True):
        assert prefix.triu(1).count_nonzero() == 0
        assert (prefix.tril() >= 0).all()
        assert source.shape == (4, 7)
        torch.testing.assert_close(prefix.sum(-1) + source.sum(-1), torch.ones(4).double())


def test_a_causal_stack_is_lower_triangular():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(5, 6, 6, generator=generator).double()
    hidden = torch.ones(6, 6).triu(1).bool()
    layers = list(scores.masked_fill(hidden, -torch.inf).softmax(dim=-1))
    for rolled in roll_out_stack(layers):
        assert rolled.triu(1).count_nonzero() == 0
        assert (rolled.diagonal() > 0).all()
        torch.testing.assert_close(rolled.sum(-1), torch.ones(6).double())


def test_layers_apply_in_their_order():
    first, second = torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    rolled = roll_out_stack([first.double(), second.double()])
    # after the second layer all look at state 0, which the first one had made of token 1
    assert rolled[1].tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_a_layer_without_heads_passes_its_input_on():
    none = torch.zeros(0, 4, 4)
    maps = maps_of([none], [torch.zeros(0, 3, 3)], [torch.zeros(0, 3, 4)])
    mixing = attention_mixing(maps)
    assert torch.equal(mixing["enc"][0], torch.eye(4).double())
    rolled = roll_out(mixing)
    assert torch.equal(rolled["dec"][0], torch.eye(3).double())
    assert rolled["cross"][0].count_nonzero() == 0


SOURCE_VALUE_NORMS, TARGET_INPUT = (5, 9, 7, 11, 6, 8, 3), (2, 20, 24, 21)


def projected_values(attention, head=None):
    """The rows of W_V, of one head or of all, in the joint projection."""
    joined, width = attention.n_heads * attention.head_width, attention.head_width
    start = 2 * joined + (0 if head is None else head * width)
    return slice(start, start + (joined if head is None else width))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("pruned", [{}, PRUNED], ids=["whole", "pruned"])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_the_vectors_and_the_bias_add_up_to_the_models_output(
    make_model, norm, pruned, dtype, most
):
    sublayers = observe_sublayers(
        make_model(dtype, norm=norm, **pruned), SOURCE_VALUE_NORMS, TARGET_INPUT
    )
    assert len(sublayers) == 7
    for sublayer in sublayers:
        assert norm_residual(sublayer) <= most
        assert value_norms(sublayer).shape == sublayer.weights().shape


def test_the_identity_without_biases(make_model):
    for sublayer in observe_sublayers(make_model(bias=False), SOURCE_VALUE_NORMS, TARGET_INPUT):
        assert norm_residual(sublayer) <= 1e-5


def test_a_wrong_bias_shows_in_the_residual(make_model):
    model = make_model()
    sublayer = observe_sublayers(model, SOURCE_VALUE_NORMS, TARGET_INPUT)[0]
    wrong = replace(sublayer, out_bias=sublayer.out_bias + 0.01)
    assert norm_residual(wrong) == pytest.approx(0.01, rel=1e-3)


def test_norms_are_those_of_torchs_attention_with_one_key_and_one_head(make_model):
    model = make_model(torch.float64, bias=False)
    attention = model.decoder.layers[1].cross_attention
    inputs = []
    handle = attention.register_forward_pre_hook(lambda _, args: inputs.append(args[:2]))
    sublayer = observe_sublayers(model, SOURCE_VALUE_NORMS, TARGET_INPUT)[-1]
    handle.remove()
    norms = value_norms(sublayer)
    peer = nn.MultiheadAttention(32, 4, bias=False, batch_first=True, dtype=torch.float64).eval()
    query, memory = (part.clone() for part in inputs[0])
    for head in range(4):
        of_head = slice(8 * head, 8 * head + 8)
        with torch.no_grad():
            peer.in_proj_weight.copy_(attention.in_projection.weight)
            peer.out_proj.weight.zero_()
            peer.out_proj.weight[:, of_head] = attention.out_projection.weight[:, of_head]
            for key in range(len(SOURCE_VALUE_NORMS)):
                value = torch.zeros_like(memory)
                value[:, key] = memory[:, key]
                brought, _ = peer(query, memory, value)
                torch.testing.assert_close(brought[0].norm(dim=-1), norms[head, :, key])


def test_a_head_without_values_weighs_nothing_though_it_attends(make_model):
    model = make_model()
    before = observe_sublayers(model, SOURCE_VALUE_NORMS, TARGET_INPUT)[0].weights()
    attention = model.encoder.layers[0].self_attention
    with torch.no_grad():
        attention.in_projection.weight[projected_values(attention, 2)] = 0.0
        attention.in_projection.bias[projected_values(attention, 2)] = 0.0
    sublayer = observe_sublayers(model, SOURCE_VALUE_NORMS, TARGET_INPUT)[0]
    norms = value_norms(sublayer)
    assert torch.equal(sublayer.weights(), before)
    assert norms[2].abs().max() == 0.0
    assert norms[[0, 1, 3]].min() > 0.0


def test_values_times_a_factor_weigh_that_factor_more(make_model):
    model = make_model(torch.float64)
    before = observe_sublayers(model, SOURCE_VALUE_NORMS, TARGET_INPUT)[0]
    attention = model.encoder.layers[0].self_attention
    with torch.no_grad():
        attention.in_projection.weight[projected_values(attention)] *= 2.5
        attention.in_projection.bias[projected_values(attention)] *= 2.5
    after = observe_sublayers(model, SOURCE_VALUE_NORMS, TARGET_INPUT)[0]
    assert torch.equal(after.weights(), before.weights())
    torch.testing.assert_close(value_norms(after), 2.5 * value_norms(before))


def test_what_may_not_be_seen_weighs_exactly_nothing(make_model):
    model = make_model()
    of_decoder = [
        s for s in observe_sublayers(model, SOURCE_VALUE_NORMS, TARGET_INPUT) if s.kind == "dec"
    ]
    assert len(of_decoder) == 2
    for sublayer in of_decoder:
        assert value_norms(sublayer).triu(1).count_nonzero() == 0


SOURCE_ALTI, TARGET_INPUT_ALTI = (5, 9, 7, 11, 6, 8, 3), (2, 20, 24, 21)


SHAPES = {"enc": (7, 7), "dec": (4, 4), "cross": (4, 8)}


@pytest.fixture(params=["post", "pre"])
def norm(request):
    return request.param


@pytest.mark.parametrize("pruned", [{}, PRUNED], ids=["whole", "pruned"])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_the_vectors_and_the_biases_add_up_to_the_layers_output(
    make_model, norm, pruned, dtype, most
):
    for sublayer in observe_sublayers(
        make_model(dtype, norm=norm, **pruned), SOURCE_ALTI, TARGET_INPUT_ALTI
    ):
        assert contributions(sublayer).residual <= most


def test_contributions_are_shares_and_causal(make_model, norm):
    for sublayer in observe_sublayers(make_model(norm=norm), SOURCE_ALTI, TARGET_INPUT_ALTI):
        shares = contributions(sublayer).shares
        assert shares.shape == SHAPES[sublayer.kind]
        assert shares.min() >= 0.0
        torch.testing.assert_close(shares.sum(dim=-1), torch.ones(len(shares)).double())
        if sublayer.kind == "dec":
            assert shares.triu(1).count_nonzero() == 0


def test_contributions_are_those_of_the_formula_written_out(make_model, norm):
    """One number at a time, with the norm's derivative at hand taken from its definition."""
    model = make_model(torch.float64, norm=norm)
    for sublayer in observe_sublayers(model, SOURCE_ALTI, TARGET_INPUT_ALTI):
        weights, values = sublayer.weights(), sublayer.value
        n_queries, n_keys = weights.shape[1:]
        found = contributions(sublayer).shares
        for i in range(n_queries):
            vectors = [
                sum(weights[h, i, j] * (values[h, j] @ sublayer.out_weight[h]) for h in range(4))
                for j in range(n_keys)
            ]
            if sublayer.kind == "cross":
                vectors.append(sublayer.stream[i])
            else:
                vectors[i] = vectors[i] + sublayer.stream[i]
            if norm == "post":
                summed = sum(vectors) + sublayer.out_bias
                deviation = (((summed - summed.mean()) ** 2).sum() / 32 + 1e-5) ** 0.5
                vectors = [sublayer.norm.scale * (v - v.mean()) / deviation for v in vectors]
            length = sublayer.output[i].abs().sum()
            nearer = [
                max(0.0, (length - (sublayer.output[i] - v).abs().sum()).item()) for v in vectors
            ]
            expected = torch.tensor(nearer, dtype=torch.float64) / sum(nearer)
            torch.testing.assert_close(found[i], expected, atol=1e-9, rtol=0)


def test_leaving_the_norms_shift_out_shows_in_the_residual(make_model):
    sublayer = observe_sublayers(make_model(), SOURCE_ALTI, TARGET_INPUT_ALTI)[-1]
    norm = replace(sublayer.norm, shift=sublayer.norm.shift + 0.01)
    assert contributions(replace(sublayer, norm=norm)).residual == pytest.approx(0.01, rel=1e-3)


def test_the_deviation_that_divides_by_one_less_does_not_add_up(make_model):
    sublayer = observe_sublayers(make_model(torch.float64), SOURCE_ALTI, TARGET_INPUT_ALTI)[0]
    norm = replace(sublayer.norm, deviation=sublayer.norm.deviation * (32 / 31) ** 0.5)
    assert contributions(replace(sublayer, norm=norm)).residual > 1e-3


def test_an_attention_that_adds_nothing_leaves_the_position_itself(make_model, norm):
    model = make_model(norm=norm)
    attention = model.encoder.layers[0].self_attention
    with torch.no_grad():
        attention.out_projection.weight.zero_()
    shares = contributions(observe_sublayers(model, SOURCE_ALTI, TARGET_INPUT_ALTI)[0]).shares
    assert torch.equal(shares, torch.eye(7).double())


def test_a_row_that_no_vector_brings_nearer_is_the_position_itself():
    # 10 and -9 on one axis: the sum is 1, and without either it would be farther from 0 than 1
    vectors = torch.tensor([[[10.0, 0.0], [-9.0, 0.0]]]).double()
    shares = maps._shares(vectors, vectors.sum(dim=1), torch.tensor([1]))
    assert shares.tolist() == [[0.0, 1.0]]


def test_long_sentences_are_taken_in_parts_that_change_nothing(make_model, monkeypatch):
    sublayers = observe_sublayers(make_model(), SOURCE_ALTI, TARGET_INPUT_ALTI)
    whole = [contributions(sublayer) for sublayer in sublayers]
    monkeypatch.setattr("tformer_cli.plugins.instruments.weighting.MOST_NUMBERS", 2 * 8 * 32)
    for sublayer, expected in zip(sublayers, whole, strict=True):
        in_parts = contributions(sublayer)
        torch.testing.assert_close(in_parts.shares, expected.shares, atol=1e-14, rtol=0)
        assert in_parts.residual == pytest.approx(expected.residual, rel=1e-6)


SOURCE_SUBLAYERS, TARGET_INPUT_SUBLAYERS = (5, 9, 7, 11, 6, 8, 3), (2, 20, 24, 21)


def test_every_attention_is_taken_down_with_the_weights_of_the_maps(make_model):
    model = make_model(norm="pre")
    maps = capture_maps(model, SOURCE_SUBLAYERS[:-1], TARGET_INPUT_SUBLAYERS[1:])
    sublayers = observe_sublayers(model, SOURCE_SUBLAYERS, TARGET_INPUT_SUBLAYERS)
    assert [(s.kind, s.layer) for s in sublayers] == [(k, n) for k, n, _ in attentions(model)]
    for sublayer in sublayers:
        expected = maps.layers(sublayer.kind)[sublayer.layer]
        np.testing.assert_allclose(sublayer.weights(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_stream_and_attention_add_up_to_the_output(make_model, norm, norm_kind):
    model = make_model(torch.float64, norm=norm, norm_kind=norm_kind)
    for sublayer in observe_sublayers(model, SOURCE_SUBLAYERS, TARGET_INPUT_SUBLAYERS):
        summed = sublayer.stream + sublayer.attended
        if sublayer.norm is not None:
            summed = sublayer.norm.apply(summed) + sublayer.norm.shift
        assert (sublayer.norm is None) == (norm == "pre")
        torch.testing.assert_close(summed, sublayer.output, atol=1e-12, rtol=0)


def test_the_linear_norm_is_torchs_layer_norm_and_linear(make_model):
    norm = observe_sublayers(make_model(torch.float64), SOURCE_SUBLAYERS, TARGET_INPUT_SUBLAYERS)[
        0
    ].norm
    generator = torch.Generator().manual_seed(1)
    parts = torch.randn(7, 5, 32, generator=generator, dtype=torch.float64)
    # of vectors with these very deviations it is layer norm
    summed = parts.sum(dim=1)
    scaled = summed / summed.std(dim=-1, correction=0, keepdim=True) * norm.deviation[:, None]
    expected = functional.layer_norm(scaled, (32,), norm.scale, norm.shift, eps=0.0)
    torch.testing.assert_close(norm.apply(scaled) + norm.shift, expected)
    torch.testing.assert_close(norm.apply(parts).sum(dim=1), norm.apply(summed))
    torch.testing.assert_close(norm.apply(parts[2:4], slice(2, 4)), norm.apply(parts)[2:4])


def test_a_gate_is_part_of_what_a_head_brings(make_model):
    model = make_model()
    model.encoder.layers[1].self_attention.gate = torch.tensor([1.0, 0.0, 0.5, 1.0]).view(4, 1, 1)
    sublayer = observe_sublayers(model, SOURCE_SUBLAYERS, TARGET_INPUT_SUBLAYERS)[1]
    transformed = sublayer.transform_values()
    assert transformed[1].abs().max() == 0.0
    summed = (sublayer.weights() @ transformed).sum(dim=0) + sublayer.out_bias
    torch.testing.assert_close(summed, sublayer.attended, atol=1e-5, rtol=0)


def test_nothing_goes_on_listening(make_model):
    model = make_model()
    observe_sublayers(model, SOURCE_SUBLAYERS, TARGET_INPUT_SUBLAYERS)
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(attention._listeners for _, _, attention in attentions(model))
