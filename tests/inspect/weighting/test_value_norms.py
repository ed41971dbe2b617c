from dataclasses import replace

import pytest
import torch
from torch import nn

from tformer_cli.inspect.weighting.sublayers import norm_residual, observe_sublayers, value_norms

SOURCE, TARGET_INPUT = (5, 9, 7, 11, 6, 8, 3), (2, 20, 24, 21)
PRUNED = {"encoder_heads": (4, 0, 1), "decoder_heads": (2, 0), "cross_heads": (0, 3)}


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
    sublayers = observe_sublayers(make_model(dtype, norm=norm, **pruned), SOURCE, TARGET_INPUT)
    assert len(sublayers) == 7
    for sublayer in sublayers:
        assert norm_residual(sublayer) <= most
        assert value_norms(sublayer).shape == sublayer.weights().shape


def test_the_identity_without_biases(make_model):
    for sublayer in observe_sublayers(make_model(bias=False), SOURCE, TARGET_INPUT):
        assert norm_residual(sublayer) <= 1e-5


def test_a_wrong_bias_shows_in_the_residual(make_model):
    model = make_model()
    sublayer = observe_sublayers(model, SOURCE, TARGET_INPUT)[0]
    wrong = replace(sublayer, out_bias=sublayer.out_bias + 0.01)
    assert norm_residual(wrong) == pytest.approx(0.01, rel=1e-3)


def test_norms_are_those_of_torchs_attention_with_one_key_and_one_head(make_model):
    model = make_model(torch.float64, bias=False)
    attention = model.decoder.layers[1].cross_attention
    inputs = []
    handle = attention.register_forward_pre_hook(lambda _, args: inputs.append(args[:2]))
    sublayer = observe_sublayers(model, SOURCE, TARGET_INPUT)[-1]
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
            for key in range(len(SOURCE)):
                value = torch.zeros_like(memory)
                value[:, key] = memory[:, key]
                brought, _ = peer(query, memory, value)
                torch.testing.assert_close(brought[0].norm(dim=-1), norms[head, :, key])


def test_a_head_without_values_weighs_nothing_though_it_attends(make_model):
    model = make_model()
    before = observe_sublayers(model, SOURCE, TARGET_INPUT)[0].weights()
    attention = model.encoder.layers[0].self_attention
    with torch.no_grad():
        attention.in_projection.weight[projected_values(attention, 2)] = 0.0
        attention.in_projection.bias[projected_values(attention, 2)] = 0.0
    sublayer = observe_sublayers(model, SOURCE, TARGET_INPUT)[0]
    norms = value_norms(sublayer)
    assert torch.equal(sublayer.weights(), before)
    assert norms[2].abs().max() == 0.0
    assert norms[[0, 1, 3]].min() > 0.0


def test_values_times_a_factor_weigh_that_factor_more(make_model):
    model = make_model(torch.float64)
    before = observe_sublayers(model, SOURCE, TARGET_INPUT)[0]
    attention = model.encoder.layers[0].self_attention
    with torch.no_grad():
        attention.in_projection.weight[projected_values(attention)] *= 2.5
        attention.in_projection.bias[projected_values(attention)] *= 2.5
    after = observe_sublayers(model, SOURCE, TARGET_INPUT)[0]
    assert torch.equal(after.weights(), before.weights())
    torch.testing.assert_close(value_norms(after), 2.5 * value_norms(before))


def test_what_may_not_be_seen_weighs_exactly_nothing(make_model):
    model = make_model()
    of_decoder = [s for s in observe_sublayers(model, SOURCE, TARGET_INPUT) if s.kind == "dec"]
    assert len(of_decoder) == 2
    for sublayer in of_decoder:
        assert value_norms(sublayer).triu(1).count_nonzero() == 0
