"""Options of `train`: changes to the recipe, processes and machines, the kind of run."""

import json
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tformer_cli.cli.options import (
    DeviceOption,
    ThreadsOption,
    TrainingSeedOption,
    complete_keys,
    complete_recipes,
    option_field,
)
from tformer_cli.cli.streams import is_live, note
from tformer_cli.errors import UsageError
from tformer_cli.settings import Option

if TYPE_CHECKING:
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.processes.launch import Group

RecipeArgument = Annotated[
    str,
    Option(
        "TOML file, or the name of a shipped recipe; `tformer recipes` lists them.",
        metavar="RECIPE",
        complete=complete_recipes,
        role="reads_file",
        is_argument=True,
    ),
]


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """Changes to the recipe."""

    overrides: list[str] | None = option_field(
        None,
        "Override a key of the recipe, such as training.learning_rate=1e-3. Repeatable.",
        "--set",
        metavar="KEY=VALUE",
        complete=complete_keys,
    )
    start: Path | None = option_field(
        None,
        "Start from the weights of this model, and keep its shape and tokenizer.",
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

    def load(self, name: str, run: Path, *, fresh: bool, quiet: bool) -> "Recipe":
        """Reads a recipe with these changes, and imports the model that it starts from."""
        from tformer_cli.recipe import load_recipe
        from tformer_cli.workflows.training.start import completion

        precision = None if self.precision == "auto" else self.precision
        minutes = None if self.max_time is None else parse_minutes(self.max_time)
        changes = {
            "model.from": ("--from", None if self.start is None else json.dumps(str(self.start))),
            "training.max_steps": ("--max-steps", self.max_steps),
            "training.max_epochs": ("--max-epochs", self.max_epochs),
            "training.max_minutes": ("--max-time", minutes),
            "training.seed": ("--seed", self.seed),
            "training.precision": ("--precision", precision),
        }
        given = [f"{key}={value}" for key, (_, value) in changes.items() if value is not None]
        options = {key: name for key, (name, value) in changes.items() if value is not None}
        overrides = self.overrides or []
        kept = {override.partition("=")[0].strip() for override in overrides}
        complete = completion(
            run,
            partial(note, quiet=quiet),
            fresh=fresh,
            kept=None if self.start is None else kept,
        )
        return load_recipe(name, [*overrides, *given], complete, options)


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
        """Reads --processes, --nodes and --meet; None if this process trains alone."""
        from tformer_cli.training.processes.launch import Group, Launch, launched

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

    @property
    def trains(self) -> bool:
        """True if a model is trained and kept."""
        return not self.dry_run and self.profile is None

    def check(self, run: Path, group: "Group | None", *, may_ask: bool) -> None:
        """Checks that the options fit, and asks before a run is removed."""
        if self.dry_run and self.profile is not None:
            raise UsageError("--dry-run, --profile: exclude each other; omit one of the two")
        if self.fresh and group is not None and group.max_machines > 1:
            raise UsageError("--fresh, --nodes: exclude each other; name another directory with -o")
        if self.fresh and self.trains and may_ask and not self.yes:
            _ask_before_removing(run)


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


def _ask_before_removing(run: Path) -> None:
    from tformer_cli.training.processes.launch import launched
    from tformer_cli.workflows.train import has_model

    if not has_model(run):
        return
    if launched().world_size > 1 or not (sys.stdin.isatty() and is_live()):
        raise UsageError(f"--fresh: would remove the run in {run}; add --yes to agree")
    if not typer.confirm(f"Remove the run in {run} and start over?", err=True):
        raise UsageError(f"{run}: nothing was removed; use another directory with -o")
