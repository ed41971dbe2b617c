"""`tformer train`: a recipe in, a model directory out."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from tformer_cli.cli.format_choice import write_result
from tformer_cli.cli.options import (
    DeviceOption,
    QuietOption,
    ThreadsOption,
    TrainingSeedOption,
    argument,
    complete_keys,
    complete_recipes,
    option_field,
    prepare_torch,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    is_live,
    note,
    results,
    warn,
    write_line,
)
from tformer_cli.errors import AnotherProcessFailed, DataError, Interrupted, RecipeError, UsageError
from tformer_cli.wording import count_of, visible

if TYPE_CHECKING:
    from tformer_cli.cli.commands.train_text import TextRun
    from tformer_cli.inspect.views.corpus import AlignmentScore
    from tformer_cli.recipe import Recipe
    from tformer_cli.trainer.processes.launch import Group

RECIPE = argument(
    "RECIPE",
    "TOML file, or the name of a shipped recipe; `tformer recipes` lists them.",
    complete=complete_recipes,
    role="reads_file",
)
RECIPE_OR_SOURCE = argument(
    "RECIPE|SOURCE",
    "TOML file, or the name of a shipped recipe (`tformer recipes` lists them); or your text in "
    "the source language, one sentence a line, or a .tsv of pairs: then the recipe is chosen.",
    complete=complete_recipes,
    role="reads_file",
)
TARGET = argument(
    "TARGET",
    "Its translation, a line for each line of SOURCE.",
    default=None,
    shown="none",
    role="reads_file",
)


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """Changes to the recipe: each is another way to write a `--set`."""

    overrides: list[str] | None = option_field(
        None,
        "Override a key of the recipe, such as training.learning_rate=1e-3. Repeatable.",
        "--set",
        metavar="KEY=VALUE",
        complete=complete_keys,
    )
    start: Path | None = option_field(
        None,
        "Start from the weights of this model, a directory or a name of `tformer models`, and keep "
        "its shape and tokenizer.",
        "--from",
        shown="random weights",
        metavar="MODEL",
        role="reads_directory",
    )
    max_steps: int | None = option_field(None, "Stop after N steps.", shown="the recipe's", min=1)
    max_epochs: int | None = option_field(
        None, "Stop after N epochs, passes over the corpora.", shown="the recipe's", min=1
    )
    max_time: str | None = option_field(
        None,
        "Stop after this time: 90s, 10m, 1h30m; a bare number is minutes. Warm-up and decay are "
        "fitted to it.",
        shown="the recipe's",
        metavar="TIME",
    )
    seed: TrainingSeedOption = None
    precision: Literal["auto", "float32", "bfloat16"] = option_field(
        "auto",
        "Precision to train in; bfloat16 is mixed precision. auto takes the recipe's.",
        panel="Machine",
    )

    @property
    def minutes(self) -> float | None:
        """The limit of `--max-time`."""
        return None if self.max_time is None else parse_minutes(self.max_time)

    @property
    def overridden(self) -> list[str]:
        """The keys that `--set` names."""
        return [override.partition("=")[0].strip() for override in self.overrides or ()]

    def own_text(
        self,
        files: tuple[str, str | None],
        run: Path,
        runs: Iterable[Path],
        *,
        device: str,
        fresh: bool,
    ) -> "TextRun | None":
        """Reads the text that the arguments name, and chooses a recipe; None: they name one."""
        from tformer_cli.cli.commands.train_text import text_run
        from tformer_cli.train.choose import Limits

        return text_run(
            files,
            run,
            runs,
            Limits(
                minutes=self.minutes or 0.0,
                steps=self.max_steps or 0,
                epochs=self.max_epochs or 0,
            ),
            device=device,
            fresh=fresh,
            fine_tunes=self.start is not None or "model.from" in self.overridden,
            overridden=self.overridden,
        )

    def load(
        self, name: str, run: Path, *, fresh: bool, quiet: bool, text: str | None = None
    ) -> "Recipe":
        """Reads a recipe with these changes, and imports the model that it starts from."""
        from tformer_cli.recipe import load_recipe
        from tformer_cli.train.start import completion

        minutes = self.minutes
        changes = {
            # --set reads TOML, where a string of JSON is a string, too
            "model.from": ("--from", self.start and json.dumps(str(self.start))),
            "training.max_steps": ("--max-steps", self.max_steps),
            "training.max_epochs": ("--max-epochs", self.max_epochs),
            "training.max_minutes": ("--max-time", minutes),
            "training.seed": ("--seed", self.seed),
            "training.precision": ("--precision", self.precision.replace("auto", "") or None),
        }
        given = {key: one for key, one in changes.items() if one[1] is not None}
        overrides = self.overrides or []
        # What the recipe says beside --from gives way to the model; what --set says does not
        kept = set(self.overridden)
        say = partial(note, quiet=quiet)
        complete = completion(run, say, fresh=fresh, kept=None if self.start is None else kept)
        overrides = [*overrides, *(f"{key}={value}" for key, (_, value) in given.items())]
        options = {key: one[0] for key, one in given.items()}
        return load_recipe(name, overrides, complete, options, text)


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """Device, processes and machines."""

    device: DeviceOption = "auto"
    threads: ThreadsOption = 0
    processes: int | None = option_field(
        None,
        "Train in N processes on this machine; a lost one is started again.",
        panel="Machine",
        shown="this one",
        min=1,
    )
    nodes: str | None = option_field(
        None,
        "Machines that train together; between MIN and MAX they may come and go. One number fixes "
        "it.",
        panel="Machine",
        shown="1",
        metavar="MIN:MAX",
    )
    meet: str | None = option_field(
        None,
        "One of the machines, where all of --nodes meet.",
        panel="Machine",
        shown="this machine",
        metavar="HOST:PORT",
    )

    def group(self) -> "Group | None":
        """None if this process trains alone."""
        from tformer_cli.trainer.processes.launch import Group, Launch, launched

        place = launched()
        nodes, meet = self.nodes, self.meet
        if self.processes is None and nodes is None and meet is None:
            return None
        if place != Launch() and not place.agent:
            raise UsageError("--processes: torchrun has started this process; use one of the two")
        match = re.fullmatch(r"([1-9]\d*)(?::([1-9]\d*))?", nodes or "1")
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f'--nodes: "{nodes}" is not MIN or MIN:MAX; write 2 or 1:4')
        if (nodes is None) != (meet is None):
            given, missing = (
                ("--nodes", "--meet HOST:PORT") if nodes else ("--meet", "--nodes MIN:MAX")
            )
            raise UsageError(f"{given}: {missing} is missing; give both, the same on all machines")
        port = re.fullmatch(r".+:(\d{1,5})", meet or "any:1")
        if port is None or not 0 < int(port[1]) < 1 << 16:
            raise UsageError(f'--meet: "{meet}" is not HOST:PORT; write one such as node1:29500')
        return Group(
            n_processes=self.processes or 1,
            min_machines=int(match[1]),
            max_machines=int(match[2] or match[1]),
            meeting_point=meet or "",
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The run directory and the kind of run: a new one, a dry one, one with a diagnosis."""

    output: Path | None = option_field(
        None,
        "Run directory to write, which is a model directory.",
        "-o",
        shown="runs/RECIPE",
        role="writes_run",
    )
    fresh: bool = option_field(False, "Delete an earlier run in RUN and start over.")
    yes: bool = option_field(False, "Do not ask before --fresh deletes a run.", "-y")
    dry_run: bool = option_field(
        False, "Show the resolved recipe, the model's size and a sample batch; train nothing."
    )
    seeds: str | None = option_field(
        None,
        "Train a run for each seed, RUN/seed-1 and so on, and report the mean and deviation of "
        "their scores, and tests between them.",
        panel="Machine",
        shown="one run",
        metavar="N,N",
    )
    tensorboard: bool = option_field(
        False, "Also write TensorBoard events to RUN/tensorboard.", panel="Diagnosis"
    )
    profile: int | None = option_field(
        None,
        "Profile N steps and show where the time goes; keeps no model.",
        panel="Diagnosis",
        shown="no profile",
        min=1,
    )

    def runs(
        self, run: Path, changes: RecipeOptions, group: "Group | None"
    ) -> dict[Path, RecipeOptions]:
        """The directory of each run, with its changes: one run, or one for each seed."""
        if self.seeds is None:
            return {run: changes}
        from tformer_cli.recipe import has_run
        from tformer_cli.trainer.processes.launch import launched

        seeds = [one.strip() for one in self.seeds.split(",")]
        are_numbers = all(one.isascii() and one.isdecimal() for one in seeds)
        if not are_numbers or len({*map(int, seeds)}) < max(2, len(seeds)):
            raise UsageError(f'--seeds: "{self.seeds}" are not several seeds; write 1,2,3')
        if changes.seed is not None:
            raise UsageError("--seed, --seeds: exclude each other; omit one of the two")
        # The runs follow each other, and a process that is lost would begin with the first again
        if group is not None or launched().world_size > 1:
            raise UsageError("--seeds: trains in one process; omit it, or train each --seed")
        if has_run(run):
            raise UsageError(f"--seeds: {run} holds a single run; name another directory")
        changed = {int(seed): replace(changes, seed=int(seed)) for seed in seeds}
        return {run / f"seed-{seed}": one for seed, one in changed.items()}

    @property
    def trains(self) -> bool:
        return not self.dry_run and self.profile is None

    def check(self, run: Path, group: "Group | None", *, may_ask: bool) -> None:
        if self.dry_run and self.profile is not None:
            raise UsageError("--dry-run, --profile: exclude each other; omit one of the two")
        if self.fresh and group is not None and group.max_machines > 1:
            raise UsageError("--fresh, --nodes: exclude each other; name another directory with -o")
        if self.fresh and self.trains and may_ask and not self.yes:
            from tformer_cli.train.train import has_model
            from tformer_cli.trainer.processes.launch import launched

            if has_model(run):
                # Of several processes on one terminal each would ask
                ask_before_removing("run", run, may_ask=launched().world_size == 1)


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

    Of SOURCE and TARGET, RUN/data gets a validation and a test set without near copies of training
    pairs, and RUN/chosen.toml the recipe, chosen by the size of the text and the limits of the run.
    The same command again resumes; on the CPU the result is bit for bit that of an uninterrupted
    run. Ctrl-C and SIGTERM finish the step and save a checkpoint. A limit such as --max-steps is a
    part of the recipe: with another one it is another run.

    Examples:
        tformer train quickstart --max-time 5m -o runs/first
        tformer train train.en train.de -o runs/mine --max-time 30m
        tformer recipes copy template -o my.toml
        tformer train my.toml --dry-run
        tformer train my.toml -o runs/mine --set training.learning_rate=1e-3
    """
    if kind.profile is not None:  # read when torch is loaded: its profiler would chat on stderr
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from tformer_cli.trainer.processes.launch import end_with_agent, launched, one_error_per_node

    place = launched()
    if place.agent:
        # Else the processes of a killed agent train on
        end_with_agent(place.agent)
    run = kind.output or Path("runs") / Path(recipe).stem
    # The restart of a lost process resumes, though the command says --fresh
    fresh = kind.fresh and not place.resumes
    with one_error_per_node():
        group = processes.group()
        recipes, own = _prepared(
            (recipe, target),
            run,
            changes,
            kind,
            group,
            device=processes.device,
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
            _show(chosen, own.sampled(chosen) if own else chosen, kind, processes, quiet=quiet)
            return
        for directory, one in recipes.items():
            if kind.seeds:
                note(f"{directory}: seed {one.training.seed}", quiet=quiet)
            run_training(
                one,
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


def _prepared(
    files: tuple[str, str | None],
    run: Path,
    changes: RecipeOptions,
    kind: RunOptions,
    group: "Group | None",
    *,
    device: str,
    fresh: bool,
    quiet: bool,
) -> "tuple[dict[Path, Recipe], TextRun | None]":
    """Reads the recipe of each run, or chooses it for a text and holds pairs of that out."""
    from tformer_cli.trainer.processes.launch import launched

    runs = kind.runs(run, changes, group)
    own = changes.own_text(files, run, runs, device=device, fresh=fresh)
    name, text = (files[0], None) if own is None else (own.name, own.chosen.text)
    recipes = {
        # What is said of one run holds for the others
        directory: one.load(name, directory, fresh=fresh, quiet=quiet or number > 0, text=text)
        for number, (directory, one) in enumerate(runs.items())
    }
    is_first = not launched().agent
    for directory, one in recipes.items():
        kind.check(directory, group, may_ask=is_first)
        if kind.seeds and kind.trains and own is None and not one.data.valid:
            raise UsageError("--seeds: the recipe needs data.valid, to compare the runs by")
    # The processes of an agent find what it has written
    if own is not None and is_first:
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
    from tformer_cli.trainer.processes.launch import launched

    if launched().rank:
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
    from tformer_cli.train.seeds import report_seeds

    found = report_seeds(
        next(iter(recipes.values())),
        list(recipes),
        run,
        None if own is None else own.test,
        tell=partial(note, quiet=quiet),
        device=device,
    )
    with results(STANDARD_STREAM) as stream:
        write_result(stream, STANDARD_STREAM, "text", found.record, found.document)


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
def naming_recipe(name: str, *tables: str) -> Iterator[None]:
    """Names the recipe before an error about a key of these tables."""
    from tformer_cli.recipe import find_recipe

    try:
        yield
    except (DataError, RecipeError) as error:
        if not str(error).startswith(tables):
            raise
        # Of the same type, on which the exit status depends
        raise type(error)(f"{find_recipe(name)}: {error}") from error


def ask_before_removing(what: str, place: Path, *, may_ask: bool = True) -> None:
    # In a script no one answers: there, only --yes agrees
    if not (may_ask and sys.stdin.isatty() and is_live()):
        raise UsageError(f"--fresh: would remove the {what} in {place}; add --yes to agree")
    # The question is no result, and so goes to stderr
    if not typer.confirm(f"Remove the {what} in {place} and start over?", err=True):
        raise UsageError(f"{place}: nothing was removed; use another directory with -o")


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


def show_plan(recipe: "Recipe", sampled: "Recipe", *, device: str) -> None:
    """Prints the resolved recipe, the size of the model and a batch of the same with its data."""
    from tformer_cli.train.plan import plan_training
    from tformer_cli.trainer.hardware import training_device
    from tformer_cli.trainer.processes.launch import launched

    training_device(device, launched())  # as unusable as it would be for the run
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


def parse_minutes(text: str) -> float:
    """Reads a duration such as 90s, 10m, 1h30m or 2h; a bare number is minutes."""
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
