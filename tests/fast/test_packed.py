"""Packed products, against torch's own."""

import pytest
import torch
from torch.nn import functional

from tformer_cli.fast import products as packed
from tformer_cli.fast.products import PackedProduct, can_pack
from tformer_cli.model.operations import Linear
from tformer_cli.runtime import prepare_cpu


@pytest.fixture(autouse=True)
def packable(one_thread):
    if not can_pack():
        pytest.skip("this build of torch packs no float32 matrices")


@pytest.mark.parametrize(("n_rows", "n_columns"), [(768, 256), (256, 1024), (50, 64), (7, 13)])
def test_a_packed_product_equals_the_plain_one(n_rows, n_columns):
    torch.manual_seed(n_rows)
    weight, bias = torch.randn(n_rows, n_columns), torch.randn(n_rows)
    product = PackedProduct(weight, bias)
    for n in (2, 5, 64, 200):
        values = torch.randn(n, 1, n_columns)
        exact = values.double() @ weight.double().T + bias
        found = product(values)
        assert torch.allclose(found.double(), exact, rtol=1e-4, atol=1e-4)
        assert torch.equal(product(values, relu=True), found.relu())
        part = product(values, slice(2, 6))
        assert torch.allclose(part, found[..., 2:6], atol=1e-4)


def test_bits_are_those_of_the_unpacked_product_and_of_every_batch():
    if not prepare_cpu.__wrapped__():
        pytest.skip("oneDNN's float32 products are not to be had here")
    torch.manual_seed(4)
    weight, bias = torch.randn(512, 256), torch.randn(512)
    product = PackedProduct(weight, bias)
    values = torch.randn(300, 256)
    whole = product(values)
    for n in (1, 2, 3, 17, 64, 299):
        assert torch.equal(product(values[:n]), whole[:n])
        if n > 1:  # a lone row may take another kernel without a product of its own
            assert torch.equal(functional.linear(values[:n], weight, bias), whole[:n])


def test_a_gradient_is_computed_without_the_product():
    torch.manual_seed(5)
    linear = Linear(8, 6)
    linear.product = PackedProduct(torch.zeros(6, 8), None)
    values = torch.randn(3, 8, requires_grad=True)
    linear(values).sum().backward()
    assert torch.allclose(values.grad, linear.weight.sum(dim=0).expand(3, -1))
    with torch.no_grad():
        assert not linear(values).any()


def test_rows_of_a_linear_are_those_of_its_matrix():
    torch.manual_seed(6)
    for bias in (True, False):
        linear = Linear(8, 6, bias=bias)
        values = torch.randn(2, 3, 8)
        whole = functional.linear(values, linear.weight, linear.bias)
        assert torch.equal(linear(values), whole)
        assert torch.allclose(linear.part(values, slice(2, 5)), whole[..., 2:5], atol=1e-6)
        assert torch.equal(linear.part(values, relu=True), whole.relu())


def test_a_build_without_the_operator_is_known(monkeypatch):
    class Missing:
        def __init__(self, weight, bias):
            raise AttributeError("no such operator")

    monkeypatch.setattr(packed, "PackedProduct", Missing)
    assert not can_pack.__wrapped__()
