"""The training loop, and what happens around it: reports, validation, checkpoints, the end."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from tformer_cli.data.batching import Batch
from tformer_cli.data.loader import LoaderPosition, TrainingLoader
from tformer_cli.errors import Interrupted
from tformer_cli.model.runtime import Precision
from tformer_cli.model.transformer import Transformer
from tformer_cli.training.averaging import average_weights
from tformer_cli.training.checkpoints import MODEL, Checkpoints
from tformer_cli.training.config import TrainingConfig, ValidationConfig
from tformer_cli.training.divergence import Diverged, guesser_loss
from tformer_cli.training.events import (
    BatchSplit,
    CheckpointWritten,
    RunEnded,
    RunStarted,
    StepReport,
    TrainingEvent,
    TrainingObserver,
)
from tformer_cli.training.gradients import clip_gradients
from tformer_cli.training.limits import end_reason, share_done
from tformer_cli.training.memory import GradientsInMemory
from tformer_cli.training.optimizer import make_optimizer, set_learning_rate
from tformer_cli.training.recovery import roll_back
from tformer_cli.training.saving import RunSaver
from tformer_cli.training.schedule import learning_rate
from tformer_cli.training.signals import StopRequest, StopRequested
from tformer_cli.training.state import TrainingState
from tformer_cli.training.validation import Validation, Validator
from tformer_cli.training.window import Window

PublishWeights = Callable[[Mapping[str, Tensor], int, Mapping[str, float]], None]
"""Writes weights, their step and their scores as the run's model directory."""


class Trainer:
    """Trains one model. Make it, `resume` if there is something to resume, then `run`."""

    def __init__(
        self,
        *,
        model: Transformer,
        config: TrainingConfig,
        validation: ValidationConfig,
        loader: Callable[[LoaderPosition, int], TrainingLoader],
        validator: Validator | None,
        checkpoints: Checkpoints,
        publish: PublishWeights,
        observers: Sequence[TrainingObserver],
        precision: Precision,
        fingerprints: list[str],
    ) -> None:
        """Brings together what a run needs.

        Args:
            model: the model, on its device.
            config: settings of training.
            validation: settings of validation.
            loader: opens the training data at a position, with a budget of tokens per batch.
            validator: scores the model; None where there are no validation corpora.
            checkpoints: where the run's state is kept.
            publish: writes the run's model directory.
            observers: who is told of events.
            precision: of the model's products.
            fingerprints: content of the corpora.
        """
        self.model = model
        self.config = config
        self.validation = validation
        self.validator = validator
        self.publish = publish
        self.observers = observers
        # a look at a number is free on a CPU; elsewhere it means waiting, and is left to reports
        self.checks_each_step = next(model.parameters()).device.type == "cpu"
        self.precision = precision
        self.optimizer = make_optimizer(model, config)
        self.saver = RunSaver(
            model, self.optimizer, checkpoints, config, validation if validator else None
        )
        self.state = TrainingState(fingerprints=fingerprints)
        self._open_loader = loader
        self._gradients = GradientsInMemory()
        self._guesser_loss = guesser_loss(config.label_smoothing, model.vocab_size)
        self._clock = time.monotonic()
        self._learning_rate = 0.0

    def resume(self, names: Sequence[str] = ()) -> str:
        """Goes back to the newest sound checkpoint, if there is one.

        Args:
            names: what messages call the corpora that the fingerprints are of.

        Returns:
            A note for the user if a newer one was damaged, else an empty text.

        Raises:
            ArtifactError: if all checkpoints are damaged.
            DataError: if the corpora are not those of the run.
        """
        self.state, note = self.saver.restore(self.state, names)
        return note

    def run(self, started: RunStarted, stop: StopRequest) -> None:
        """Trains to the end of the run.

        Args:
            started: what is known at the start; step and epoch length are filled in here.
            stop: looked at after every step.

        Raises:
            Interrupted: if a stop was requested; the state is saved.
            TformerError: if the loss diverges again and again; the last checkpoint stands.
        """
        state = self.state
        state.tokens_per_batch = state.tokens_per_batch or self.config.tokens_per_batch
        self._loader = self._open_loader(state.position, state.tokens_per_batch)
        self._clock = time.monotonic() - self.state.seconds
        n_batches = self._loader.n_batches(self.state.position.epoch)
        self._notify(replace(started, step=self.state.step, batches_per_epoch=n_batches))
        is_over = False
        while not is_over:
            try:
                self._loop(stop)
                is_over = True
            except Diverged as cause:
                self._go_back(cause)
            finally:
                self._loader.close()
        self._finish(stop)

    def _go_back(self, cause: Diverged) -> None:
        """Takes up the last good checkpoint, behind the batches that led astray."""
        self._tick()
        self.optimizer.zero_grad(set_to_none=True)
        self.state = roll_back(self.saver, self.state, cause, self.config.max_rollbacks)
        self._loader = self._open_loader(self.state.position, self.state.tokens_per_batch)
        self._notify(self.state.rollbacks[-1])

    def _loop(self, stop: StopRequest) -> None:
        self.model.train()
        window = Window.from_json(self.state.window or {"start": self._tick()})
        if self.saver.is_validation_due(self.state.step) and not self.state.is_validated:
            self._validate(stop)  # the run was stopped in the middle of it
            self._checkpoint(window)
            self._end_if(stop)
        batches = iter(self._loader)
        while not self._end_reason():
            self._update(batches, window)
            window_end = self._tick()
            step = self.state.step
            is_due, is_reported = self.saver.is_due(step), step % self.config.report_every == 0
            if is_due or is_reported:
                window.check_finite(step)
            if is_reported:
                self.state.losses.add(
                    step, float(window.loss), window.n_target_tokens, self._guesser_loss
                )
                self._report(window)
                window = Window(window_end)
            if self.saver.is_validation_due(step):
                self._validate(stop)
            is_stopping = bool(stop)  # looked at once: a signal may come at any moment
            if is_due or is_stopping:
                window.check_finite(step)
                pause_end = self._tick()
                window.start += pause_end - window_end
                self._checkpoint(window)
                window.start += self._tick() - pause_end
            if is_stopping:
                self._end_if(stop)
        window.check_finite(self.state.step)
        self.state.window = window.to_json()

    def _end_if(self, stop: StopRequest) -> None:
        """Ends the run for now if that was asked for; its state is saved."""
        if stop:
            step = self.state.step
            raise Interrupted(
                f"stopped at step {step} ({self.saver.checkpoints.path(step)}): "
                "the same command goes on there",
                stop.signal_number,
            )

    def _next_batches(self, batches: Iterator[tuple[Batch, LoaderPosition]]) -> list[Batch]:
        group = []
        for _ in range(self.config.accumulate):
            batch, self.state.position = next(batches)
            group.append(batch)
        return group

    def _update(self, batches: Iterator[tuple[Batch, LoaderPosition]], window: Window) -> None:
        """Makes one step of the optimizer."""
        share = share_done(self.config, self.state, self._epochs())
        self.state.step += 1
        self._learning_rate = self.state.learning_rate_factor * learning_rate(
            self.config,
            self.state.step,
            share,
            self.model.config.d_model,
            self.state.seconds,
        )
        set_learning_rate(self.optimizer, self._learning_rate)
        group = self._next_batches(batches)
        self.state.tokens += sum(batch.n_target_tokens for batch in group)
        was_split = self._gradients.smallest_failed > 0
        n_parts = self._gradients.add(
            self.model,
            group,
            window,
            label_smoothing=self.config.label_smoothing,
            precision=self.precision,
        )
        if n_parts > len(group) and not was_split:
            self._notify(BatchSplit(step=self.state.step, n_parts=n_parts))
        window.add_norm(clip_gradients(self.model, self.config.clip_norm))
        if self.checks_each_step:
            window.check_finite(self.state.step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _end_reason(self) -> str:
        return end_reason(self.config, self.validation, self.state, self._epochs())

    def _epochs(self) -> float:
        position = self.state.position
        return position.epoch + position.batch / max(1, self._loader.n_batches(position.epoch))

    def _tick(self) -> float:
        """Brings the run's time up to date; returns its seconds."""
        self.state.seconds = time.monotonic() - self._clock
        return self.state.seconds

    def _report(self, window: Window) -> None:
        self._notify(
            StepReport(
                step=self.state.step,
                epoch=self._epochs(),
                loss=window.mean_loss,
                perplexity=window.perplexity,
                learning_rate=self._learning_rate,
                gradient_norm=float(window.last_norm),
                tokens_per_second=window.n_target_tokens
                / max(1e-9, self.state.seconds - window.start),
                padding=window.padding,
                tokens=self.state.tokens,
                seconds=self.state.seconds,
                share_done=share_done(self.config, self.state, self._epochs()),
            )
        )

    def _validate(self, stop: StopRequest) -> None:
        """Validates; a stop that is asked for meanwhile leaves it for the resumption."""
        try:
            result = self._validation(stop)
        except StopRequested:
            return
        if result is not None:
            is_best = self.state.add_validation(result.scores, self.validation)
            if is_best:
                self.publish(self.model.state_dict(), self.state.step, result.scores)
            self._notify(result.report(self.state.step, is_best=is_best))

    def _validation(self, stop: StopRequest) -> Validation | None:
        if self.validator is None:
            return None
        return self.validator.validate(
            self.model, sample=len(self.state.validations), before_batch=stop.check
        )

    def _checkpoint(self, window: Window | None = None) -> None:
        if window is not None:
            self.state.window = window.to_json()
        self._tick()
        self.saver.save(self.state)
        if self.validator is None:
            self.publish(self.model.state_dict(), self.state.step, {})
        self._notify(CheckpointWritten(step=self.state.step))

    def _finish(self, stop: StopRequest) -> None:
        """Validates and saves the last step, and makes the final model; repeating it is safe."""
        state = self.state
        state.reason = self._end_reason()
        if not state.is_validated:
            self._validate(stop)
        self._checkpoint()
        self._end_if(stop)
        averaged, damaged = self.saver.sound_averaged_steps(state)
        if averaged:
            self._publish_average(averaged, stop)
        self._tick()
        state.is_finished = True
        self.saver.checkpoints.save_state(state)
        self._notify(
            RunEnded(
                step=state.step,
                reason=state.reason,
                seconds=state.seconds,
                averaged_steps=tuple(averaged),
                damaged=tuple(damaged),
            )
        )

    def _publish_average(self, steps: list[int], stop: StopRequest) -> None:
        weights = average_weights([self.saver.checkpoints.path(step) / MODEL for step in steps])
        self.model.load_state_dict(weights)
        try:
            result = self._validation(stop)
        except StopRequested:
            self._end_if(stop)
            raise
        if result is not None:
            self._notify(result.report(self.state.step, weights="average"))
        self.publish(weights, self.state.step, result.scores if result is not None else {})

    def _notify(self, event: TrainingEvent) -> None:
        for observer in self.observers:
            observer.notify(event)
