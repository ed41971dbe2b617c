import math

import torch
from torch.nn import functional

from tests.oracles.plain_loss import plain_loss
from tformer_cli.trainer.loss import smoothing_entropy


def smoothed_targets(targets, n_classes, smoothing):
    q = torch.full((len(targets), n_classes), smoothing / n_classes)
    q[torch.arange(len(targets)), targets] += 1.0 - smoothing
    return q


def test_equals_torchs_kl_divergence_from_the_smoothed_distribution():
    torch.manual_seed(0)
    logits, targets = torch.randn(9, 13), torch.randint(0, 13, (9,))
    loss = plain_loss(logits, targets, 0.1)
    expected = functional.kl_div(
        logits.log_softmax(-1), smoothed_targets(targets, 13, 0.1), reduction="sum"
    )
    assert torch.allclose(loss.smoothed, expected, atol=1e-5)


def test_differs_from_torchs_smoothed_cross_entropy_by_the_entropy_and_not_in_the_gradient():
    torch.manual_seed(0)
    targets = torch.randint(0, 13, (9,))
    ours = torch.randn(9, 13, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    loss = plain_loss(ours, targets, 0.2).smoothed
    entropy = functional.cross_entropy(theirs, targets, label_smoothing=0.2, reduction="sum")
    assert math.isclose(entropy.item() - loss.item(), 9 * smoothing_entropy(0.2, 13), rel_tol=1e-5)
    loss.backward()
    entropy.backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)


def test_is_zero_for_a_perfect_prediction_and_never_below():
    targets = torch.tensor([2, 0])
    perfect = smoothed_targets(targets, 7, 0.1).log()
    assert abs(plain_loss(perfect, targets, 0.1).smoothed.item()) < 1e-5
    assert plain_loss(perfect + torch.randn(2, 7), targets, 0.1).smoothed.item() > 0


def test_likelihood_is_without_smoothing():
    logits, targets = torch.randn(5, 11), torch.randint(0, 11, (5,))
    expected = functional.cross_entropy(logits, targets, reduction="sum")
    assert torch.allclose(plain_loss(logits, targets, 0.3).negative_log_likelihood, expected)
    plain = plain_loss(logits, targets, 0.0)
    assert torch.equal(plain.smoothed, plain.negative_log_likelihood)
