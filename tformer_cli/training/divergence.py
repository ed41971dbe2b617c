"""Detection of divergence: a loss that is NaN or infinity, or far above its best."""

import math
from dataclasses import dataclass, field

from tformer_cli.training.loss import smoothing_entropy

JUDGED_STEPS = 20
"""A mean over fewer steps is too noisy to be judged."""
REMEMBERED = 20
"""Means that a new one is compared with."""
SMALLEST_RISE = 1.0
"""Nats above the best mean that are never called a divergence."""
LEARNED = 0.9
"""Share of the uniform loss that a run has to come below before it is judged."""


class Diverged(Exception):  # noqa: N818 - it sends a run back, and is an error only after that
    """The loss or its gradient shows that the weights are ruined."""

    def __init__(self, problem: str, last_good_step: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.last_good_step = last_good_step


@dataclass(kw_only=True)
class LossHistory:
    """Mean losses of a run, by which a divergence is told from noise; all of it JSON.

    Means over at least `JUDGED_STEPS` steps are compared with the best of the last `REMEMBERED`.
    With b the best and u the loss of a model that gives every token the same chance, a mean above
    b + max(1, (u - b) / 2) is a divergence: half of all that was learned is lost. Noise of a mean
    over this many steps is some hundredths of a nat, and a run that has hardly come below u, as at
    its start, is not judged at all.
    """

    means: list[float] = field(default_factory=list)
    """The last judged means, oldest first."""
    loss: float = 0.0
    """Sum since the last judged mean."""
    n_target_tokens: int = 0
    """Target tokens since then."""
    since: int = 0
    """Step of the last judged mean."""

    def add(self, step: int, loss: float, n_target_tokens: int, uniform_loss: float) -> None:
        """Takes in the sums since the last call."""
        self.loss += loss
        self.n_target_tokens += n_target_tokens
        if step - self.since < JUDGED_STEPS:
            return
        mean, best = self.loss / max(1, self.n_target_tokens), min(self.means, default=math.inf)
        if best < LEARNED * uniform_loss and mean > highest_mean(best, uniform_loss):
            raise Diverged(f"the loss rose from {best:.2f} to {mean:.2f}", self.since)
        self.means = [*self.means, mean][-REMEMBERED:]
        self.loss, self.n_target_tokens, self.since = 0.0, 0, step


def highest_mean(best: float, uniform_loss: float) -> float:
    """The largest mean that is not a divergence after a best one."""
    return best + max(SMALLEST_RISE, (uniform_loss - best) / 2)


def uniform_loss(label_smoothing: float, vocab_size: int) -> float:
    """Label-smoothed loss per token, nats, of a model that gives each token the same chance."""
    return math.log(vocab_size) - smoothing_entropy(label_smoothing, vocab_size)
