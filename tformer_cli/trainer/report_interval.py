"""Sums between two reports, and the losses that show a divergence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from torch import Tensor

from tformer_cli.text.batching import AnyBatch, Batch
from tformer_cli.trainer.loss import Loss, smoothing_entropy

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
    """Mean losses of a run, to distinguish divergence from noise; all of it JSON.

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
        """Adds the sums since the last call."""
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


@dataclass
class ReportInterval:
    """Sums since the last report; tensors stay on their device, so that nothing waits for it."""

    start: float
    """Seconds of the run at the last report, moved on by pauses such as validations."""
    loss: Tensor | float = 0.0
    likelihood: Tensor | float = 0.0
    norms: Tensor | float = 0.0
    """Norms of gradients, to see at once whether all were finite."""
    last_norm: Tensor | float = 0.0
    n_target_tokens: int = 0
    n_tokens: int = 0
    """Tokens of both sides, without padding."""
    n_cells: int = 0
    """Positions of both sides, with padding."""
    n_pairs: int = 0

    def add_batch(self, batch: Batch, loss: Loss) -> None:
        self.loss = self.loss + loss.smoothed.detach()
        self.likelihood = self.likelihood + loss.negative_log_likelihood
        self._count(batch)

    def add_step(
        self, batches: Sequence[AnyBatch], loss: Tensor | float, likelihood: Tensor | float
    ) -> None:
        self.loss = self.loss + loss
        self.likelihood = self.likelihood + likelihood
        for batch in batches:
            self._count(batch)

    def add_norm(self, norm: Tensor) -> None:
        self.last_norm = norm
        self.norms = self.norms + norm

    def check_finite(self, step: int) -> None:
        """Refuses losses and gradients that are NaN or infinity. Waits for the device."""
        if not math.isfinite(float(self.loss + self.norms)):
            raise Diverged("the loss or its gradient is NaN or infinity", step)

    def to_json(self) -> dict[str, float]:
        """Returns the sums as numbers. Waits for the device."""
        return {item.name: float(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, float]) -> "ReportInterval":
        window = cls(values["start"])
        for name, number in values.items():
            setattr(window, name, int(number) if name.startswith("n_") else number)
        return window

    @property
    def mean_loss(self) -> float:
        return float(self.loss) / max(1, self.n_target_tokens)

    @property
    def perplexity(self) -> float:
        return math.exp(min(float(self.likelihood) / max(1, self.n_target_tokens), 700.0))

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Tokens of a source and of a target sentence on average, specials included."""
        n_pairs = max(1, self.n_pairs)
        n_source_tokens = self.n_tokens - self.n_target_tokens
        return n_source_tokens / n_pairs, self.n_target_tokens / n_pairs

    @property
    def padding(self) -> float:
        return 1.0 - self.n_tokens / max(1, self.n_cells)

    def _count(self, batch: AnyBatch) -> None:
        self.n_target_tokens += batch.n_target_tokens
        self.n_tokens += batch.n_target_tokens + batch.n_source_tokens
        self.n_cells += batch.n_cells
        self.n_pairs += batch.n_sentences
