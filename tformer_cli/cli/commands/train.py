"""`tformer train`: a recipe or two aligned files in, a model directory out."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.commands.train_options import ProcessOptions, RecipeOptions, RunOptions
from tformer_cli.cli.format_choice import write_result
from tformer_cli.cli.options import (
    QuietOption,
    argument,
    complete_recipes,
    prepare_torch,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    note,
    results,
    warn,
    write_line,
)
from tformer_cli.errors import AnotherProcessFailed, DataError, Interrupted, RecipeError, UsageError
from tformer_cli.sockets import load_place
from tformer_cli.wording import count_of, visible

if TYPE_CHECKING:
    from tformer_cli.inspect.views.corpus import AlignmentScore
    from tformer_cli.plugins.corpora_tools.commands.train_text import TextRun
    from tformer_cli.plugins.corpora_tools.seeds import SeedReport
    from tformer_cli.recipe import Recipe
    from tformer_cli.trainer.processes.launch import Group

SEEDS = "tformer_cli.plugins.corpora_tools.seeds"
RECIPE = argument(
    "RECIPE",
    "A TOML file or the name of a shipped recipe; `tformer recipes` lists them.",
    complete=complete_recipes,
    role="reads_file",
)
RECIPE_OR_SOURCE = argument(
    "RECIPE|SOURCE",
    "A TOML file or the name of a shipped recipe (`tformer recipes` lists them); or your source "
    "text, one sentence per line, or a .tsv of pairs, for which tformer chooses a recipe.",
    complete=complete_recipes,
    role="reads_file",
)
TARGET = argument(
    "TARGET",
    "Translation of SOURCE, line by line; or a label for each line, to train a classifier.",
    default=None,
    shown="none",
    role="reads_file",
)


def train(
    recipe: str = RECIPE_OR_SOURCE,
    target: str | None = TARGET,
    *,
    changes: RecipeOptions,
    processes: ProcessOptions,
    kind: RunOptions,
    quiet: QuietOption = False,
) -> None:
    """Train a model from a recipe or two aligned files, or resume a run.

    With SOURCE and TARGET, tformer splits off validation and test sets without near copies of
    training pairs (RUN/data), and writes a recipe suited to the size of the text and the limits of
    the run (RUN/chosen.toml). Run the same command again to resume; on the CPU the result is bit
    for bit the same as without the interruption. Ctrl-C and SIGTERM finish the step and save a
    checkpoint. Limits such as --max-steps are part of the recipe: to change one, start a new run.

    Examples:
        tformer train quickstart --max-time 5m -o runs/first
        tformer train train.en train.de -o runs/mine --max-time 30m
        tformer recipes copy template -o my.toml
        tformer train my.toml --dry-run
        tformer train my.toml -o runs/mine --set training.learning_rate=1e-3
    """
    if kind.profile is not None:  # read when torch is loaded: its profiler would chat on stderr
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from tformer_cli.trainer.processes.launch import end_with_agent, one_error_per_node, read_launch

    place = read_launch()
    if place.agent:
        # Else the processes of a killed agent train on
        end_with_agent(place.agent)
    run = kind.output or Path("runs") / Path(recipe).stem
    # The restart of a lost process resumes, though the command says --fresh
    fresh = kind.fresh and not place.resumes
    with one_error_per_node():
        group = processes.group()
        recipes, own = _prepare_recipes(
            (recipe, target),
            run,
            changes,
            kind,
            group,
            processes,
            fresh=fresh,
            quiet=quiet,
        )
    if group is not None and kind.trains and not place.agent:
        run_processes(group, run, quiet=quiet)
        return
    with one_error_per_node():  # all processes would say the same of a wrong --threads
        prepare_torch(processes.threads)
    named = own.name if own is not None and kind.trains else recipe
    with naming_recipe(named, "data."), _reporting_stops_to(place.agent):
        if not kind.trains:
            chosen = next(iter(recipes.values()))
            _show(
                chosen, own.sample_recipe(chosen) if own else chosen, kind, processes, quiet=quiet
            )
            return
        for directory, recipe_of_run in recipes.items():
            first = next(iter(recipes))
            if kind.seeds:
                note(f"{directory}: seed {recipe_of_run.training.seed}", quiet=quiet)
            if directory != first:
                limit_steps = load_place(f"{SEEDS}:limit_steps")
                recipe_of_run = limit_steps(recipe_of_run, directory, first)
            run_training(
                recipe_of_run,
                directory,
                device=processes.device,
                fresh=fresh,
                # All processes do the same steps: one of them reports
                quiet=quiet or place.rank > 0,
                tensorboard=kind.tensorboard,
                is_shared=group is not None and group.max_machines > group.min_machines,
            )
        if not place.rank:  # stdout gets the result once
            _write_result(recipes, run, own, processes.device, quiet=quiet)


def _prepare_recipes(
    files: tuple[str, str | None],
    run: Path,
    changes: RecipeOptions,
    kind: RunOptions,
    group: "Group | None",
    processes: ProcessOptions,
    *,
    fresh: bool,
    quiet: bool,
) -> "tuple[dict[Path, Recipe], TextRun | None]":
    """Reads the recipe of each run, or chooses it for a text and holds pairs of that out."""
    from tformer_cli.trainer.processes.launch import read_launch

    runs = kind.runs(run, changes, group)
    own = changes.own_text(files, run, runs, processes=processes, fresh=fresh)
    name, text = (files[0], None) if own is None else (own.name, own.chosen.text)
    recipes = {
        # Notes on one run apply to the others
        directory: options.load(name, directory, fresh=fresh, quiet=quiet or number > 0, text=text)
        for number, (directory, options) in enumerate(runs.items())
    }
    is_first = not read_launch().agent
    for directory, recipe in recipes.items():
        kind.check(directory, group, may_ask=is_first)
        if kind.seeds and kind.trains and own is None and not recipe.data.valid:
            raise UsageError("--seeds: comparing the runs needs data.valid in the recipe")
    # The processes of an agent find what it has written
    if own is not None and is_first:
        if kind.trains:
            own.check_place()
        own.explain(quiet=quiet)
        if kind.trains:
            own.write(quiet=quiet)
    return recipes, own


def _show(
    recipe: "Recipe",
    sampled: "Recipe",
    kind: RunOptions,
    processes: ProcessOptions,
    *,
    quiet: bool,
) -> None:
    """Shows what a run would be, or where its time goes."""
    from tformer_cli.trainer.processes.launch import read_launch

    if read_launch().rank:
        return
    if kind.profile is None:
        show_plan(recipe, sampled, device=processes.device)
    else:
        show_profile(sampled, kind.profile, device=processes.device, quiet=quiet)


def _write_result(
    recipes: "dict[Path, Recipe]", run: Path, own: "TextRun | None", device: str, *, quiet: bool
) -> None:
    """Names the run, which a script reads, or reports the scores of several seeds."""
    if len(recipes) == 1:
        if own is not None:
            note(own.test_command(run), quiet=quiet)
        write_line(str(run))
        return

    report: SeedReport = load_place(f"{SEEDS}:report_seeds")(
        next(iter(recipes.values())),
        list(recipes),
        run,
        None if own is None else own.test,
        tell=partial(note, quiet=quiet),
        warn=warn,
        device=device,
    )
    with results(STANDARD_STREAM) as stream:
        write_result(stream, STANDARD_STREAM, "text", report.record, report.document)
    note(load_place(f"{SEEDS}:LEGEND"), quiet=quiet)


def run_processes(group: "Group", run: Path, *, quiet: bool) -> None:
    """Trains in several processes, which are this command again."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # of sockets and gloo
    from tformer_cli.recipe import RECIPE
    from tformer_cli.trainer.processes.agent import run_group

    run_group(group, sys.argv[1:], run / RECIPE, partial(note, quiet=quiet))


@contextmanager
def _reporting_stops_to(agent: int) -> Iterator[None]:
    """Reports a stop as a note, since the agent also stops its processes to restart them."""
    try:
        yield
    except Interrupted as error:
        if not agent:
            raise
        note(str(error))
        raise AnotherProcessFailed(error.exit_status) from error


@contextmanager
def naming_recipe(name: str, *tables: str) -> Iterator[None]:
    """Names the recipe before an error about a key of these tables."""
    from tformer_cli.recipe import find_recipe

    try:
        yield
    except (DataError, RecipeError) as error:
        if not str(error).startswith(tables):
            raise
        # Keep the type, since the exit status depends on it
        raise type(error)(f"{find_recipe(name)}: {error}") from error


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
        note(describe_alignment(result.aligned, run), quiet=quiet)
    if result.calibration:
        note(f"{run}: {result.calibration}", quiet=quiet)
    if result.was_finished:
        reason = result.state.reason
        note(f"{run} is finished: {reason} (step {result.state.step}).", quiet=quiet)


def describe_alignment(score: "AlignmentScore", run: Path) -> str:
    error = 100 * score.counts.error_rate
    return (
        f"{score.name} aligns words best of all heads and layers: alignment error rate {error:.1f} "
        f"on held-out pairs; stored in {run}"
    )


def show_plan(recipe: "Recipe", sampled: "Recipe", *, device: str) -> None:
    """Prints the resolved recipe, the size of the model and a batch of the same with its data."""
    from tformer_cli.train.plan import plan_training
    from tformer_cli.trainer.hardware import training_device
    from tformer_cli.trainer.processes.launch import read_launch

    training_device(device, read_launch())  # as unusable as it would be for the run
    plan = plan_training(sampled)
    for doubt in plan.doubts:
        warn(doubt)
    write_line(recipe.to_toml())
    for line in plan.lines():
        # As comments of TOML: the whole output is a recipe to save and train
        write_line(f"# {visible(line, 1000)}")


def show_profile(recipe: "Recipe", n_steps: int, *, device: str, quiet: bool) -> None:
    from tformer_cli.cli.commands.training_progress import training_progress
    from tformer_cli.kinds import training_of
    from tformer_cli.train.plan import profile_training

    with training_progress(training_of(recipe).examples, quiet=quiet) as view:
        profile = profile_training(recipe, n_steps, device=device, progress=view.prepare)
    for line in profile.lines():
        write_line(line)
