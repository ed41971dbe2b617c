"""Activations against the field's formulas, and the layer against its own."""

import pytest
import torch
from torch.nn import functional

from tformer_cli.model.feed_forward import ACTIVATIONS, FeedForward, gelu_tanh, swish

VALUES = torch.tensor([-3e38, -200.0, -100.0, -88.0, -3.0, -1e-6, 0.0, 1e-6, 2.0, 88.0, 3e38])


def test_gelu_by_tanh_is_torchs_with_and_without_gradients():
    exact = functional.gelu(VALUES.double(), approximate="tanh")
    assert torch.allclose(gelu_tanh(VALUES), functional.gelu(VALUES, approximate="tanh"))
    with torch.no_grad():
        found = gelu_tanh(VALUES)
    assert torch.allclose(found.double(), exact, rtol=1e-6, atol=1e-7)
    assert found.isfinite().all()


def test_swish_is_silu_with_and_without_gradients():
    exact = VALUES.double() * torch.sigmoid(VALUES.double())
    assert torch.allclose(swish(VALUES), functional.silu(VALUES))
    with torch.no_grad():
        found = swish(VALUES)
    assert torch.allclose(found.double(), exact, rtol=1e-6, atol=1e-36)
    assert found.isfinite().all()
    assert torch.isnan(swish(torch.tensor([torch.nan]))).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_layer_is_two_products_and_an_activation(activation):
    torch.manual_seed(0)
    layer = FeedForward(8, 24, activation=activation).eval()
    hidden = torch.randn(2, 5, 8)
    theirs = {
        "relu": torch.nn.ReLU(),
        "gelu": torch.nn.GELU(),
        "gelu-tanh": torch.nn.GELU("tanh"),
        "swish": torch.nn.SiLU(),
    }[activation]
    expected = torch.nn.Sequential(layer.inner, theirs, layer.outer)(hidden)
    assert torch.allclose(layer(hidden), expected, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(layer(hidden), expected, atol=1e-6)


@pytest.mark.parametrize("activation", ["gelu-tanh", "swish"])
def test_gated_layers_are_those_of_t5_and_llama_with_their_gradients(activation):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    torch.manual_seed(0)
    if activation == "swish":
        config = llama.LlamaConfig(hidden_size=12, num_attention_heads=2, intermediate_size=30)
        theirs = llama.LlamaMLP(config)
        gate, inner, outer = theirs.gate_proj, theirs.up_proj, theirs.down_proj
    else:
        config = t5.T5Config(d_model=12, d_ff=30, feed_forward_proj="gated-gelu", dropout_rate=0.0)
        theirs = t5.T5DenseGatedActDense(config)
        gate, inner, outer = theirs.wi_0, theirs.wi_1, theirs.wo
    ours = FeedForward(12, 30, activation=activation, gated=True, bias=False)
    pairs = [(ours.gate, gate), (ours.inner, inner), (ours.outer, outer)]
    for our, their in pairs:
        our.weight.data.copy_(their.weight.data.normal_(std=0.5))
    hidden = torch.randn(2, 5, 12)
    expected = theirs(hidden)
    assert torch.allclose(ours(hidden), expected, atol=1e-5)
    with torch.inference_mode():  # which computes with other formulas
        assert torch.allclose(ours(hidden), expected, atol=1e-5)
    for result in (ours(hidden), expected):
        result.square().sum().backward()
    for our, their in pairs:
        assert torch.allclose(our.weight.grad, their.weight.grad, rtol=1e-4, atol=1e-4)
    ours.activation = "gelu"
    assert not torch.allclose(ours(hidden), expected, atol=1e-4)
    ours.activation, ours.gate, ours.inner = activation, ours.inner, ours.gate
    assert not torch.allclose(ours(hidden), expected, atol=1e-2)
