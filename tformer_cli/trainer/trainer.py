"""The training loop, and what happens around it: reports, validation, checkpoints, the end."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tformer_cli.errors import Interrupted
from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.runtime import training_products
from tformer_cli.text.batching import AnyBatch
from tformer_cli.text.loading.loader import BatchStream, LoaderPosition
from tformer_cli.trainer.batch_budget import PairLengths, settle_tokens_per_batch
from tformer_cli.trainer.best_model import BestModelPublisher, PublishWeights
from tformer_cli.trainer.config import TrainingConfig, ValidationConfig
from tformer_cli.trainer.events import (
    BatchSplit,
    CheckpointWritten,
    RunEnded,
    RunStarted,
    StepDone,
    StepReport,
    TrainingEvent,
    TrainingObserver,
)
from tformer_cli.trainer.gradients import clip_gradients
from tformer_cli.trainer.hardware import disable_compiling
from tformer_cli.trainer.loss import count_targets, smoothing_entropy
from tformer_cli.trainer.memory import FreedPages, GradientsInMemory
from tformer_cli.trainer.optimizers.optimizer import (
    MovingAverage,
    make_optimizer,
    set_learning_rate,
)
from tformer_cli.trainer.optimizers.schedule import (
    batches_per_step,
    end_reason,
    largest_share,
    learning_rate,
    scaled_to_batch,
    share_done,
)
from tformer_cli.trainer.processes.group import Processes
from tformer_cli.trainer.processes.signals import StopRequest
from tformer_cli.trainer.report_interval import Diverged, ReportInterval, uniform_loss
from tformer_cli.trainer.resuming.checkpoints import Checkpoints
from tformer_cli.trainer.resuming.saving import RunSaver, Written, roll_back
from tformer_cli.trainer.resuming.state import TrainingState, notes_of_changes, present_conditions
from tformer_cli.trainer.segment_memory import SegmentMemory
from tformer_cli.trainer.speed import HardwareLimit, Pace, training_flops_per_token
from tformer_cli.trainer.validation import Validator


class Trainer:
    """Trains one model. Make it, `resume` if there is something to resume, then `run`."""

    def __init__(
        self,
        *,
        model: Model,
        config: TrainingConfig,
        validation: ValidationConfig,
        loader: Callable[[LoaderPosition, int], BatchStream],
        validator: Validator | None,
        checkpoints: Checkpoints,
        publish: PublishWeights,
        precision: Precision,
        fingerprints: list[str],
        limit: HardwareLimit,
        processes: Processes | None = None,
        initial: Callable[[], Model] | None = None,
        memory: SegmentMemory | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.validation = validation
        self._observers: Sequence[TrainingObserver] = ()
        # a look at a number is free on a CPU; elsewhere it means waiting, and is left to reports
        self.checks_each_step = next(model.parameters()).device.type == "cpu"
        self.precision = precision
        self.limit = limit
        self.processes = processes or Processes()
        self._uniform_loss = uniform_loss(config.label_smoothing, len(model.output_matrix))
        self._target_entropy = smoothing_entropy(config.label_smoothing, count_targets(model))
        self.processes.shard(model)
        self.optimizer = make_optimizer(model, config, precision)
        averages = config.average == "ema"
        self.average = MovingAverage(model, config.ema_decay) if averages else None
        judged = model if self.average is None else self.average.model
        judging = validation if validator else None
        self.saver = RunSaver(
            model,
            self.optimizer,
            checkpoints,
            config,
            judging,
            self.processes,
            self.average,
            initial,
            memory,
        )
        self._memory = memory
        self._judge = BestModelPublisher(judged, validator, validation, publish, self.processes)
        self.state = TrainingState(fingerprints=fingerprints)
        self._publish = publish
        self._on_inspect: Callable[[int], None] | None = None
        self._open_loader = loader
        self._gradients = GradientsInMemory(self.processes.backward_passes(model), memory)
        self._freed_pages = FreedPages()
        self._pace = Pace()
        self._clock = time.monotonic()
        self._learning_rate = 0.0
        self._written = Written()
        self._best_scores: Mapping[str, float] | None = None
        """Scores of the present weights if they are the best and not published yet."""

    def resume(self, names: Sequence[str] = ()) -> list[str]:
        """Goes back to the newest intact checkpoint, if there is one."""
        values = self.processes.first(partial(self._restore, names))
        self.state = TrainingState.from_json(values["state"])
        self._broadcast()
        notes = [values["note"]] if values["note"] else []
        now = present_conditions(self.model, self.precision, self.processes)
        notes += notes_of_changes(self.state, now)
        self.state = replace(self.state, **now)
        return notes

    def _broadcast(self) -> None:
        """Copies what the first process has restored to all processes."""
        self.processes.broadcast_state(self.model, self.optimizer)
        if self.average is not None:
            self.processes.broadcast_weights(self.average.model)

    def _restore(self, names: Sequence[str]) -> dict[str, Any]:
        state, note = self.saver.restore(self.state, names)
        return {"state": state.to_json(), "note": note}

    def fit_batches(self, lengths: PairLengths) -> int:
        """Finds the tokens per batch of a new run, or tries the recipe's on a GPU."""
        # The first process decides for all: the budget is for a whole step, for any number of
        # processes.
        tokens = self.processes.first(
            lambda: settle_tokens_per_batch(
                self.model,
                self.config,
                lengths,
                self.precision,
                self.optimizer,
                largest_share(self.config, self.processes.world_size),
            )
        )
        self.state.tokens_per_batch = tokens
        if not self.config.tokens_per_batch and not self.checks_each_step:
            self.state.batch_factor = tokens / TrainingConfig.tokens_per_batch
        return tokens

    def run(
        self,
        started: RunStarted,
        stop: StopRequest,
        observers: Sequence[TrainingObserver] = (),
        on_inspect: Callable[[int], None] | None = None,
    ) -> None:
        self._observers, self._on_inspect = observers, on_inspect
        state = self.state
        if on_inspect is not None and not state.step:
            with disable_compiling(self.model):
                on_inspect(0)
        state.tokens_per_batch = state.tokens_per_batch or self.config.tokens_per_batch
        batches = self.open_batches()
        self._clock = time.monotonic() - self.state.seconds
        n_batches = self._loader.n_batches(self.state.position.epoch)
        self._notify(replace(started, step=self.state.step, batches_per_epoch=n_batches))
        with self.saver.finish_writes():
            self._train(batches, stop)

    def _train(self, batches: Iterator[tuple[AnyBatch, LoaderPosition]], stop: StopRequest) -> None:
        """Makes all steps, with rollbacks in between, and the final model."""
        while True:
            try:
                self._loop(batches, stop)
                break
            except Diverged as cause:
                diverged = cause
            finally:
                self.close_batches()
            # A loader reads ahead, so it is reopened where the run continues
            self._go_back(diverged)
            batches = self.open_batches()
        self._finish(stop)

    def _go_back(self, cause: Diverged) -> None:
        """Restores the last good checkpoint and continues after the batches that diverged."""
        self._tick()
        self.optimizer.zero_grad()
        self._best_scores = None
        values = self.processes.first(partial(self._rolled_back, cause))
        self.state = TrainingState.from_json(values)
        if self._memory is not None:  # the text goes on elsewhere than that checkpoint remembers
            self._memory.clear()
        self._broadcast()
        self._notify(self.state.rollbacks[-1])

    def _rolled_back(self, cause: Diverged) -> dict[str, Any]:
        return roll_back(self.saver, self.state, cause, self.config.max_rollbacks).to_json()

    def open_batches(self) -> Iterator[tuple[AnyBatch, LoaderPosition]]:
        budget = self.state.tokens_per_batch or self.config.tokens_per_batch
        self._loader = self._open_loader(self.state.position, budget)
        return iter(self._loader)

    def close_batches(self) -> None:
        self._loader.close()

    def _loop(self, batches: Iterator[tuple[AnyBatch, LoaderPosition]], stop: StopRequest) -> None:
        self.model.train()
        window = ReportInterval.from_json(self.state.window or {"start": self._tick()})
        if self.saver.is_validation_due(self.state.step) and not self.state.is_validated:
            self._validate(stop)  # the run was stopped in the middle of it
            self._checkpoint(window)
            self._end_if(self._stop_number(stop))
        while not self._end_reason():
            self.update(batches, window)
            self._freed_pages.after_step()
            self._inspect(window)
            self._pace.wait_for(window.loss)
            window_end = self._tick()
            self._notify_step()
            self._note_written()
            step = self.state.step
            is_due, is_reported = self.saver.is_due(step), step % self.config.report_every == 0
            # A checkpoint of ruined weights would be what a rollback returns to
            if is_due or is_reported:
                window.check_finite(step)
            if is_reported:
                self.state.losses.add(
                    step, float(window.loss), window.n_target_tokens, self._uniform_loss
                )
                self._report(window)
                window = ReportInterval(window_end)
            if self.saver.is_validation_due(step) or self._must_know_validation():
                self._validate(stop)
                is_due = True  # also of one that came early: it may be the best
            # looked at once: a signal may come at any moment, and to each process at another
            stop_number = self._stop_number(stop)
            if is_due or stop_number:
                window.check_finite(step)
                pause_end = self._tick()
                window.start += pause_end - window_end
                self._checkpoint(window)
                window.start += self._tick() - pause_end
            self._end_if(stop_number)
        window.check_finite(self.state.step)
        self.state.window = window.to_json()

    def _stop_number(self, stop: StopRequest) -> int:
        """The signal that asked any of the processes to stop; 0: none did."""
        return int(self.processes.largest(stop.signal_number))

    def _end_if(self, stop_number: int) -> None:
        """Ends the run for now if that was asked for; its state is saved."""
        if stop_number:
            self.processes.first(self.saver.wait)  # the others end after it has saved
            step = self.state.step
            raise Interrupted(
                f"stopped at step {step} ({self.saver.checkpoints.path(step)}); run the same "
                "command again to resume",
                stop_number,
            )

    def _next_batches(
        self, batches: Iterator[tuple[AnyBatch, LoaderPosition]], n_batches: int
    ) -> list[AnyBatch]:
        group = []
        for _ in range(n_batches):
            batch, self.state.position = next(batches)
            group.append(batch)
        return group

    def update(
        self, batches: Iterator[tuple[AnyBatch, LoaderPosition]], window: ReportInterval
    ) -> None:
        with training_products(tf32=self.config.precision == "tf32"):
            self._update(batches, window)

    def _update(
        self, batches: Iterator[tuple[AnyBatch, LoaderPosition]], window: ReportInterval
    ) -> None:
        done = share_done(self.config, self.state, self._epochs())
        self.state.step += 1
        self._learning_rate = self.state.learning_rate_factor * learning_rate(
            scaled_to_batch(self.config, self.state.batch_factor),
            self.state.step,
            done,
            self.model.config.d_model,
            self.state.seconds,
        )
        set_learning_rate(self.optimizer, self._learning_rate)
        # The whole step's batches: tokens and limits are the same in every process
        group = self._next_batches(batches, batches_per_step(self.config, done))
        n_target_tokens = sum(batch.n_target_tokens for batch in group)
        self.state.tokens += n_target_tokens
        # Dropout must differ between processes, and be the same again after a resumption
        self.processes.seed_step(self.config.seed, self.state.step)
        own, share = self.processes.share(group), ReportInterval(0.0)
        was_split = self._gradients.smallest_failed > 0
        n_parts = self._gradients.add(
            self.model,
            own,
            share,
            label_smoothing=self.config.label_smoothing,
            precision=self.precision,
            n_target_tokens=n_target_tokens,
            r_drop=self.config.r_drop,
        )
        window.add_step(group, *self.processes.sums(share.loss, share.likelihood))
        # Reported once: batches as large as one that failed are split from then on
        if n_parts > len(own) and not was_split:
            self._notify(BatchSplit(step=self.state.step, n_parts=n_parts))
        # By now gradients are sums over all processes, so that each clips by the same norm
        window.add_norm(clip_gradients(self.model, self.config.clip_norm))
        # Before the weights change: a NaN would ruin them and the optimizer's moments for good
        if self.checks_each_step:
            window.check_finite(self.state.step)
        self.processes.update(self.model, self.optimizer)
        if self.average is not None:
            self.average.update(self.state.step)
        self.optimizer.zero_grad()

    def _inspect(self, window: ReportInterval) -> None:
        """Lets `on_inspect` read the model; its time does not count as training."""
        if self.config.inspect_every and self.state.step % self.config.inspect_every == 0:
            start = self._tick()
            if self._on_inspect is not None:
                with disable_compiling(self.model):
                    self._on_inspect(self.state.step)
            window.start += self._tick() - start

    def _end_reason(self) -> str:
        return end_reason(self.config, self.validation, self.state, self._epochs())

    def _epochs(self) -> float:
        position = self.state.position
        return position.epoch + position.batch / max(1, self._loader.n_batches(position.epoch))

    def _tick(self) -> float:
        """Brings the run's time up to date; returns its seconds."""
        self.state.seconds = time.monotonic() - self._clock
        if self.config.max_minutes:  # what decides must be the same in all processes
            self.state.seconds = self.processes.largest(self.state.seconds)
        return self.state.seconds

    def _notify_step(self) -> None:
        """Notifies of a step and, once, of the time that the first ones foresee for the run."""
        state = self.state
        done = share_done(self.config, state, self._epochs())
        pace = self._pace.after_step(state.step, state.seconds, done)
        if pace is not None:
            self._notify(pace)
        self._notify(StepDone(share_done=done, seconds=state.seconds))

    def _report(self, window: ReportInterval) -> None:
        state, epoch, model = self.state, self._epochs(), self.model
        tokens_per_second = window.n_target_tokens / max(1e-9, state.seconds - window.start)
        flops = training_flops_per_token(model.config, model.vocab_size, *window.mean_lengths)
        rate = self.config.n_passes * tokens_per_second * flops
        self._notify(
            StepReport(
                step=state.step,
                epoch=epoch,
                # The minimized loss is this one less a constant: 0 is its best value
                loss=window.mean_loss + self._target_entropy,
                perplexity=window.perplexity,
                learning_rate=self._learning_rate,
                gradient_norm=float(window.last_norm),
                tokens_per_second=tokens_per_second,
                padding=window.padding,
                tokens=state.tokens,
                seconds=state.seconds,
                share_done=share_done(self.config, state, epoch),
                hardware_share=self.limit.share_of(rate),
            )
        )

    def _validate(self, stop: StopRequest) -> None:
        """Validates; a stop that is asked for meanwhile leaves it for the resumption."""
        report = self._judge.validate(self.state, stop)
        if report is not None:
            n_left = 2 if self.config.average in ("last", "best") else 1  # the average's, too
            self.state.seconds_to_end = n_left * report.seconds + self._written.seconds
            self._best_scores = report.scores if report.is_best else None
            self._notify(report)

    def _must_know_validation(self) -> bool:
        """Returns whether half of the time is over without any validation to plan the last by."""
        return (
            self._judge.validates
            and not self.state.validations
            and self.state.seconds > 30.0 * self.config.max_minutes > 0.0
        )

    def _checkpoint(self, window: ReportInterval | None = None) -> None:
        if window is not None:
            self.state.window = window.to_json()
        self._tick()
        scores, self._best_scores = self._best_scores, None
        if not self._judge.validates:
            scores = {}
        step, publish = self.state.step, self._publish
        self.saver.save(
            self.state, None if scores is None else lambda weights: publish(weights, step, scores)
        )

    def _note_written(self) -> None:
        """Reports a checkpoint that is on the disk by now, and plans with the time it took."""
        written = self.saver.newest_write()
        if self.config.max_minutes:  # what decides must be the same in all processes
            written = written._replace(seconds=self.processes.largest(written.seconds))
        self.state.seconds_to_end += written.seconds - self._written.seconds
        if written.step != self._written.step:
            self._notify(CheckpointWritten(step=written.step))
        self._written = written

    def _finish(self, stop: StopRequest) -> None:
        """Validates and saves the last step, and makes the final model; repeating it is safe."""
        state = self.state
        state.reason = self._end_reason()
        # A run that was stopped in between has done some of this already
        if not state.is_validated:
            self._validate(stop)
        self._checkpoint()
        self._end_if(self._stop_number(stop))
        average = self._judge.publish_average(self.saver, state, stop)
        if average is None:
            self._end_if(self._stop_number(stop))
            return
        self._note_written()
        if average.report is not None:
            self._notify(average.report)
        self._tick()
        state.is_finished = True
        if self.processes.is_first:
            self.saver.checkpoints.save_state(state)
        self._notify(
            RunEnded(
                step=state.step,
                reason=state.reason,
                seconds=state.seconds,
                averaged_steps=tuple(average.steps),
                better_step=average.better_step,
                damaged=tuple(average.damaged),
            )
        )

    def _notify(self, event: TrainingEvent) -> None:
        for observer in self._observers:
            observer.notify(event)
