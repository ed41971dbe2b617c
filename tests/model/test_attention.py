import math

import pytest
import torch

from tests.model.conftest import small_model
from tests.oracles.plain_attention import plain_context, plain_weights
from tformer_cli.model.attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    fused_attention,
    plain_attention,
)


def heads(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_weights_of_a_hand_worked_case():
    query = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[1.0, 0, 0, 0], [0, 1.0, 0, 0], [math.log(3), 0, 0, 0]]]])
    # scores are q·k / √4 = 1, 0, ln 3
    expected = torch.tensor([math.e, 1.0, 3.0]) / (math.e + 1.0 + 3.0)
    assert torch.allclose(attention_weights(query, key).flatten(), expected)


def test_hidden_cells_are_exactly_zero_and_rows_sum_to_one():
    mask = causal_mask(9).visible
    weights = attention_weights(heads(2, 3, 9, 8), heads(2, 3, 9, 8, seed=1), mask)
    assert (weights[..., ~mask] == 0.0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 9), atol=1e-6)


def test_a_row_with_every_key_hidden_is_zero_and_not_nan():
    mask = torch.tensor([[True, True], [False, False]])
    weights = attention_weights(heads(1, 1, 2, 4), heads(1, 1, 2, 4), mask)
    assert (weights[0, 0, 1] == 0.0).all()
    assert weights.isfinite().all()


@pytest.mark.parametrize("n_keys", [5, 200])
@pytest.mark.parametrize("is_masked", [True, False])
def test_fused_attention_equals_the_plain_formula_forward_and_backward(n_keys, is_masked):
    mask = causal_mask(n_keys).visible if is_masked else None
    results = []
    for attention in (plain_attention, fused_attention):
        inputs = [heads(2, 3, n_keys, 8, seed=seed).requires_grad_() for seed in range(3)]
        context = attention(*inputs, mask)
        context.square().sum().backward()
        results.append([context, *(tensor.grad for tensor in inputs)])
    for plain, fused in zip(*results, strict=True):
        assert torch.allclose(plain, fused, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("is_masked", [True, False])
@pytest.mark.parametrize("is_biased", [True, False])
def test_every_formula_is_that_of_the_definition(is_masked, is_biased):
    query, key, value = heads(2, 3, 5, 8), heads(2, 3, 7, 8, seed=1), heads(2, 3, 7, 8, seed=2)
    mask = torch.rand(2, 1, 5, 7) > 0.4 if is_masked else None
    if mask is not None:
        mask[..., 0] = True
    bias = heads(3, 5, 7, seed=3) if is_biased else None
    expected = plain_context(query, key, value, mask, bias)
    for attention in (plain_attention, fused_attention):
        context = attention(query, key, value, mask, bias=bias)
        assert torch.allclose(context.double(), expected, atol=1e-5)
    if mask is not None:
        mask[1, 0, 2] = False
    weights = attention_weights(query, key, mask, bias=bias)
    assert torch.allclose(weights.double(), plain_weights(query, key, mask, bias), atol=1e-6)


def test_multi_head_attention_equals_torchs_own():
    ours = small_model().encoder.layers[0].self_attention
    theirs = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.in_projection.weight)
        theirs.in_proj_bias.copy_(ours.in_projection.bias)
        theirs.out_proj.weight.copy_(ours.out_projection.weight)
        theirs.out_proj.bias.copy_(ours.out_projection.bias)
    hidden, memory = heads(2, 5, 32), heads(2, 7, 32, seed=1)
    taps = []
    ours.tap(taps.append)
    for source in (hidden, memory):
        expected, weights = theirs(hidden, source, source, average_attn_weights=False)
        assert torch.allclose(ours(hidden, source), expected, atol=1e-6)
        assert torch.allclose(taps[-1].weights(), weights, atol=1e-6)
    assert torch.allclose(ours(hidden), ours(hidden, hidden), atol=1e-6)


def test_a_tap_sees_what_the_layer_used_until_it_is_removed():
    torch.manual_seed(0)
    layer = MultiHeadAttention(32, 4, 8).eval()
    hidden = heads(2, 5, 32)
    silent = layer(hidden, mask=causal_mask(5))
    taps = []
    handle = layer.tap(taps.append)
    heard = layer(hidden, mask=causal_mask(5))
    handle.remove()
    handle.remove()
    layer(hidden)
    assert torch.equal(silent, heard)
    assert len(taps) == 1
    weights = taps[0].weights()
    assert torch.allclose(weights @ taps[0].value, taps[0].context, atol=1e-6)
