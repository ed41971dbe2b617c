"""The training loop, and what happens around it: reports, validation, checkpoints, the end."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tformer_cli.data.batching import Batch
from tformer_cli.data.loader import LoaderPosition, TrainingLoader
from tformer_cli.data.tokenizer import PAD_ID
from tformer_cli.errors import ArtifactError, DataError, Interrupted, TformerError
from tformer_cli.model.runtime import Precision, autocast
from tformer_cli.model.transformer import Transformer
from tformer_cli.training.averaging import average_weights
from tformer_cli.training.checkpoints import MODEL, Checkpoints, best_steps
from tformer_cli.training.config import TrainingConfig, ValidationConfig
from tformer_cli.training.events import (
    CheckpointWritten,
    RunEnded,
    RunStarted,
    StepReport,
    TrainingEvent,
    TrainingObserver,
    ValidationReport,
)
from tformer_cli.training.loss import label_smoothed_loss
from tformer_cli.training.optimizer import (
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    set_learning_rate,
)
from tformer_cli.training.schedule import learning_rate
from tformer_cli.training.signals import StopRequest
from tformer_cli.training.state import TrainingState, generator_tensors, restore_generators
from tformer_cli.training.validation import Validation, Validator

PublishWeights = Callable[[dict[str, Tensor], int, dict[str, float]], None]
"""Writes weights, their step and their scores as the run's model directory."""


@dataclass
class _Window:
    """Sums since the last report."""

    start: float
    loss: Tensor | float = 0.0
    likelihood: Tensor | float = 0.0
    n_target_tokens: int = 0
    n_tokens: int = 0
    n_cells: int = 0


class Trainer:
    """Trains one model. Make it, `resume` if there is something to resume, then `run`."""

    def __init__(
        self,
        *,
        model: Transformer,
        config: TrainingConfig,
        validation: ValidationConfig,
        loader: Callable[[LoaderPosition], TrainingLoader],
        validator: Validator | None,
        checkpoints: Checkpoints,
        publish: PublishWeights,
        observers: Sequence[TrainingObserver],
        device: torch.device,
        precision: Precision,
        fingerprints: list[str],
    ) -> None:
        """Brings together what a run needs.

        Args:
            model: the model, on its device.
            config: settings of training.
            validation: settings of validation.
            loader: opens the training data at a position.
            validator: scores the model; None where there are no validation corpora.
            checkpoints: where the run's state is kept.
            publish: writes the run's model directory.
            observers: who is told of events.
            device: where the model computes.
            precision: of its products.
            fingerprints: content of the training corpora.
        """
        self.model = model
        self.config = config
        self.validation = validation
        self.validator = validator
        self.checkpoints = checkpoints
        self.publish = publish
        self.observers = observers
        self.device = device
        self.precision = precision
        self.optimizer = make_optimizer(model, config)
        self.state = TrainingState(fingerprints=fingerprints)
        self._open_loader = loader
        self._clock = time.monotonic()

    def resume(self) -> bool:
        """Goes back to the newest sound checkpoint.

        Returns:
            Whether there was one.

        Raises:
            ArtifactError: if all checkpoints are damaged.
            DataError: if the corpora are not those of the run.
        """
        errors: list[ArtifactError] = []
        for step in reversed(self.checkpoints.steps()):
            try:
                self._restore(step)
            except ArtifactError as error:
                errors.append(error)
            else:
                return True
        if errors:
            raise errors[0]
        return False

    def run(self, started: RunStarted, stop: StopRequest) -> None:
        """Trains to the end of the run.

        Args:
            started: what is known at the start; step and epoch length are filled in here.
            stop: looked at after every step.

        Raises:
            Interrupted: if a stop was requested; the state is saved.
            TformerError: if the loss is not finite; the last checkpoint stands.
        """
        loader = self._open_loader(self.state.position)
        self._clock = time.monotonic() - self.state.seconds
        self._loader = loader
        n_batches = loader.n_batches(self.state.position.epoch)
        self._notify(replace(started, step=self.state.step, batches_per_epoch=n_batches))
        try:
            self._loop(loader, stop)
        finally:
            loader.close()
        self._finish()

    def _loop(self, loader: TrainingLoader, stop: StopRequest) -> None:
        self.model.train()
        window = _Window(self._elapsed())
        batches = iter(loader)
        while not self._end_reason():
            norm = self._step(self._next_batches(batches), window)
            self.state.seconds = self._elapsed()
            step = self.state.step
            if step % self.config.report_every == 0 or stop:
                self._report(window, norm)
                window = _Window(self._elapsed())
            is_validated = self.validator is not None and step % self.validation.every == 0
            if is_validated:
                self._validate()
            if is_validated or step % self.config.checkpoint_every == 0 or stop:
                self._checkpoint()
                window.start += self._elapsed() - self.state.seconds
            if stop:
                raise Interrupted(
                    f"stopped at step {step} ({self.checkpoints.path(step)}): "
                    "the same command goes on from there",
                    stop.signal_number,
                )

    def _next_batches(self, batches: Iterator[tuple[Batch, LoaderPosition]]) -> list[Batch]:
        group = []
        for _ in range(self.config.accumulate):
            batch, self.state.position = next(batches)
            group.append(batch)
        return group

    def _step(self, batches: list[Batch], window: _Window) -> Tensor:
        """Makes one optimizer update; returns the gradient's norm before clipping."""
        n_target_tokens = sum(batch.n_target_tokens for batch in batches)
        for batch in batches:
            smoothed, likelihood = self._backward(batch, n_target_tokens)
            window.loss = window.loss + smoothed
            window.likelihood = window.likelihood + likelihood
            window.n_target_tokens += batch.n_target_tokens
            window.n_tokens += batch.n_target_tokens + batch.n_source_tokens
            window.n_cells += batch.n_cells
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), self.config.clip_norm or math.inf, foreach=True
        )
        self.state.step += 1
        self.state.tokens += n_target_tokens
        set_learning_rate(self.optimizer, self._learning_rate())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _backward(self, batch: Batch, n_target_tokens: int) -> tuple[Tensor, Tensor]:
        """Adds the gradient of a batch; returns its summed loss and negative log-likelihood."""
        output = batch.target_output.flatten()
        # Real tokens are found before the batch goes to the device: nothing waits for it there.
        positions = (output != PAD_ID).nonzero().squeeze(1)
        targets = self._to_device(output.index_select(0, positions))
        positions = self._to_device(positions)
        source_mask = self._to_device(batch.source_mask)
        with autocast(self.device, self.precision):
            memory = self.model.encode(self._to_device(batch.source), source_mask)
            target_input = self._to_device(batch.target_input)
            hidden = self.model.decode_hidden(target_input, memory, source_mask)
            # (B, T, D) -> (N, D): the vocabulary is compared with tokens alone, not with padding
            logits = self.model.project(hidden.flatten(0, 1).index_select(0, positions))
        loss = label_smoothed_loss(logits, targets, self.config.label_smoothing)
        (loss.smoothed / n_target_tokens).backward()  # type: ignore[no-untyped-call]
        return loss.smoothed.detach(), loss.negative_log_likelihood

    def _to_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, non_blocking=True)

    def _learning_rate(self) -> float:
        d_model = self.model.config.d_model
        return learning_rate(self.config, self.state.step, self._share_done(), d_model)

    def _share_done(self) -> float:
        config, state = self.config, self.state
        shares = [0.0]
        if config.max_steps:
            shares.append(state.step / config.max_steps)
        if config.max_epochs:
            shares.append(self._epochs() / config.max_epochs)
        if config.max_tokens:
            shares.append(state.tokens / config.max_tokens)
        if config.max_minutes:
            shares.append(self._elapsed() / (60.0 * config.max_minutes))
        return min(1.0, max(shares))

    def _epochs(self) -> float:
        position = self.state.position
        return position.epoch + position.batch / max(1, self._loader.n_batches(position.epoch))

    def _elapsed(self) -> float:
        return time.monotonic() - self._clock

    def _end_reason(self) -> str:
        config, state = self.config, self.state
        if config.max_steps and state.step >= config.max_steps:
            return f"{config.max_steps} steps are made"
        if config.max_epochs and state.position.epoch >= config.max_epochs:
            return f"{config.max_epochs} epochs are over"
        if config.max_tokens and state.tokens >= config.max_tokens:
            return f"{config.max_tokens} target tokens are seen"
        if config.max_minutes and self._elapsed() >= 60.0 * config.max_minutes:
            return f"{config.max_minutes:g} minutes are over"
        patience = self.validation.patience
        if patience and self._validations_since_best() >= patience:
            return f"{patience} validations brought no better {self.validation.metric}"
        return ""

    def _validations_since_best(self) -> int:
        return sum(scores["step"] > self.state.best_step for scores in self.state.validations)

    def _report(self, window: _Window, norm: Tensor) -> None:
        loss, likelihood = float(window.loss), float(window.likelihood)
        seconds = self._elapsed()
        if not math.isfinite(loss) or not math.isfinite(float(norm)):
            raise TformerError(
                f"loss or gradient is not finite (step {self.state.step}): lower "
                "training.learning_rate or raise training.warmup_steps; the last checkpoint stands"
            )
        n_target = max(1, window.n_target_tokens)
        self._notify(
            StepReport(
                step=self.state.step,
                epoch=self._epochs(),
                loss=loss / n_target,
                perplexity=math.exp(min(likelihood / n_target, 700.0)),
                learning_rate=self._learning_rate(),
                gradient_norm=float(norm),
                tokens_per_second=window.n_target_tokens / max(1e-9, seconds - window.start),
                padding=1.0 - window.n_tokens / max(1, window.n_cells),
                tokens=self.state.tokens,
                seconds=seconds,
                share_done=self._share_done(),
            )
        )

    def _validate(self) -> None:
        assert self.validator is not None  # noqa: S101 - the callers have looked
        result = self.validator.validate(self.model)
        value = result.scores[self.validation.metric]
        best = [s[self.validation.metric] for s in self.state.validations]
        better = max if self.validation.higher_is_better else min
        is_best = not best or (value != better(best) and better(value, *best) == value)
        self.state.validations.append({"step": self.state.step, **result.scores})
        if is_best:
            self.state.best_step = self.state.step
            self.publish(self.model.state_dict(), self.state.step, result.scores)
        self._notify(_validation_report(result, self.state.step, is_best=is_best))

    def _checkpoint(self) -> None:
        tensors = optimizer_tensors(self.optimizer, self.model) | generator_tensors(self.device)
        self.checkpoints.save(self.state, self.model.state_dict(), tensors)
        n_last, n_best = self.config.n_kept_for_average
        steps = self.checkpoints.steps()
        self.checkpoints.keep([*steps[-n_last:], *self._best_steps(steps)[:n_best]])
        if self.validator is None:
            self.publish(self.model.state_dict(), self.state.step, {})
        self._notify(CheckpointWritten(step=self.state.step))

    def _best_steps(self, steps: list[int]) -> list[int]:
        ordered = best_steps(
            self.state.validations,
            self.validation.metric,
            higher=self.validation.higher_is_better,
        )
        return [step for step in ordered if step in steps]

    def _restore(self, step: int) -> None:
        state = self.checkpoints.load_state(step)
        weights, tensors = self.checkpoints.load_tensors(step, self.device)
        if state.fingerprints != self.state.fingerprints:
            raise DataError(
                f"the training data have changed since the run began ({self.checkpoints.path(step)}"
                "): bring the old data back, or start over with --fresh"
            )
        try:
            self.model.load_state_dict(weights)
            restore_optimizer(self.optimizer, self.model, tensors)
            restore_generators(tensors, self.device)
        except (KeyError, RuntimeError) as error:
            problem = str(error).splitlines()[0]
            raise ArtifactError(f"is damaged ({self.checkpoints.path(step)}): {problem}") from None
        self.state = state

    def _finish(self) -> None:
        state = self.state
        if self.validator is not None and not self._is_validated():
            self._validate()
        self._checkpoint()
        state.reason = self._end_reason()
        averaged = self._averaged_steps()
        if averaged:
            files = [self.checkpoints.path(step) / MODEL for step in averaged]
            weights = average_weights(files)
            self.model.load_state_dict(weights)
            scores = {}
            if self.validator is not None:
                result = self.validator.validate(self.model)
                scores = result.scores
                report = _validation_report(result, state.step, is_best=False)
                self._notify(replace(report, weights="average"))
            self.publish(weights, state.step, scores)
        state.seconds = self._elapsed()
        state.is_finished = True
        self.checkpoints.save_state(state)
        self._notify(
            RunEnded(
                step=state.step,
                reason=state.reason,
                seconds=state.seconds,
                averaged_steps=tuple(averaged),
            )
        )

    def _is_validated(self) -> bool:
        return bool(self.state.validations) and (
            self.state.validations[-1]["step"] == self.state.step
        )

    def _averaged_steps(self) -> list[int]:
        steps = self.checkpoints.steps()
        n_averaged = self.config.average_checkpoints
        if self.config.average == "last":
            return steps[-n_averaged:]
        if self.config.average == "best":
            return sorted(self._best_steps(steps)[:n_averaged])
        return []

    def _notify(self, event: TrainingEvent) -> None:
        for observer in self.observers:
            observer.notify(event)


def _validation_report(result: Validation, step: int, *, is_best: bool) -> ValidationReport:
    source, translation, reference = result.sample
    return ValidationReport(
        step=step,
        scores=result.scores,
        signatures=result.signatures,
        is_best=is_best,
        seconds=result.seconds,
        sample_source=source,
        sample_translation=translation,
        sample_reference=reference,
    )
