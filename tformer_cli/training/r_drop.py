"""R-Drop: two passes through dropout shall agree (Liang et al. 2021, section 2.2).

A batch goes through the model twice, each time with other dropout, which gives every token two
distributions p₁ and p₂. With C the cross-entropy, here with smoothed labels as in the authors' own
translation experiments, equation 4 is

    C₁ + C₂ + α/2·[KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)]

a token. Half of it is minimized here: without dropout both passes are one, and what is left is the
ordinary loss. α keeps the paper's meaning (5 for translation), and so do the learning rate and the
norm that gradients are clipped to.

With r = ln p₁ - ln p₂ the gradients of J = KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁) by the logits are

    ∂J/∂z₁ = p₁·(r - KL(p₁ ‖ p₂)) + p₁ - p₂
    ∂J/∂z₂ = -p₂·(r + KL(p₂ ‖ p₁)) + p₂ - p₁
"""

from torch import Tensor


def add_disagreement(slope: Tensor, logits: Tensor, normalizer: Tensor, r_drop: float) -> Tensor:
    """Computes α/2·ΣJ, and adds its gradient by the logits.

    Args:
        slope: (2n, V) the probabilities of n tokens, the two passes of each one after the other;
            the gradient is added to them in place.
        logits: (2n, V) in any precision.
        normalizer: (2n) ln Σ exp of each row of logits.
        r_drop: α.
    """
    weight = r_drop / 2.0
    # (2n, V) -> two views (n, V) of the same memory
    first, second = slope[0::2], slope[1::2]
    ratio = logits[0::2].to(slope.dtype) - logits[1::2].to(slope.dtype)
    ratio -= (normalizer[0::2] - normalizer[1::2]).unsqueeze(1)
    difference = first - second
    forward = (first * ratio).sum(1, keepdim=True)  # KL(p₁ ‖ p₂)
    backward = -(second * ratio).sum(1, keepdim=True)  # KL(p₂ ‖ p₁)
    first.addcmul_(first, ratio - forward, value=weight).add_(difference, alpha=weight)
    second.addcmul_(second, ratio + backward, value=-weight).sub_(difference, alpha=weight)
    return weight * (forward + backward).sum()
