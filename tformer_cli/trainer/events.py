"""Events of a run for its observers: the dashboard, `metrics.jsonl`, a test's list."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    """The run is about to make its first step, or its first step after a resumption."""

    step: int
    """Steps made before."""
    n_parameters: int
    """Trainable parameters."""
    device: str
    """Device of the model."""
    precision: str
    """Precision of the products."""
    n_pairs: int
    """Sentence pairs, or other examples, that training uses."""
    vocab_size: int
    """Entries of the vocabulary."""
    batches_per_epoch: int
    """Batches of the present epoch."""
    unit: str = "pair"
    """Name of an example."""
    notes: tuple[str, ...] = ()
    """Notes on what `auto` chose and on skipped data, a sentence each."""
    doubts: tuple[str, ...] = ()
    """Doubts about the data of a new run, a sentence each."""


@dataclass(frozen=True, kw_only=True)
class PaceMeasured:
    """The first steps have shown how long the run will take here, validations aside."""

    step: int
    """Steps made before the run was begun or resumed."""
    n_steps: int
    """Steps from there to the end, about."""
    seconds: float
    """Seconds that they take, about."""


@dataclass(frozen=True, kw_only=True)
class StepDone:
    """A step is made; on a GPU, it is at least queued."""

    share_done: float
    """Share of the run that is done, by the nearest of its limits; 0 where there is none."""
    seconds: float
    """Seconds since the start of the run, interruptions excluded."""


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """Report of the steps since the last one."""

    step: int
    """Steps made."""
    epoch: float
    """Passes over the corpora, with the fraction of the present one."""
    loss: float
    """Cross-entropy with label smoothing per target token, nats; with R-Drop's term, where that is
    used."""
    perplexity: float
    """exp of the negative log-likelihood per target token, without smoothing."""
    learning_rate: float
    """Learning rate of the last step."""
    gradient_norm: float
    """Norm of the last step's gradient before clipping."""
    tokens_per_second: float
    """Target tokens a second, padding excluded."""
    padding: float
    """Share of padding among all positions of the batches, 0 to 1."""
    tokens: int
    """Target tokens since the start of the run."""
    seconds: float
    """Seconds since the start of the run, interruptions excluded."""
    share_done: float
    """Share of the run that is done, by the nearest of its limits; 0 where there is none."""
    hardware_share: float = 0.0
    """The model's operations a second as a share of the most that the hardware was seen to reach
    in its matrix products, 0 to 1; 0: not measured."""


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """Scores of the model on the validation corpora."""

    step: int
    """Steps made."""
    scores: Mapping[str, float]
    """loss and perplexity per token without smoothing, bleu, chrf."""
    signatures: Mapping[str, str]
    """sacrebleu's signatures of the scores that have one."""
    is_best: bool
    """True if the metric of the recipe is better than ever before."""
    seconds: float
    """Time that the validation took."""
    sample_source: str
    """A sentence of the validation corpora …"""
    sample_translation: str
    """… its translation by the model …"""
    sample_reference: str
    """… and its reference."""
    weights: str = "current"
    """"current" (the step's, or their moving average) or "average" (of checkpoints, at the end)."""


@dataclass(frozen=True, kw_only=True)
class CheckpointWritten:
    """A checkpoint is on the disk."""

    step: int
    """Steps made."""


@dataclass(frozen=True, kw_only=True)
class RunEnded:
    """The run has reached a limit or lost its patience; its model is written."""

    step: int
    """Steps made."""
    reason: str
    """Reason why it ended."""
    seconds: float
    """Seconds since the start of the run, interruptions excluded."""
    averaged_steps: tuple[int, ...]
    """Steps of the averaged checkpoints; empty if none were averaged."""
    better_step: int = 0
    """The checkpoint that is the final model because it scores better than the average; 0: none."""
    damaged: tuple[str, ...] = ()
    """Problems of checkpoints that could not be read for the average."""


@dataclass(frozen=True, kw_only=True)
class RolledBack:
    """The run went wrong and went back to a checkpoint; it skips the batches in between."""

    step: int
    """Steps made at the checkpoint; 0: the initial weights."""
    failed_step: int
    """Step at which it was noticed."""
    problem: str
    """Problem that was noticed."""
    learning_rate_factor: float
    """Factor of every learning rate from now on."""


@dataclass(frozen=True, kw_only=True)
class BatchSplit:
    """A batch did not fit in memory and is computed in parts, with the same gradient."""

    step: int
    """The step it belongs to."""
    n_parts: int
    """Parts that the step's batches are computed in."""


TrainingEvent = (
    RunStarted
    | PaceMeasured
    | StepDone
    | StepReport
    | ValidationReport
    | CheckpointWritten
    | RolledBack
    | BatchSplit
    | RunEnded
)


class TrainingObserver(Protocol):
    """Whoever follows a run."""

    def notify(self, event: TrainingEvent) -> None:
        """Receives an event; a slow observer slows the run."""
