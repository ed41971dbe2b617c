"""Validation in the course of a run: when it counts as best; the final, averaged model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.errors import ArtifactError
from tformer_cli.model.base import Model
from tformer_cli.trainer.adapters import MergedAdapters
from tformer_cli.trainer.config import ValidationConfig
from tformer_cli.trainer.events import ValidationReport
from tformer_cli.trainer.processes.group import Processes
from tformer_cli.trainer.processes.signals import StopRequest, StopRequested
from tformer_cli.trainer.resuming.checkpoints import MODEL
from tformer_cli.trainer.resuming.saving import RunSaver
from tformer_cli.trainer.resuming.state import TrainingState
from tformer_cli.trainer.validation import Validation, Validator

PublishWeights = Callable[[Mapping[str, Tensor], int, Mapping[str, float]], None]
"""Writes weights, their step and their scores as the run's model directory."""


@dataclass(frozen=True)
class PublishedAverage:
    """Average at the end of a run; without steps there is none."""

    steps: list[int] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    report: ValidationReport | None = None
    """Its scores, where the run has a validation corpus."""
    better_step: int = 0
    """The checkpoint that scores better than the average and is the final model in its place; 0:
    none does."""


class BestModelPublisher:
    """Validates a run's model and publishes the best and the final one.

    Several processes share a validation; the first one averages and publishes.
    """

    def __init__(
        self,
        model: Model,
        validator: Validator | None,
        config: ValidationConfig,
        publish: PublishWeights,
        processes: Processes,
    ) -> None:
        self._model = model
        self._validator = validator
        self._config = config
        self._publish = publish
        self._processes = processes
        self._adapters = MergedAdapters(model)

    @property
    def validates(self) -> bool:
        return self._validator is not None

    def validate(self, state: TrainingState, stop: StopRequest) -> ValidationReport | None:
        """Scores the present weights; the best so far are published with their checkpoint."""
        values = self._scores(state, stop)
        if values is None:
            return None
        result = Validation(**values)
        is_best = state.add_validation(result.scores, self._config)
        return result.report(state.step, is_best=is_best)

    def publish_average(
        self, saver: RunSaver, state: TrainingState, stop: StopRequest
    ) -> PublishedAverage | None:
        """Writes the final model where it is an average; safe to repeat."""
        # Late in a run the weights of neighboring checkpoints differ by noise, and their mean is
        # better than any of them. In a short run whose learning rate has fallen to 0, they differ
        # by what the model learned in between, and the last may be the best: so the average
        # replaces the best checkpoint only if it scores as well. Returns the averaged steps; None
        # if a stop was requested meanwhile.
        weights: dict[str, Tensor] = {}  # only in the first process
        steps, damaged = self._processes.first(partial(self._average, saver, state, weights))
        if not steps:
            return PublishedAverage(damaged=damaged)
        # One checkpoint is its own average: what its validation found is known
        scores = _known_scores(state, steps[0]) if len(steps) == 1 else {}
        report = None
        if self.validates and not scores:
            if weights:
                self._processes.load_weights(self._model, weights)
            self._processes.broadcast_weights(self._model)
            values = self._scores(state, stop)
            if values is None:
                return None
            scores = values["scores"]
            report = Validation(**values).report(state.step, weights="average")
        better_step = self._processes.first(
            partial(self._publish_better, saver, state, weights, steps, scores)
        )
        averaged = [] if better_step else steps
        return PublishedAverage(averaged, damaged, report, better_step=better_step)

    def _average(
        self, saver: RunSaver, state: TrainingState, weights: dict[str, Tensor]
    ) -> tuple[list[int], list[str]]:
        """Averages checkpoints; returns their steps, and what damage others have."""
        steps, damaged = saver.sound_averaged_steps(state)
        if steps:
            weights |= average_weights([saver.checkpoints.path(step) / MODEL for step in steps])
        return steps, damaged

    def _publish_better(
        self,
        saver: RunSaver,
        state: TrainingState,
        weights: Mapping[str, Tensor],
        steps: Sequence[int],
        scores: Mapping[str, float],
    ) -> int:
        """Publishes the average or the best checkpoint; returns the latter's step, or 0."""
        best = self._best_checkpoint(saver, state)
        if best and scores and _beats(_known_scores(state, best), scores, self._config):
            best_weights = load_tensors(saver.checkpoints.path(best) / MODEL)
            self._publish(best_weights, best, _known_scores(state, best))
            return best
        self._publish(weights, steps[0] if len(steps) == 1 else state.step, scores)
        return 0

    def _best_checkpoint(self, saver: RunSaver, state: TrainingState) -> int:
        """Finds the step of the best validation, if its checkpoint is kept and sound; else 0."""
        for step in state.best_steps(self._config)[:1]:
            try:
                saver.checkpoints.check(step)
            except ArtifactError:
                return 0
            return step
        return 0

    def _scores(self, state: TrainingState, stop: StopRequest) -> dict[str, Any] | None:
        """Validates with all processes; None, in all of them, if one was asked to stop."""
        if self._validator is None:
            return None
        try:
            with self._adapters.merge_adapters(), self._processes.whole(self._model) as model:
                record = self._validator.validate(
                    model, sample=len(state.validations), before_batch=stop.check
                )
        except StopRequested:
            return None
        # As in the first process: times differ
        values: dict[str, Any] = self._processes.first(lambda: asdict(record))
        return values


def _known_scores(state: TrainingState, step: int) -> dict[str, float]:
    """Returns the scores that the validation of a step found; empty without one."""
    for scores in reversed(state.validations):
        if scores["step"] == step:
            return {name: value for name, value in scores.items() if name != "step"}
    return {}


def _beats(
    scores: Mapping[str, float], best: Mapping[str, float], config: ValidationConfig
) -> bool:
    """Returns whether scores are truly better than others by the metric that counts."""
    difference = scores[config.metric] - best[config.metric]
    return difference > 0.0 if config.higher_is_better else difference < 0.0


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Averages the weights of several safetensors files (Vaswani et al. 2017, section 6.1)."""
    # Sums run in float64, so that the order of the files leaves no trace.
    if not files:
        raise ValueError("there is no checkpoint to average")
    sums: dict[str, Tensor] = {}
    for file in files:
        tensors = load_tensors(file)
        if sums and tensors.keys() != sums.keys():
            raise ValueError(f"{file} and {files[0]} hold different tensors")
        for name, tensor in tensors.items():
            sums[name] = sums[name].add_(tensor) if name in sums else tensor.double()
    # One after the other, so that memory never holds sums and means of all
    return {name: (sums.pop(name) / len(files)).to(tensors[name].dtype) for name in list(sums)}
