"""Dropout, residual sum and layer norm in one, against torch's own and the separate kernels."""

import pytest
import torch
from torch import nn

from tformer_cli.model.operations import Dropout


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def random_norm(width, *, bias=True):
    norm = nn.LayerNorm(width, eps=1e-5, bias=bias)
    nn.init.normal_(norm.weight, 1.0, 0.3)
    if bias:
        nn.init.normal_(norm.bias)
    return norm


def differentiate(compute, hidden, values, norm, gradients):
    """Both results, and the gradients of all that they depend on."""
    hidden, values = hidden.clone().requires_grad_(), values.clone().requires_grad_()
    norm.zero_grad()
    results = compute(hidden, values)
    total = sum((r * s).sum() for r, s in zip(results, gradients, strict=True) if s is not None)
    total.backward()
    gradients = [hidden.grad, values.grad, *(p.grad.clone() for p in norm.parameters())]
    return [*(result.detach() for result in results), *gradients]


def check(actual, expected, tolerance):
    for own, torchs in zip(actual, expected, strict=True):
        assert own.dtype == torchs.dtype
        limit = 0.01 if own.dtype == torch.bfloat16 else tolerance
        largest = torchs.float().abs().max().item()
        assert (own.float() - torchs.float()).abs().max().item() <= limit * largest + 1e-7


@pytest.mark.parametrize("shape", [(1, 1, 8), (1, 7, 50), (1, 130, 64), (3, 70, 33), (65, 256)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("used", ["norm", "both", "sum"])
def test_without_dropout_it_is_torchs_sum_and_norm(operations, shape, dtype, bias, used):
    norm = random_norm(shape[-1], bias=bias)
    hidden, values = torch.randn(shape), torch.randn(shape).to(dtype)
    gradients = [torch.randn(shape), torch.randn(shape)]
    unused = {"norm": 0, "sum": 1}.get(used)
    if unused is not None:
        gradients[unused] = torch.zeros(shape)

    def plain(hidden, values):
        summed = hidden + values
        return summed, norm(summed)

    def fuse(hidden, values):
        return operations.add_dropout_norm(hidden, values, 0.0, norm, rounds=False)

    expected = differentiate(plain, hidden, values, norm, gradients)
    if unused is not None:
        gradients[unused] = None
    check(differentiate(fuse, hidden, values, norm, gradients), expected, 1e-5)


@pytest.mark.parametrize("width", [32, 96, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_drops_what_the_separate_kernel_drops(operations, width, dtype):
    """Where rows are whole runs of random numbers, the masks are the same."""
    norm = random_norm(width)
    hidden, values = torch.randn(1, 67, width), torch.randn(1, 67, width).to(dtype)
    gradients = [torch.randn(1, 67, width), torch.randn(1, 67, width)]

    def separate(hidden, values):
        torch.manual_seed(5)
        summed = operations.add_dropout(hidden, values, 0.3)
        return summed, norm(summed)

    def fuse(hidden, values):
        torch.manual_seed(5)
        return operations.add_dropout_norm(hidden, values, 0.3, norm, rounds=False)

    check(
        differentiate(fuse, hidden, values, norm, gradients),
        differentiate(separate, hidden, values, norm, gradients),
        1e-5,
    )


@pytest.mark.parametrize("width", [50, 256])
def test_the_rate_is_met_and_what_was_dropped_gets_no_gradient(operations, width):
    norm = random_norm(width)
    hidden = torch.zeros(1, 2000, width)
    values = torch.ones(1, 2000, width, requires_grad=True)
    summed, normed = operations.add_dropout_norm(hidden, values, 0.25, norm, rounds=False)
    share = (summed == 0.0).double().mean().item()
    assert abs(share - 0.25) < 5 * (0.25 * 0.75 / values.numel()) ** 0.5
    assert summed.unique().tolist() == pytest.approx([0.0, 4 / 3])
    (normed * torch.randn(normed.shape)).sum().backward()
    assert torch.equal(values.grad == 0.0, summed == 0.0)
    columns = (summed == 0.0).double().mean(dim=(0, 1))
    assert (columns - 0.25).abs().max() < 6 * (0.25 * 0.75 / 2000) ** 0.5


@pytest.mark.parametrize("rounds", [True, False])
def test_under_autocast_it_is_rounded_where_that_is_allowed(operations, rounds):
    norm = random_norm(64)
    hidden, values = torch.randn(1, 9, 64), torch.randn(1, 9, 64)
    exact = norm(hidden + values)
    with torch.autocast("cpu", torch.bfloat16):
        summed, normed = operations.add_dropout_norm(hidden, values, 0.0, norm, rounds=rounds)
    assert summed.dtype == torch.float32
    assert normed.dtype == (torch.bfloat16 if rounds else torch.float32)
    assert torch.allclose(normed.float(), exact, rtol=0.01, atol=1e-5)
    normed.backward(torch.ones_like(normed))
    assert norm.weight.grad.dtype == torch.float32
    assert torch.allclose(norm.bias.grad, torch.full((64,), 9.0))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_it_does_not_depend_on_the_number_of_threads(operations, threads):
    norm = random_norm(40)
    hidden, values = torch.randn(1, 1000, 40), torch.randn(1, 1000, 40)
    gradients = [None, torch.randn(1, 1000, 40)]

    def fuse(hidden, values):
        torch.manual_seed(5)
        return operations.add_dropout_norm(hidden, values, 0.3, norm, rounds=False)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = differentiate(fuse, hidden, values, norm, gradients)
        torch.set_num_threads(threads)
        found = differentiate(fuse, hidden, values, norm, gradients)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(own, other) for own, other in zip(found, expected, strict=True))


def test_other_numbers_are_refused(operations):
    norm, ones = random_norm(4), torch.ones(1, 3, 4)
    add = operations.add_dropout_norm
    for hidden, values in (
        (ones.bfloat16(), ones),
        (ones, ones[:, :2]),
        (ones[..., :2], ones[..., :2]),
    ):
        with pytest.raises(TypeError, match="float32 of one shape"):
            add(hidden, values, 0.1, norm, rounds=False)
    with pytest.raises(TypeError, match="float64"):
        add(ones, ones.double(), 0.1, norm, rounds=False)


def test_it_is_for_training_alone(operations):
    dropout, norm = Dropout(0.5), random_norm(8)
    dropout.operations = operations
    hidden, values = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    dropout.eval()
    summed, normed = dropout.add_and_normalize(hidden, values, norm, rounds=True)
    assert torch.equal(summed, hidden + values)
    assert torch.equal(normed, norm(hidden + values))
