"""`tformer train`: a recipe in, a model directory out."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tformer_cli.cli.completion import complete_keys, complete_recipes
from tformer_cli.cli.console import is_live, note, warn, write_line
from tformer_cli.cli.help_screen import MACHINE
from tformer_cli.cli.options import (
    DeviceOption,
    PrecisionOption,
    QuietOption,
    ThreadsOption,
    TrainingSeedOption,
)
from tformer_cli.cli.options import PrecisionChoice as Precision
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.errors import AnotherProcessFailed, DataError, Interrupted, UsageError
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.launch import Group

DIAGNOSIS = "Diagnosis"
"""The panel of options that look at a training."""


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="TOML file, or the name of a shipped recipe; `tformer recipes` lists them.",
            autocompletion=complete_recipes,
        ),
        PathRole.reads_file,
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="RUN",
            help="Run directory to write, which is a model directory.",
            show_default="runs/RECIPE",
        ),
        PathRole.writes_run,
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a key of the recipe, such as training.learning_rate=1e-3. Repeatable.",
            autocompletion=complete_keys,
        ),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Stop after N steps.", show_default="the recipe's"),
    ] = None,
    max_epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Stop after N epochs, passes over the corpora.",
            show_default="the recipe's",
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Stop after this time: 90s, 10m, 1h30m; a bare number is minutes. Warm-up and "
            "decay are fitted to it.",
            show_default="the recipe's",
        ),
    ] = None,
    seed: TrainingSeedOption = None,
    precision: PrecisionOption = Precision.auto,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Train in N processes on this machine; a lost one is started again.",
            show_default="this one",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="MIN:MAX",
            help="Machines that train together; between MIN and MAX they "
            "may come and go. One number fixes it.",
            show_default="1",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    meet: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="One of the machines, where all of --nodes meet.",
            show_default="this machine",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete an earlier run in RUN and start over.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before --fresh deletes a run.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show the resolved recipe, the model's size and a sample batch; train nothing.",
        ),
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard",
            help="Also write TensorBoard events to RUN/tensorboard.",
            rich_help_panel=DIAGNOSIS,
        ),
    ] = False,
    profile: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Profile N steps and show where the time goes; keeps no model.",
            show_default="no profile",
            rich_help_panel=DIAGNOSIS,
        ),
    ] = None,
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
    if profile is not None:  # read when torch is loaded: its profiler would chat on stderr
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from tformer_cli.recipe import load_recipe
    from tformer_cli.training.launch import end_with_agent, launched, one_error_per_node

    place = launched()
    if place.agent:
        end_with_agent(place.agent)
    run = output or Path("runs") / Path(recipe).stem
    trains = not dry_run and profile is None
    with one_error_per_node():
        group = asked_group(processes, nodes, meet)
        limits = {
            "training.max_steps": max_steps,
            "training.max_epochs": max_epochs,
            "training.max_minutes": None if max_time is None else parse_minutes(max_time),
            "training.seed": seed,
            "training.precision": None if precision == Precision.auto else precision.value,
        }
        given = [f"{key}={value}" for key, value in limits.items() if value is not None]
        chosen = load_recipe(recipe, [*(overrides or []), *given])
        if dry_run and profile is not None:
            raise UsageError("--dry-run, --profile: exclude each other; omit one of the two")
        if fresh and group is not None and group.max_machines > 1:
            raise UsageError("--fresh, --nodes: exclude each other; name another directory with -o")
        if fresh and trains and not (yes or place.agent):
            _ask_before_removing(run)
    if group is not None and trains and not place.agent:
        run_processes(group, run, quiet=quiet)
        return
    is_first = place.rank == 0
    with _naming_recipe(recipe), _leaving_words_to(place.agent):
        if trains:
            run_training(
                chosen,
                run,
                device=device,
                threads=threads,
                fresh=fresh and not place.resumes,
                quiet=quiet or not is_first,
                tensorboard=tensorboard,
                is_shared=group is not None and group.max_machines > group.min_machines,
            )
        if not is_first:
            return
        if dry_run:
            show_plan(chosen, device=device, threads=threads)
        elif profile is not None:
            show_profile(chosen, profile, device=device, threads=threads, quiet=quiet)
        else:
            write_line(str(run))


def asked_group(processes: int | None, nodes: str | None, meet: str | None) -> "Group | None":
    """Reads --processes, --nodes and --meet; None if this process is to train alone.

    Raises:
        UsageError: if they make no sense, or torchrun has started this process already.
    """
    from tformer_cli.training.launch import Group, Launch, launched

    place = launched()
    if processes is None and nodes is None and meet is None:
        return None
    if place != Launch() and not place.agent:
        raise UsageError("--processes: torchrun has started this process; use one of the two")
    match = re.fullmatch(r"([1-9]\d*)(?::([1-9]\d*))?", nodes or "1")
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise UsageError(f'--nodes: "{nodes}" is not MIN or MIN:MAX; write 2 or 1:4')
    if (nodes is None) != (meet is None):
        given, missing = ("--nodes", "--meet HOST:PORT") if nodes else ("--meet", "--nodes MIN:MAX")
        raise UsageError(f"{given}: {missing} is missing; give both, the same on all machines")
    if meet is not None and not re.fullmatch(r".+:\d{1,5}", meet):
        raise UsageError(f'--meet: "{meet}" is not HOST:PORT; write one such as node1:29500')
    return Group(
        n_processes=processes or 1,
        min_machines=int(match[1]),
        max_machines=int(match[2] or match[1]),
        meeting_point=meet or "",
    )


def run_processes(group: "Group", run: Path, *, quiet: bool) -> None:
    """Trains in several processes, which are this command again."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # of torch's sockets
    from tformer_cli.training.agent import run_group
    from tformer_cli.workflows.train import RECIPE

    run_group(group, sys.argv[1:], run / RECIPE, partial(note, quiet=quiet))


@contextmanager
def _leaving_words_to(agent: int) -> Iterator[None]:
    """Makes a note of a stop: the agent also stops its processes to start them anew."""
    try:
        yield
    except Interrupted as error:
        if not agent:
            raise
        note(str(error))
        raise AnotherProcessFailed(error.exit_status) from error


@contextmanager
def _naming_recipe(name: str) -> Iterator[None]:
    """Puts the recipe's file before what is wrong with the data that one of its keys names."""
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
    threads: int,
    fresh: bool,
    quiet: bool,
    tensorboard: bool = False,
    is_shared: bool = False,
) -> None:
    """Trains with progress on stderr."""
    from tformer_cli.cli.commands.training_progress import training_progress
    from tformer_cli.workflows import train as workflow

    with training_progress(quiet=quiet) as view:
        result = workflow.train(
            recipe,
            run,
            device=device,
            threads=threads,
            fresh=fresh,
            observers=[view],
            progress=view.prepare,
            tensorboard=tensorboard,
            is_shared=is_shared,
        )
    if result.n_looks:
        note(
            f"{run}: recorded the heads {count_of(result.n_looks, 'time')} in "
            f"{result.seconds_of_looks:.1f} s; see `tformer inspect-heads {run} --over-time`",
            quiet=quiet,
        )
    if result.was_finished:
        reason = result.state.reason
        note(f"{run} is finished: {reason} (step {result.state.step}).", quiet=quiet)


def parse_minutes(text: str) -> float:
    """Reads a duration such as 90s, 10m, 1h30m or 2h; a bare number is minutes.

    Raises:
        UsageError: if it is not a duration.
    """
    match = re.fullmatch(
        r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)(?:m|$))?(?:(\d+(?:\.\d+)?)s)?", text
    )
    if not text or match is None or not any(match.groups()):
        raise UsageError(f'--max-time: "{text}" is not a duration; write 90s, 10m or 1h30m')
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = 60 * hours + minutes + seconds / 60
    if total <= 0:
        raise UsageError(
            f'--max-time: must be above zero, but is "{text}"; write 90s, 10m or 1h30m'
        )
    return total


def show_plan(recipe: "Recipe", *, device: str, threads: int) -> None:
    """Prints the resolved recipe, the size of the model and what a batch will look like."""
    from tformer_cli.cli.commands.training_progress import visible
    from tformer_cli.training.launch import launched
    from tformer_cli.workflows.training.device import training_device
    from tformer_cli.workflows.training.plan import plan_training

    training_device(device, threads, launched())  # as unusable as it would be for the run
    plan = plan_training(recipe)
    for doubt in plan.doubts:
        warn(doubt)
    write_line(recipe.to_toml())
    for line in plan.lines():
        write_line(f"# {visible(line, longest=1000)}")


def show_profile(recipe: "Recipe", n_steps: int, *, device: str, threads: int, quiet: bool) -> None:
    """Prints where the time of some steps goes."""
    from tformer_cli.cli.commands.training_progress import training_progress
    from tformer_cli.workflows.training.profile import profile_training

    with training_progress(quiet=quiet) as view:
        profile = profile_training(
            recipe, n_steps, device=device, threads=threads, progress=view.prepare
        )
    for line in profile.lines():
        write_line(line)


def _ask_before_removing(run: Path) -> None:
    from tformer_cli.training.launch import launched
    from tformer_cli.workflows.train import has_model

    if not has_model(run):
        return
    if launched().world_size > 1 or not (sys.stdin.isatty() and is_live()):
        raise UsageError(f"--fresh: would remove the run in {run}; add --yes to agree")
    if not typer.confirm(f"Remove the run in {run} and start over?", err=True):
        raise UsageError(f"{run}: nothing was removed; use another directory with -o")
