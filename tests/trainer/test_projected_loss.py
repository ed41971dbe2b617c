import pytest
import torch

from tests.oracles.plain_loss import plain_loss, plain_r_drop_loss
from tformer_cli.trainer import loss as module
from tformer_cli.trainer.loss import projected_loss


def case(n_tokens, dtype=torch.float64):
    torch.manual_seed(3)
    hidden = torch.randn(n_tokens, 6, dtype=dtype, requires_grad=True)
    matrix = torch.randn(17, 6, dtype=dtype, requires_grad=True)
    return hidden, matrix, torch.randint(0, 17, (n_tokens,))


def assert_same_loss_and_gradients(fast, plain, inputs, atol):
    assert torch.allclose(fast.smoothed, plain.smoothed.double(), rtol=1e-6)
    assert torch.allclose(
        fast.negative_log_likelihood, plain.negative_log_likelihood.double(), rtol=1e-6
    )
    got = torch.autograd.grad(fast.smoothed / 7, inputs)
    expected = torch.autograd.grad(plain.smoothed / 7, inputs)
    for one, other in zip(got, expected, strict=True):
        assert torch.allclose(one, other, atol=atol)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_equals_the_plain_formula_whatever_the_chunks(monkeypatch, rows, label_smoothing):
    monkeypatch.setitem(module._CHUNK_CELLS, "cpu", rows * 17)
    hidden, matrix, targets = case(5)
    fast = projected_loss(hidden, matrix, targets, label_smoothing)
    plain = plain_loss(hidden @ matrix.T, targets, label_smoothing)
    assert_same_loss_and_gradients(fast, plain, [hidden, matrix], atol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_gradient_equals_finite_differences(label_smoothing):
    hidden, matrix, targets = case(4)
    assert torch.autograd.gradcheck(
        lambda h, w: projected_loss(h, w, targets, label_smoothing).smoothed, (hidden, matrix)
    )


def biased_case(n_tokens):
    """The same with a bias, which keeps two tokens from ever coming."""
    hidden, matrix, targets = case(n_tokens)
    bias = torch.randn(17, dtype=torch.float64)
    bias[:2] = -1e9
    return hidden, matrix, bias.requires_grad_(), targets.clamp(min=2)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_a_bias_is_added_and_smoothing_spares_tokens_that_never_come(
    monkeypatch, label_smoothing, r_drop
):
    monkeypatch.setitem(module._CHUNK_CELLS, "cpu", 4 * 17)
    hidden, matrix, bias, targets = biased_case(10 if r_drop else 5)
    some = targets[:5]
    fast = projected_loss(hidden, matrix, some, label_smoothing, r_drop, bias=bias)
    logits = (hidden @ matrix.T + bias)[:, 2:]
    plain = (
        plain_loss(logits, some - 2, label_smoothing)
        if not r_drop
        else (plain_r_drop_loss(logits[0::2], logits[1::2], some - 2, label_smoothing, r_drop))
    )
    assert_same_loss_and_gradients(fast, plain, [hidden, matrix, bias], atol=1e-5)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_gradient_of_the_bias_equals_finite_differences(label_smoothing):
    hidden, matrix, targets = case(4)
    bias = torch.randn(17, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda h, w, b: projected_loss(h, w, targets, label_smoothing, bias=b).smoothed,
        (hidden, matrix, bias),
    )


def test_autocast_computes_in_bfloat16_and_hands_on_float32():
    hidden, matrix, targets = case(64, torch.float32)
    exact = torch.autograd.grad(projected_loss(hidden, matrix, targets, 0.1).smoothed, matrix)[0]
    with torch.autocast("cpu", torch.bfloat16):
        loss = projected_loss(hidden, matrix, targets, 0.1).smoothed
    rounded = torch.autograd.grad(loss, matrix)[0]
    assert rounded.dtype == torch.float32
    difference = ((rounded - exact).norm() / exact.norm()).item()
    assert 0.0 < difference < 0.02


def test_without_gradients_only_the_loss_is_computed():
    hidden, matrix, targets = case(9)
    with torch.inference_mode():
        alone = projected_loss(hidden, matrix, targets, 0.1)
    assert torch.equal(alone.smoothed, projected_loss(hidden, matrix, targets, 0.1).smoothed)


def two_passes(n_tokens, dtype=torch.float64):
    hidden, matrix, targets = case(2 * n_tokens, dtype)
    return hidden, matrix, targets[:n_tokens]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 3, 4, 100])
def test_r_drop_equals_the_plain_formula_whatever_the_chunks(monkeypatch, rows, label_smoothing):
    monkeypatch.setitem(module._CHUNK_CELLS, "cpu", rows * 17)
    hidden, matrix, targets = two_passes(5)
    fast = projected_loss(hidden, matrix, targets, label_smoothing, r_drop=3.0)
    logits = hidden @ matrix.T
    plain = plain_r_drop_loss(logits[0::2], logits[1::2], targets, label_smoothing, 3.0)
    assert_same_loss_and_gradients(fast, plain, [hidden, matrix], atol=1e-5)


def test_r_drop_equals_the_papers_equation_written_out():
    first, second = torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([[0.6, 0.3, 0.1]])
    kl = (first * (first / second).log()).sum() + (second * (second / first).log()).sum()
    paper = -first[0, 1].log() - second[0, 1].log() + 5.0 / 2.0 * kl
    found = plain_r_drop_loss(first.log(), second.log() + 2.0, torch.tensor([1]), 0.0, 5.0)
    assert torch.allclose(found.smoothed, paper / 2.0)
    assert torch.allclose(found.negative_log_likelihood, -(0.5 * 0.3 * torch.ones(())).log() / 2)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_r_drops_gradient_equals_finite_differences(label_smoothing):
    hidden, matrix, targets = two_passes(4)
    assert torch.autograd.gradcheck(
        lambda h, w: 2.0 * projected_loss(h, w, targets, label_smoothing, 5.0).smoothed,
        (hidden, matrix),
    )


def test_two_passes_that_agree_have_the_ordinary_loss():
    hidden, matrix, targets = case(5)
    doubled = hidden.repeat_interleave(2, dim=0)
    twice, once = (
        projected_loss(doubled, matrix, targets, 0.1, 5.0),
        projected_loss(hidden, matrix, targets, 0.1),
    )
    assert torch.allclose(twice.smoothed, once.smoothed, rtol=1e-12)
    got = torch.autograd.grad(twice.smoothed, [hidden, matrix])
    expected = torch.autograd.grad(once.smoothed, [hidden, matrix])
    for one, other in zip(got, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_r_drop_under_autocast_is_near_float32():
    hidden, matrix, targets = two_passes(64, torch.float32)
    exact = torch.autograd.grad(projected_loss(hidden, matrix, targets, 0.1, 5.0).smoothed, matrix)
    with torch.autocast("cpu", torch.bfloat16):
        loss = projected_loss(hidden, matrix, targets, 0.1, 5.0).smoothed
    rounded = torch.autograd.grad(loss, matrix)[0]
    assert rounded.dtype == torch.float32
    assert 0.0 < (rounded - exact[0]).norm() / exact[0].norm() < 0.03
