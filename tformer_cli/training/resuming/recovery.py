"""Going back to the last good checkpoint when a run has gone wrong.

Training continues from there with half the learning rate and behind the batches that led astray:
the same batches can be the cause, and after a spike in the loss, skipping them is what large runs
have found to work (Chowdhery et al. 2022, section 5.1). What happened is kept in the run's state,
and the checkpoint gone back to is rewritten with it at once: a run that is killed and resumed goes
the same way.
"""

from collections.abc import Sequence
from dataclasses import replace

from tformer_cli.errors import TformerError
from tformer_cli.training.events import RolledBack
from tformer_cli.training.resuming.saving import RunSaver
from tformer_cli.training.resuming.state import CONDITIONS, TrainingState
from tformer_cli.training.window import Diverged

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
