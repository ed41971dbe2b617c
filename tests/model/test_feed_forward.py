"""Activations against the field's formulas, and the layer against its own."""

import pytest
import torch
from torch.nn import functional

from tformer_cli.model.feed_forward import ACTIVATIONS, FeedForward, swish

VALUES = torch.tensor([-3e38, -200.0, -100.0, -88.0, -3.0, -1e-6, 0.0, 1e-6, 2.0, 88.0, 3e38])


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
    theirs = {"relu": torch.nn.ReLU, "gelu": torch.nn.GELU, "swish": torch.nn.SiLU}[activation]
    expected = torch.nn.Sequential(layer.inner, theirs(), layer.outer)(hidden)
    assert torch.allclose(layer(hidden), expected, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(layer(hidden), expected, atol=1e-6)
