import pytest
import torch

from tformer_cli.training import projected_loss as module
from tformer_cli.training.loss import label_smoothed_loss
from tformer_cli.training.projected_loss import projected_loss


def case(n_tokens, dtype=torch.float64):
    torch.manual_seed(3)
    hidden = torch.randn(n_tokens, 6, dtype=dtype, requires_grad=True)
    matrix = torch.randn(17, 6, dtype=dtype, requires_grad=True)
    return hidden, matrix, torch.randint(0, 17, (n_tokens,))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_equals_the_plain_formula_whatever_the_chunks(monkeypatch, rows, label_smoothing):
    monkeypatch.setitem(module._CHUNK_CELLS, "cpu", rows * 17)
    hidden, matrix, targets = case(5)
    fast = projected_loss(hidden, matrix, targets, label_smoothing)
    plain = label_smoothed_loss(hidden @ matrix.T, targets, label_smoothing)
    assert torch.allclose(fast.smoothed, plain.smoothed.double(), rtol=1e-6)
    assert torch.allclose(
        fast.negative_log_likelihood, plain.negative_log_likelihood.double(), rtol=1e-6
    )
    got = torch.autograd.grad(fast.smoothed / 7, [hidden, matrix])
    expected = torch.autograd.grad(plain.smoothed / 7, [hidden, matrix])
    for one, other in zip(got, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_gradient_equals_finite_differences(label_smoothing):
    hidden, matrix, targets = case(4)
    assert torch.autograd.gradcheck(
        lambda h, w: projected_loss(h, w, targets, label_smoothing).smoothed, (hidden, matrix)
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
