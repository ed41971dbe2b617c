"""Matrix products in training by the kernels, against torch's own."""

import copy
import math

import pytest
import torch
from torch.nn import functional

from tformer_cli.fast.native import linear as module
from tformer_cli.model.feed_forward import FeedForward
from tformer_cli.model.operations import Linear


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def differentiate(layer, values, gradient, precision):
    """The result of a layer, and the gradients of the values and of its parameters."""
    values = values.clone().requires_grad_()
    layer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        result = layer(values)
    (result.float() * gradient).sum().backward()
    return [result.detach(), values.grad, *(p.grad.clone() for p in layer.parameters())]


def worst(actual, expected):
    return max(
        ((a.float() - b.float()).abs().max() / b.float().abs().max().clamp(min=1e-30)).item()
        for a, b in zip(actual, expected, strict=True)
    )


def layers(operations, layer):
    by_kernels = copy.deepcopy(layer)
    for part in by_kernels.modules():
        part.operations = operations
    return layer, by_kernels


@pytest.mark.parametrize("n_rows", [1, 7, 129, 300])
@pytest.mark.parametrize(("n_inputs", "n_outputs"), [(64, 96), (36, 50), (5, 1)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_products_have_torchs_results_and_gradients(
    operations, n_rows, n_inputs, n_outputs, bias, precision
):
    plain, by_kernels = layers(operations, Linear(n_inputs, n_outputs, bias=bias))
    values, gradient = torch.randn(1, n_rows, n_inputs), torch.randn(1, n_rows, n_outputs)
    expected = differentiate(plain, values, gradient, precision)
    found = differentiate(by_kernels, values, gradient, precision)
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    assert worst(found, expected) < (1e-5 if precision == "float32" else 0.02)


@pytest.mark.parametrize("n_rows", [1, 7, 300])
@pytest.mark.parametrize(("width", "inner"), [(64, 96), (36, 50)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_feed_forward_has_torchs_results_and_gradients(
    operations, n_rows, width, inner, bias, precision
):
    plain, by_kernels = layers(operations, FeedForward(width, inner, bias=bias))
    values, gradient = torch.randn(1, n_rows, width), torch.randn(1, n_rows, width)
    expected = differentiate(plain, values, gradient, precision)
    found = differentiate(by_kernels, values, gradient, precision)
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    if precision == "float32":
        assert worst(found, expected) < 1e-5
        return
    # results near 0 may round to another side of it: not every element need agree
    exact = differentiate(copy.deepcopy(plain), values, gradient, "float32")
    for own, torchs, right in zip(found, expected, exact, strict=True):
        assert torch.dist(own.float(), right) <= 1.1 * torch.dist(torchs.float(), right) + 1e-6


@pytest.mark.parametrize(
    "changed", [{"activation": "gelu"}, {"activation": "swish"}, {"dropout": 0.5}]
)
def test_other_feed_forward_layers_are_computed_step_by_step(operations, changed):
    plain, by_kernels = layers(operations, FeedForward(16, 24, **changed))
    values, gradient = torch.randn(1, 9, 16), torch.randn(1, 9, 16)
    if "dropout" in changed:
        plain.dropout.rate = by_kernels.dropout.rate = 1e-9  # is asked for, and drops nothing
    expected = differentiate(plain, values, gradient, "float32")
    assert worst(differentiate(by_kernels, values, gradient, "float32"), expected) < 1e-5


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_some_rows_of_a_matrix_have_torchs_gradients(operations, precision):
    plain, by_kernels = layers(operations, Linear(16, 48))
    for layer in (plain, by_kernels):
        layer.forward = lambda values, layer=layer: layer.part(values, slice(16, 40))
    values, gradient = torch.randn(3, 7, 16), torch.randn(3, 7, 24)
    expected = differentiate(plain, values, gradient, precision)
    found = differentiate(by_kernels, values, gradient, precision)
    assert worst(found, expected) < (1e-5 if precision == "float32" else 0.02)
    assert torch.equal(found[2][:16], torch.zeros(16, 16))


def test_without_gradients_torch_computes(operations, monkeypatch):
    plain, by_kernels = layers(operations, Linear(8, 8))
    monkeypatch.setattr(operations, "linear", None)
    values = torch.randn(2, 8)
    with torch.no_grad():
        assert torch.equal(by_kernels(values), plain(values))


def test_frozen_weights_get_no_gradient(operations):
    _, layer = layers(operations, FeedForward(8, 12))
    layer.inner.weight.requires_grad_(False)
    layer.outer.bias.requires_grad_(False)
    values = torch.randn(1, 3, 8, requires_grad=True)
    layer(values).sum().backward()
    assert layer.inner.weight.grad is None
    assert layer.outer.bias.grad is None
    assert values.grad is not None
    _, alone = layers(operations, Linear(8, 8))
    alone.weight.requires_grad_(False)
    alone.bias.requires_grad_(False)
    alone(values).sum().backward()
    assert alone.weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (8, 16), (129, 17), (300, 50), (0, 3)])
def test_biases_get_the_sums_of_columns(operations, dtype, shape):
    gradient = torch.randn(shape).to(dtype)
    before = gradient.clone()
    sums = operations.products.bias_gradient(gradient, None, has_bias=True)
    assert sums.dtype == torch.float32
    assert torch.allclose(sums.double(), gradient.double().sum(0), rtol=1e-5, atol=1e-4)
    assert torch.equal(gradient, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (129, 17), (300, 50)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_what_was_not_positive_gets_no_gradient(operations, dtype, shape, has_bias):
    gradient, result = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype).relu()
    result[0, 0] = math.nan  # has diverged; torch lets the gradient through
    expected = torch.ops.aten.threshold_backward(gradient, result, 0.0)
    sums = operations.products.bias_gradient(gradient, result, has_bias=has_bias)
    assert torch.equal(gradient, expected)
    assert len(sums) == (shape[1] if has_bias else 0)
    if has_bias:
        assert torch.allclose(sums.double(), expected.double().sum(0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_sums_do_not_depend_on_the_number_of_threads(operations, threads):
    gradient = torch.randn(1000, 40, generator=torch.Generator().manual_seed(5))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = operations.products.bias_gradient(gradient, None, has_bias=True)
        torch.set_num_threads(threads)
        sums = operations.products.bias_gradient(gradient, None, has_bias=True)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(sums, expected)


def test_other_gradients_are_refused(operations):
    products = operations.products
    rows = torch.ones(4, 6)
    with pytest.raises(TypeError, match="contiguous rows"):
        products.bias_gradient(rows.t(), None, has_bias=True)
    with pytest.raises(TypeError, match="contiguous rows"):
        products.bias_gradient(rows[0], None, has_bias=True)
    for other in (rows[:2], rows.bfloat16(), torch.ones(6, 4).t()):
        with pytest.raises(TypeError, match="shape and type"):
            products.bias_gradient(rows, other, has_bias=True)
    with pytest.raises(TypeError, match="float64"):
        products.bias_gradient(rows.double(), None, has_bias=True)


def test_scratch_memory_is_used_again(operations):
    products = operations.products
    first = products.scratch(10, 8, torch.float32)
    assert products.scratch(4, 5, torch.float32).data_ptr() == first.data_ptr()
    assert products.scratch(4, 5, torch.bfloat16).data_ptr() != first.data_ptr()
    assert products.scratch(20, 8, torch.float32).shape == (20, 8)


@pytest.mark.parametrize("is_there", [True, False])
def test_biases_are_added_without_onednn_too(operations, monkeypatch, is_there):
    if is_there and not module._has_fused_product.__wrapped__():
        pytest.skip("oneDNN has no bfloat16 product for this processor")
    monkeypatch.setattr(module, "_has_fused_product", lambda: is_there)
    rows, matrix, bias = torch.randn(9, 8), torch.randn(6, 8), torch.randn(6)
    with torch.autocast("cpu", torch.bfloat16):
        found = operations.linear(rows, matrix, bias)
    expected = functional.linear(rows, matrix, bias)
    assert found.dtype == torch.bfloat16
    assert worst([found], [expected]) < 0.02


def test_onednn_is_asked_only_if_it_gives_torchs_products(monkeypatch):
    def refuse(*_arguments):
        raise RuntimeError("no such operator")

    asked = module._has_fused_product.__wrapped__
    monkeypatch.setattr(
        torch.ops.mkldnn, "_linear_pointwise", lambda x, w, b, *_rest: x @ w.t(), raising=False
    )
    assert not asked()  # the bias is missing
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", refuse, raising=False)
    assert not asked()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not asked()
