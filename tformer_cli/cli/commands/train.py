"""`tformer train`: a recipe in, a model directory out."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.commands.train_options import (
    ProcessOptions,
    RecipeArgument,
    RecipeOptions,
    RunOptions,
)
from tformer_cli.cli.options import QuietOption, prepare_torch, takes_groups
from tformer_cli.cli.streams import note, warn, write_line
from tformer_cli.errors import AnotherProcessFailed, DataError, Interrupted
from tformer_cli.wording import count_of, visible

if TYPE_CHECKING:
    from tformer_cli.inspect.views.corpus import AlignmentScore
    from tformer_cli.recipe import Recipe
    from tformer_cli.trainer.processes.launch import Group


@takes_groups
def train(
    recipe: RecipeArgument,
    *,
    changes: RecipeOptions,
    processes: ProcessOptions,
    kind: RunOptions,
    quiet: QuietOption = False,
) -> None:
    """Train a model from a recipe, or resume a run.

    The same command again resumes; on the CPU the result is bit for bit that of an uninterrupted
    run. Ctrl-C and SIGTERM finish the step and save a checkpoint.

    Examples:
        tformer train quickstart --max-time 5m -o runs/first
        tformer recipes copy template -o my.toml
        tformer train my.toml --dry-run
        tformer train my.toml -o runs/mine --set training.learning_rate=1e-3
    """
    if kind.profile is not None:  # read when torch is loaded: its profiler would chat on stderr
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from tformer_cli.trainer.processes.launch import end_with_agent, launched, one_error_per_node

    place = launched()
    if place.agent:
        end_with_agent(place.agent)
    run = kind.output or Path("runs") / Path(recipe).stem
    with one_error_per_node():
        group = processes.group()
        chosen = changes.load(recipe, run, fresh=kind.fresh and not place.resumes, quiet=quiet)
        kind.check(run, group, may_ask=not place.agent)
    if group is not None and kind.trains and not place.agent:
        run_processes(group, run, quiet=quiet)
        return
    is_first = place.rank == 0
    device = processes.device
    with one_error_per_node():
        prepare_torch(processes.threads)
    with _naming_recipe(recipe), _reporting_stops_to(place.agent):
        if kind.trains:
            run_training(
                chosen,
                run,
                device=device,
                # The restart of a lost process resumes, though the command says --fresh
                fresh=kind.fresh and not place.resumes,
                quiet=quiet or not is_first,
                tensorboard=kind.tensorboard,
                is_shared=group is not None and group.max_machines > group.min_machines,
            )
        if not is_first:
            return
        if kind.dry_run:
            show_plan(chosen, device=device)
        elif kind.profile is not None:
            show_profile(chosen, kind.profile, device=device, quiet=quiet)
        else:
            write_line(str(run))


def run_processes(group: "Group", run: Path, *, quiet: bool) -> None:
    """Trains in several processes, which are this command again."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # of torch's sockets
    from tformer_cli.recipe import RECIPE
    from tformer_cli.trainer.processes.agent import run_group

    run_group(group, sys.argv[1:], run / RECIPE, partial(note, quiet=quiet))


@contextmanager
def _reporting_stops_to(agent: int) -> Iterator[None]:
    """Turns a stop into a note: the agent also stops its processes to restart them."""
    try:
        yield
    except Interrupted as error:
        if not agent:
            raise
        note(str(error))
        raise AnotherProcessFailed(error.exit_status) from error


@contextmanager
def _naming_recipe(name: str) -> Iterator[None]:
    """Names the recipe before an error about the data of one of its keys."""
    from tformer_cli.recipe import find_recipe

    try:
        yield
    except DataError as error:
        if not str(error).startswith("data."):
            raise
        raise DataError(f"{find_recipe(name)}: {error}") from error


def run_training(
    recipe: "Recipe",
    run: Path,
    *,
    device: str,
    fresh: bool,
    quiet: bool,
    tensorboard: bool = False,
    is_shared: bool = False,
) -> None:
    from tformer_cli.cli.commands.training_progress import training_progress
    from tformer_cli.kinds import training_of
    from tformer_cli.train import train as workflow

    with training_progress(training_of(recipe).examples, quiet=quiet) as view:
        result = workflow.train(
            recipe,
            run,
            device=device,
            fresh=fresh,
            observers=[view],
            progress=view.prepare,
            tensorboard=tensorboard,
            is_shared=is_shared,
        )
    if result.n_inspections:
        note(
            f"{run}: recorded the heads {count_of(result.n_inspections, 'time')} in "
            f"{result.inspection_seconds:.1f} s; see `tformer inspect-heads {run} --over-time`",
            quiet=quiet,
        )
    if result.aligned is not None:
        note(aligned_said(result.aligned, run), quiet=quiet)
    if result.was_finished:
        reason = result.state.reason
        note(f"{run} is finished: {reason} (step {result.state.step}).", quiet=quiet)


def aligned_said(score: "AlignmentScore", run: Path) -> str:
    error = 100 * score.counts.error_rate
    return (
        f"{score.name} aligns words best of all heads and layers: alignment error rate {error:.1f} "
        f"on held-out pairs; stored in {run}"
    )


def show_plan(recipe: "Recipe", *, device: str) -> None:
    """Prints the resolved recipe, the size of the model and a sample batch."""
    from tformer_cli.train.device import training_device
    from tformer_cli.train.plan import plan_training
    from tformer_cli.trainer.processes.launch import launched

    training_device(device, launched())  # as unusable as it would be for the run
    plan = plan_training(recipe)
    for doubt in plan.doubts:
        warn(doubt)
    write_line(recipe.to_toml())
    for line in plan.lines():
        write_line(f"# {visible(line, 1000)}")


def show_profile(recipe: "Recipe", n_steps: int, *, device: str, quiet: bool) -> None:
    from tformer_cli.cli.commands.training_progress import training_progress
    from tformer_cli.kinds import training_of
    from tformer_cli.train.plan import profile_training

    with training_progress(training_of(recipe).examples, quiet=quiet) as view:
        profile = profile_training(recipe, n_steps, device=device, progress=view.prepare)
    for line in profile.lines():
        write_line(line)
