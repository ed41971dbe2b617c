import pytest
import torch

from tformer_cli.errors import UsageError
from tformer_cli.heads.names import HeadId, LayerId, head_layout, layer_layout
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.weighting.maps import weighted_maps
from tformer_cli.inspect.weighting.sublayers import contributions, observe_sublayers

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
            assert ours.dtype == torch.float32
            assert torch.equal(ours == 0, theirs == 0)


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
        with pytest.raises(UsageError, match=f"^{weighting}: a recurrent unit is in place of"):
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
        assert maps.weights(layer).dim() == 2
    for encoder in maps.enc:
        torch.testing.assert_close(encoder.sum(dim=-1), torch.ones(1, 7))
    for prefix, source in zip(maps.dec, maps.cross, strict=True):
        assert prefix.triu(1).count_nonzero() == 0
        torch.testing.assert_close(prefix.sum(dim=-1) + source.sum(dim=-1), torch.ones(1, 4))


def test_alti_multiplies_the_contributions_of_the_layers(make_model):
    """By hand for two decoder layers, in the order in which they are computed."""
    model = make_model(torch.float64, norm="pre")
    maps = weighted_maps(model, capture_maps(model, SOURCE, TARGET), "alti")
    sublayers = observe_sublayers(model, (*SOURCE, 3), (2, *TARGET))
    c0, c1, c2, own0, cross0, own1, cross1 = (contributions(s).shares for s in sublayers)
    memory = c2 @ c1 @ c0
    first = cross0[:, :7] @ memory
    kept = torch.diag(cross1[:, 7]) @ own1
    torch.testing.assert_close(maps.enc[2][0], memory.float())
    torch.testing.assert_close(maps.cross[0][0], first.float())
    torch.testing.assert_close(maps.cross[1][0], (cross1[:, :7] @ memory + kept @ first).float())
    expected = kept @ torch.diag(cross0[:, 7]) @ own0
    torch.testing.assert_close(maps.dec[1][0], expected.float())


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
        torch.testing.assert_close(source.sum(dim=-1), torch.full((1, 4), 1 - 2.0**-n))


def test_shortest_sentences_have_maps(make_model):
    model = make_model()
    for weighting in ("norm", "rollout", "alti"):
        maps = weighted_maps(model, capture_maps(model, (), ()), weighting)
        assert maps.cross[-1].shape[-2:] == (1, 1)
        assert all(
            layer.isfinite().all()
            for kind in ("enc", "dec", "cross")
            for layer in maps.layers(kind)
        )
