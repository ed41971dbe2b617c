"""The training loss: label smoothing as a Kullback-Leibler divergence."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Loss(NamedTuple):
    """Sums over the target tokens of a batch, in nats."""

    smoothed: Tensor
    """Minimized loss: Σ KL(q ‖ p), with R-Drop's term if any; its gradient flows."""
    negative_log_likelihood: Tensor
    """-Σ ln p(token), without smoothing and without gradient; perplexity is exp of its mean. Of two
    passes it is the mean."""


def smoothing_entropy(label_smoothing: float, vocab_size: int) -> float:
    """Entropy, in nats, of the smoothed target distribution q.

    q gives 1 - ε + ε/V to the right token and ε/V to each other one.
    """
    if label_smoothing == 0.0:
        return 0.0
    rest = label_smoothing / vocab_size
    right = 1.0 - label_smoothing + rest
    return -(right * math.log(right) + (vocab_size - 1) * rest * math.log(rest))


def label_smoothed_loss(logits: Tensor, targets: Tensor, label_smoothing: float) -> Loss:
    """Compares logits with smoothed targets: KL(q ‖ p) = H(q, p) - H(q).

    The constant H(q) changes no gradient, but makes 0 the best possible value. Source: Szegedy et
    al. 2016, section 7; Vaswani et al. 2017, section 5.4.

    Args:
        logits: (N, V) for N target tokens, padding excluded.
        targets: (N) token ids.
        label_smoothing: ε.
    """
    log_probabilities = torch.log_softmax(logits.float(), dim=-1)
    likelihood = functional.nll_loss(log_probabilities, targets, reduction="sum")
    smoothed = likelihood
    if label_smoothing:
        # H(q, p) = (1 - ε)·(-ln p_right) + ε·mean over the vocabulary of -ln p
        uniform = -log_probabilities.sum() / logits.shape[-1]
        constant = smoothing_entropy(label_smoothing, logits.shape[-1]) * len(targets)
        smoothed = (1.0 - label_smoothing) * likelihood + label_smoothing * uniform - constant
    return Loss(smoothed, likelihood.detach())


def r_drop_loss(
    first: Tensor, second: Tensor, targets: Tensor, label_smoothing: float, r_drop: float
) -> Loss:
    """Computes half of R-Drop's loss of two passes, see `r_drop` (Liang et al. 2021, equation 4).

    Args:
        first: (N, V) logits of N target tokens.
        second: (N, V) logits of another pass.
        targets: (N) token ids.
        label_smoothing: ε.
        r_drop: α.
    """
    losses = [label_smoothed_loss(logits, targets, label_smoothing) for logits in (first, second)]
    one, other = (torch.log_softmax(logits.float(), dim=-1) for logits in (first, second))
    # torch's kl_div(a, b) is KL(b ‖ a)
    disagreement = sum(
        functional.kl_div(a, b, reduction="sum", log_target=True)
        for a, b in ((one, other), (other, one))
    )
    return Loss(
        (losses[0].smoothed + losses[1].smoothed + r_drop / 2.0 * disagreement) / 2.0,
        (losses[0].negative_log_likelihood + losses[1].negative_log_likelihood) / 2.0,
    )
