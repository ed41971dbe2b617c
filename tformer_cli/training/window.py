"""Sums between two reports, and the report that they become."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from torch import Tensor

from tformer_cli.data.batching import Batch
from tformer_cli.model.base import Model
from tformer_cli.training.divergence import Diverged
from tformer_cli.training.events import StepReport
from tformer_cli.training.loss import Loss
from tformer_cli.training.resuming.state import TrainingState
from tformer_cli.training.speed import HardwareLimit, training_flops_per_token


@dataclass
class Window:
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
        self, batches: Sequence[Batch], loss: Tensor | float, likelihood: Tensor | float
    ) -> None:
        """Adds the batches of a step and the sums of their losses."""
        self.loss = self.loss + loss
        self.likelihood = self.likelihood + likelihood
        for batch in batches:
            self._count(batch)

    def add_norm(self, norm: Tensor) -> None:
        """Adds the norm of a gradient."""
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
    def from_json(cls, values: Mapping[str, float]) -> "Window":
        """Reads what `to_json` wrote."""
        window = cls(values["start"])
        for name, number in values.items():
            setattr(window, name, int(number) if name.startswith("n_") else number)
        return window

    @property
    def mean_loss(self) -> float:
        """Label-smoothed loss per target token."""
        return float(self.loss) / max(1, self.n_target_tokens)

    @property
    def perplexity(self) -> float:
        """The exponential of the negative log-likelihood per target token."""
        return math.exp(min(float(self.likelihood) / max(1, self.n_target_tokens), 700.0))

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Tokens of a source and of a target sentence on average, specials included."""
        n_pairs = max(1, self.n_pairs)
        n_source_tokens = self.n_tokens - self.n_target_tokens
        return n_source_tokens / n_pairs, self.n_target_tokens / n_pairs

    @property
    def padding(self) -> float:
        """Share of padding, 0 to 1."""
        return 1.0 - self.n_tokens / max(1, self.n_cells)

    def _count(self, batch: Batch) -> None:
        self.n_target_tokens += batch.n_target_tokens
        self.n_tokens += batch.n_target_tokens + batch.n_source_tokens
        self.n_cells += batch.n_cells
        self.n_pairs += len(batch.source)


def step_report(
    window: Window,
    state: TrainingState,
    *,
    epoch: float,
    share_done: float,
    learning_rate: float,
    limit: HardwareLimit,
    model: Model,
    n_passes: int = 1,
) -> StepReport:
    """Sums up the steps since the last report."""
    tokens_per_second = window.n_target_tokens / max(1e-9, state.seconds - window.start)
    flops = training_flops_per_token(model.config, model.vocab_size, *window.mean_lengths)
    return StepReport(
        step=state.step,
        epoch=epoch,
        loss=window.mean_loss,
        perplexity=window.perplexity,
        learning_rate=learning_rate,
        gradient_norm=float(window.last_norm),
        tokens_per_second=tokens_per_second,
        padding=window.padding,
        tokens=state.tokens,
        seconds=state.seconds,
        share_done=share_done,
        hardware_share=limit.share_of(n_passes * tokens_per_second * flops),
    )
