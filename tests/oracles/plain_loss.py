"""Losses of a step by their definitions, of all logits at once: the oracle of the fast path.

`training.projected_loss` computes the same without keeping all logits.
"""

import torch

from tformer_cli.trainer.loss import Loss


def plain_loss(logits, targets, label_smoothing):
    """Computes Σ KL(q ‖ p) over tokens (Szegedy et al. 2016, section 7).

    q gives 1 - ε + ε/V to the right token and ε/V to each other one, p is the softmax.
    """
    log_p = torch.log_softmax(logits.float(), dim=-1)
    q = torch.full_like(log_p, label_smoothing / logits.shape[-1])
    q[torch.arange(len(targets)), targets] += 1.0 - label_smoothing
    likelihood = -log_p[torch.arange(len(targets)), targets].sum()
    # q·ln q is 0 where q is 0
    return Loss((torch.xlogy(q, q) - q * log_p).sum(dim=-1).sum(), likelihood.detach())


def plain_r_drop_loss(first, second, targets, label_smoothing, r_drop):
    """Computes half of R-Drop's loss of two passes (Liang et al. 2021, equation 4).

    Half of: both losses, and α/2 times KL of each pass from the other, summed over tokens.
    """
    losses = [plain_loss(logits, targets, label_smoothing) for logits in (first, second)]
    log_p, log_q = (torch.log_softmax(logits.float(), dim=-1) for logits in (first, second))
    # KL(p ‖ q) + KL(q ‖ p)
    disagreement = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum()
    return Loss(
        (losses[0].smoothed + losses[1].smoothed + r_drop / 2.0 * disagreement) / 2.0,
        (losses[0].negative_log_likelihood + losses[1].negative_log_likelihood) / 2.0,
    )
