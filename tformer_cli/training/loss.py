"""The training loss: label smoothing as a Kullback-Leibler divergence."""

import math
from typing import NamedTuple

from torch import Tensor

NEVER = -1e8
"""An output bias below this, about -1e9 in imported models, keeps a token from ever being written.
Label smoothing gives it nothing, for its share of the loss would be a million nats."""


class Loss(NamedTuple):
    """Sums over the target tokens of a batch, in nats."""

    smoothed: Tensor
    """Minimized loss: Σ KL(q ‖ p), with R-Drop's term if any; its gradient flows."""
    negative_log_likelihood: Tensor
    """-Σ ln p(token), without smoothing and without gradient; perplexity is exp of its mean. Of two
    passes it is the mean."""


def smoothing_entropy(label_smoothing: float, vocab_size: int) -> float:
    """Entropy, in nats, of the smoothed target distribution q."""
    # q gives 1 - ε + ε/V to the right token and ε/V to each other one.
    if label_smoothing == 0.0:
        return 0.0
    rest = label_smoothing / vocab_size
    right = 1.0 - label_smoothing + rest
    return -(right * math.log(right) + (vocab_size - 1) * rest * math.log(rest))
