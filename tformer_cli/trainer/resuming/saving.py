"""Checkpoints in the course of a run: saved, kept, averaged, and gone back to.

The training thread only copies the tensors; another thread writes the copy while the next steps
are computed. At most one write is in flight. Whatever reads checkpoints waits for it first, and so
does the end of a run, whether by its limit, a signal or an error. Only a second Ctrl-C does not
wait: what was written is then left aside, under a name that is no checkpoint's.
"""

import atexit
import copy
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tformer_cli.artifacts.weights_file import tensor_shapes
from tformer_cli.errors import ArtifactError, DataError, TformerError, UnreadableError
from tformer_cli.model.base import Model
from tformer_cli.model.transfer import copy_to_host
from tformer_cli.trainer.config import TrainingConfig, ValidationConfig
from tformer_cli.trainer.events import RolledBack
from tformer_cli.trainer.memory import free_memory
from tformer_cli.trainer.optimizers.adam import Adam
from tformer_cli.trainer.optimizers.optimizer import MovingAverage
from tformer_cli.trainer.processes.group import Processes
from tformer_cli.trainer.report_interval import Diverged
from tformer_cli.trainer.resuming.checkpoints import MODEL, Checkpoints
from tformer_cli.trainer.resuming.state import (
    CONDITIONS,
    TrainingState,
    generator_tensors,
    restore_generators,
)
from tformer_cli.trainer.segment_memory import SegmentMemory

COPY_SHARE = 0.1
"""Share of a CPU's free memory that a copy may take; a run with a larger one waits for its writes:
its steps may need the rest, and 2.4 s for the base model are little in 1,000 steps."""

WRITER = "checkpoint"
"""Name of a thread that writes one."""


class Written(NamedTuple):
    """A checkpoint on the disk."""

    step: int = 0
    seconds: float = 0.0
    """Time from the copy to the end of the write."""


class RunSaver:
    """Saves a model with its optimizer and the run's state, and brings them back."""

    def __init__(
        self,
        model: Model,
        optimizer: Adam,
        checkpoints: Checkpoints,
        config: TrainingConfig,
        validation: ValidationConfig | None,
        processes: Processes | None = None,
        average: MovingAverage | None = None,
        initial: Callable[[], nn.Module] | None = None,
        memory: SegmentMemory | None = None,
    ) -> None:
        # Only the first of several processes writes; the others give it what it lacks. `initial`
        # makes a model with the weights that the run began with; None: random ones.
        self._initial = initial or self._random
        self._memory = memory
        self._processes = processes or Processes()
        self.checkpoints = checkpoints
        self._model = model
        self._optimizer = optimizer
        self._config = config
        self._average = average
        self._validation = validation
        self._device = next(model.parameters()).device
        self._writing: Future[Written] | None = None
        self._newest = Written()

    def is_due(self, step: int) -> bool:
        """True if every run has a checkpoint of this step, not only one that was stopped."""
        is_due = step > 0 and step % self._config.checkpoint_every == 0
        return is_due or self.is_validation_due(step)

    def is_validation_due(self, step: int) -> bool:
        return step > 0 and self._validation is not None and step % self._validation.every == 0

    def save(
        self, state: TrainingState, publish: Callable[[Mapping[str, Tensor]], None] | None = None
    ) -> None:
        """Begins to write a checkpoint of the present step, and waits for the one before.

        Args:
            state: the present state, which may change meanwhile.
            publish: writes the step's weights, or their moving average, as the model directory,
                before the checkpoint: a run killed in between does both again.
        """
        tensors = self._processes.optimizer_tensors(self._model, self._optimizer)
        weights = self._processes.weights(self._model)
        if not self._processes.is_first:
            return
        self.wait()
        start = time.monotonic()
        if self._memory is not None:
            tensors = tensors | self._memory.tensors(state.position)
        groups = self._groups(weights, tensors | generator_tensors(self._device))
        has_room = self._has_room(groups)
        copies, await_copies = copy_to_host(groups, self._device) if has_room else (groups, None)
        write = partial(self._write, start, copy.deepcopy(state), publish, copies, await_copies)
        self._writing = writing = Future[Written]()
        # A thread for each write: none is left idle where a process forks. Python does not wait for
        # it at its exit, as it would for an executor's.
        threading.Thread(target=_fulfill, args=(writing, write), name=WRITER, daemon=True).start()
        if not has_room:
            self.wait()

    def wait(self) -> None:
        """Waits until the checkpoint that is being written is on the disk.

        Raises:
            ArtifactError: if it cannot be written.
        """
        if self._writing is not None:
            writing, self._writing = self._writing, None
            self._newest = writing.result()

    def newest_write(self) -> Written:
        """Returns the newest checkpoint that is on the disk; raises what a write failed by."""
        if self._writing is not None and self._writing.done():
            self.wait()
        return self._newest

    @contextmanager
    def finish_writes(self) -> Iterator[None]:
        """Waits at the end for the last write, also after an error, which is raised first."""
        try:
            yield
        except KeyboardInterrupt:  # a second Ctrl-C does not wait
            raise
        except BaseException as error:
            try:
                self.wait()
            except Exception as failed:
                raise error from failed
            raise
        self.wait()

    def _groups(
        self, weights: dict[str, Tensor], tensors: dict[str, Tensor]
    ) -> list[dict[str, Tensor]]:
        """Lists what the files of a checkpoint hold."""
        average = [] if self._average is None else [self._average.tensors()]
        return [weights, tensors, *average]

    def _has_room(self, groups: Sequence[Mapping[str, Tensor]]) -> bool:
        n_bytes = sum(tensor.nbytes for group in groups for tensor in group.values())
        return self._device.type != "cpu" or n_bytes <= COPY_SHARE * free_memory()

    def _write(
        self,
        start: float,
        state: TrainingState,
        publish: Callable[[Mapping[str, Tensor]], None] | None,
        groups: Sequence[dict[str, Tensor]],
        await_copies: Callable[[], None] | None,
    ) -> Written:
        """Writes a model directory and a checkpoint, then removes those no longer needed."""
        if await_copies is not None:
            await_copies()
        weights, _, *average = groups
        if publish is not None:
            publish(average[0] if average else weights)
        self._write_checkpoint(state, groups)
        n_last, n_best = self._config.n_kept_for_average
        # What a stop saves comes on top: it must not push out what a rollback would go to.
        has_ended = bool(state.reason)
        last = self._last_steps(state, n_last) if has_ended else self._due_steps()[-n_last:]
        self.checkpoints.keep([*last, *self._best_steps(state, n_best), state.step])
        return Written(state.step, time.monotonic() - start)

    def save_rollback(self, state: TrainingState) -> None:
        """Rewrites the checkpoint that the run went back to, and removes those after it."""
        # In this order a kill in between repeats what led to the rollback, and ends the same way.
        self.checkpoints.keep(step for step in self.checkpoints.steps() if step <= state.step)
        if state.step:
            self.checkpoints.save_state(state)
        else:  # the optimizer has no state yet
            weights = self._processes.weights(self._model)
            self._write_checkpoint(state, self._groups(weights, generator_tensors(self._device)))

    def go_back(self, last_good_step: int, fingerprints: list[str]) -> TrainingState:
        """Restores the newest sound checkpoint up to a step, else the oldest after it."""
        # Without any the model starts again from its initial weights. Those that only a stopped run
        # has do not count: it goes back to where an uninterrupted one would.
        self.wait()
        steps = self._due_steps()
        before = [step for step in steps if step <= last_good_step]
        for step in [*reversed(before), *steps[len(before) :]]:
            try:
                return self._restore(step, fingerprints)
            except ArtifactError:  # damaged: another one will do
                continue
        self._processes.load_weights(self._model, self._initial().state_dict())
        self._optimizer.state.clear()
        if self._average is not None:
            self._average.restart()
        return TrainingState(fingerprints=fingerprints)

    def _random(self) -> Model:
        torch.manual_seed(self._config.seed)
        return type(self._model)(self._model.config, self._model.vocab_size)

    def restore(self, fresh: TrainingState, names: Sequence[str]) -> tuple[TrainingState, str]:
        """Goes back to the newest intact checkpoint, and removes damaged ones after it."""
        damaged: list[ArtifactError] = []
        steps = self.checkpoints.steps()
        for step in reversed(steps):
            try:
                state = self._restore(step, fresh.fingerprints, names)
            except UnreadableError:  # it may be whole: continuing would remove it
                raise
            except ArtifactError as error:
                damaged.append(error)
            else:
                self.checkpoints.keep(other for other in steps if other <= step)
                skipped = f"resuming from step {step}, a later checkpoint is damaged"
                note = f"{skipped} ({_problem(damaged[0])})" if damaged else ""
                return state, note
        if damaged:
            raise ArtifactError.of(
                "{}: no checkpoint is intact ({}); start over with {fresh}",
                self.checkpoints.directory,
                _problem(damaged[0]),
            )
        return fresh, ""

    def sound_averaged_steps(self, state: TrainingState) -> tuple[list[int], list[str]]:
        """Lists the intact checkpoints to average, and the problems of the others."""
        self.wait()
        sound, damaged = [], []
        for step in self.averaged_steps(state):
            try:
                self.checkpoints.check(step)
                tensor_shapes(self.checkpoints.path(step) / MODEL)
            except ArtifactError as error:
                damaged.append(_problem(error))
            else:
                sound.append(step)
        return sound, damaged

    def averaged_steps(self, state: TrainingState) -> list[int]:
        """Lists the checkpoints whose mean is the final model; empty if it is not a mean."""
        match self._config.average:
            case "last":
                return self._last_steps(state, self._config.average_checkpoints)
            case "best":
                return sorted(self._best_steps(state, self._config.average_checkpoints))
            case "ema" | "none":
                return []

    def _write_checkpoint(self, state: TrainingState, groups: Sequence[dict[str, Tensor]]) -> None:
        """Writes a checkpoint. If the step already has one, only its counters change."""
        # So it is never removed to make place for another, which a kill in between would lose.
        if self.checkpoints.is_sound(state.step):
            self.checkpoints.save_state(state)
            return
        self.checkpoints.save(state, *groups)

    def _due_steps(self) -> list[int]:
        """The checkpoints that every run has, and the initial weights, if one went back to them."""
        return [step for step in self.checkpoints.steps() if not step or self.is_due(step)]

    def _last_steps(self, state: TrainingState, n_steps: int) -> list[int]:
        """The last checkpoints, without those that only a stopped run has: they leave no trace."""
        steps = self.checkpoints.steps()
        return [step for step in steps if self.is_due(step) or step == state.step][-n_steps:]

    def _best_steps(self, state: TrainingState, n_steps: int) -> list[int]:
        if self._validation is None:
            return []
        there = self.checkpoints.steps()
        return [step for step in state.best_steps(self._validation) if step in there][:n_steps]

    def _restore(
        self, step: int, fingerprints: list[str], names: Sequence[str] = ()
    ) -> TrainingState:
        path = self.checkpoints.path(step)
        state = self.checkpoints.load_state(step)
        weights, tensors = self.checkpoints.load_tensors(step, self._device)
        averages = (
            {} if self._average is None else self.checkpoints.load_average(step, self._device)
        )
        check_data(state, fingerprints, names or (str(path),))
        try:
            self._processes.load_weights(self._model, weights)
            if state.step:  # before the first step an optimizer has no state
                self._processes.load_optimizer(self._model, self._optimizer, tensors)
            else:
                self._optimizer.state.clear()
            restore_generators(tensors, self._device)
            if self._memory is not None and state.step:
                self._memory.restore(tensors, state.position)
            if self._average is not None:
                self._average.load(averages)
        except (KeyError, RuntimeError) as error:
            problem = str(error).splitlines()[0]
            raise ArtifactError(f"{path}: is damaged ({problem}); use another checkpoint") from None
        return state


def _fulfill(writing: Future[Written], write: Callable[[], Written]) -> None:
    """Writes; result or error are for whoever waits for them."""
    try:
        writing.set_result(write())
    except BaseException as failed:  # noqa: BLE001 - raised where it is waited for
        writing.set_exception(failed)


@atexit.register
def _leave_unfinished() -> None:
    """Ends a process that still writes, as after a second Ctrl-C."""
    # Python would end the thread where it comes back from a library, which aborts the process
    if any(thread.name == WRITER for thread in threading.enumerate()):
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(128 + signal.SIGINT)


def check_data(state: TrainingState, fingerprints: Sequence[str], names: Sequence[str]) -> None:
    """Checks that a run has the data it began with; `names` are those of its corpora."""
    if state.fingerprints == fingerprints:
        return
    pairs = zip(names, state.fingerprints, fingerprints, strict=False)
    changed = [name for name, old, new in pairs if old != new]
    raise DataError.of(
        "{}: the data have changed since the run began; "
        "restore the old data, or start over with {fresh}",
        "; ".join(changed) or names[0],
    )


def _problem(error: ArtifactError) -> str:
    """The first part of a message, without its cure: another checkpoint has been taken."""
    return str(error).partition("; ")[0]


BACK_OFF = 0.5
"""Factor of the learning rate for each return."""


def roll_back(
    saver: RunSaver, state: TrainingState, cause: Diverged, max_rollbacks: int
) -> TrainingState:
    """Brings model, optimizer and generators back to the last good checkpoint."""
    back = saver.go_back(cause.last_good_step, state.fingerprints)
    if rollbacks_in_a_row(state.rollbacks, back.step) >= max_rollbacks:
        again = f", {max_rollbacks} times in a row" if max_rollbacks > 1 else ""
        tried = f" after a rollback{again}" if max_rollbacks else ""
        raise TformerError(
            f"step {state.step}: {cause.problem}{tried}; lower training.learning_rate or "
            f"raise training.warmup_steps (the checkpoint of step {back.step} is kept)"
        )
    rollback = RolledBack(
        step=back.step,
        failed_step=state.step,
        problem=cause.problem,
        learning_rate_factor=state.learning_rate_factor * BACK_OFF,
    )
    window = dict(back.window)
    if window:
        window["start"] += state.seconds - back.seconds  # the time in between was lost, not used
    resumed = replace(
        back,
        position=state.position,
        seconds=state.seconds,
        window=window,
        tokens_per_batch=state.tokens_per_batch,
        rollbacks=[*state.rollbacks, rollback],
        **{condition: getattr(state, condition) for condition in CONDITIONS},
    )
    saver.save_rollback(resumed)
    return resumed


def rollbacks_in_a_row(rollbacks: Sequence[RolledBack], step: int) -> int:
    """Counts the last returns between which no checkpoint came beyond the step that had failed."""
    n_rollbacks = 0
    for earlier in reversed(rollbacks):
        if step > earlier.failed_step:
            break
        n_rollbacks += 1
        step = earlier.step
    return n_rollbacks
