import pytest
import torch
from torch.nn import functional

from tformer_cli.heads.names import attentions
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.weighting.sublayers import observe_sublayers

SOURCE, TARGET_INPUT = (5, 9, 7, 11, 6, 8, 3), (2, 20, 24, 21)


def test_every_attention_is_taken_down_with_the_weights_of_the_maps(make_model):
    model = make_model(norm="pre")
    maps = capture_maps(model, SOURCE[:-1], TARGET_INPUT[1:])
    sublayers = observe_sublayers(model, SOURCE, TARGET_INPUT)
    assert [(s.kind, s.layer) for s in sublayers] == [(k, n) for k, n, _ in attentions(model)]
    for sublayer in sublayers:
        expected = maps.layers(sublayer.kind)[sublayer.layer].double()
        torch.testing.assert_close(sublayer.weights(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_stream_and_attention_add_up_to_the_output(make_model, norm, norm_kind):
    model = make_model(torch.float64, norm=norm, norm_kind=norm_kind)
    for sublayer in observe_sublayers(model, SOURCE, TARGET_INPUT):
        summed = sublayer.stream + sublayer.attended
        if sublayer.norm is not None:
            summed = sublayer.norm.apply(summed) + sublayer.norm.shift
        assert (sublayer.norm is None) == (norm == "pre")
        torch.testing.assert_close(summed, sublayer.output, atol=1e-12, rtol=0)


def test_the_linear_norm_is_torchs_layer_norm_and_linear(make_model):
    norm = observe_sublayers(make_model(torch.float64), SOURCE, TARGET_INPUT)[0].norm
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
    sublayer = observe_sublayers(model, SOURCE, TARGET_INPUT)[1]
    transformed = sublayer.transformed()
    assert transformed[1].abs().max() == 0.0
    summed = (sublayer.weights() @ transformed).sum(dim=0) + sublayer.out_bias
    torch.testing.assert_close(summed, sublayer.attended, atol=1e-5, rtol=0)


def test_nothing_goes_on_listening(make_model):
    model = make_model()
    observe_sublayers(model, SOURCE, TARGET_INPUT)
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(attention._listeners for _, _, attention in attentions(model))
