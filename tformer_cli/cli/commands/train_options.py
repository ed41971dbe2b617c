"""Options of `tformer train`: changes to the recipe, processes, and the kind of run."""

import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from tformer_cli.cli.options import (
    DeviceOption,
    ThreadsOption,
    TrainingSeedOption,
    complete_keys,
    option_field,
)
from tformer_cli.cli.streams import is_live, note
from tformer_cli.errors import UsageError
from tformer_cli.sockets import load_place
from tformer_cli.wording import visible

if TYPE_CHECKING:
    from tformer_cli.plugins.corpora_tools.commands.train_text import TextRun
    from tformer_cli.recipe import Recipe
    from tformer_cli.trainer.processes.launch import Group

LARGEST_SEED = (1 << 63) - 1
"""The limit of training.seed; checked here so that the error names --seed."""


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
        "Start from the weights of this model (a directory or a name from `tformer models`), and "
        "keep its shape and tokenizer.",
        "--from",
        shown="random weights",
        metavar="MODEL",
        role="reads_directory",
    )
    max_steps: int | None = option_field(None, "Stop after N steps.", shown="the recipe's", min=1)
    max_epochs: int | None = option_field(
        None, "Stop after N epochs (passes over the corpora).", shown="the recipe's", min=1
    )
    max_time: str | None = option_field(
        None,
        "Stop after this time: 90s, 10m, 1h30m; a bare number is minutes. Warm-up and decay fit "
        "into it.",
        shown="the recipe's",
        metavar="TIME",
    )
    seed: TrainingSeedOption = None
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = option_field(
        "auto",
        "Precision to train in; bfloat16 is mixed precision. auto: the recipe's.",
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
        processes: "ProcessOptions",
        fresh: bool,
    ) -> "TextRun | None":
        """Reads the text that the arguments name, and chooses a recipe; None: they name one."""
        text_run: Callable[..., TextRun | None] = load_place(
            "tformer_cli.plugins.corpora_tools.commands.train_text:text_run"
        )
        return text_run(
            files,
            run,
            runs,
            self._all_overrides(self._of_options()),
            group=processes.group(),
            device=processes.device,
            threads=processes.threads,
            fresh=fresh,
            overridden=self.overridden,
        )

    def _of_options(self) -> dict[str, tuple[str, object]]:
        """The keys that options give, each with its option and the value."""
        changes = {
            # --set reads TOML, where a string of JSON is a string, too
            "model.from": ("--from", self.start and json.dumps(str(self.start))),
            "training.max_steps": ("--max-steps", self.max_steps),
            "training.max_epochs": ("--max-epochs", self.max_epochs),
            "training.max_minutes": ("--max-time", self.minutes),
            "training.seed": ("--seed", self.seed),
            "training.precision": ("--precision", self.precision.replace("auto", "") or None),
        }
        return {key: change for key, change in changes.items() if change[1] is not None}

    def _all_overrides(self, changes: dict[str, tuple[str, object]]) -> list[str]:
        """The overrides from `--set`, then those from options."""
        return [*(self.overrides or ()), *(f"{key}={value}" for key, (_, value) in changes.items())]

    def load(
        self, name: str, run: Path, *, fresh: bool, quiet: bool, text: str | None = None
    ) -> "Recipe":
        """Reads a recipe with these changes, and imports the model that it starts from."""
        from tformer_cli.recipe import load_recipe
        from tformer_cli.train.start import completion

        changes = self._of_options()
        # With --from, the model overrides the recipe's own keys, but not those of --set
        kept = set(self.overridden)
        say = partial(note, quiet=quiet)
        complete = completion(run, say, fresh=fresh, kept=None if self.start is None else kept)
        options = {key: option[0] for key, option in changes.items()}
        return load_recipe(name, self._all_overrides(changes), complete, options, text)


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """Device, processes and machines."""

    device: DeviceOption = "auto"
    threads: ThreadsOption = 0
    processes: int | None = option_field(
        None,
        "Train in N processes on this machine; a process that dies is restarted.",
        panel="Machine",
        shown="this one",
        min=1,
    )
    nodes: str | None = option_field(
        None,
        "Number of machines that train together: machines may join and leave between MIN and MAX; "
        "a single number is fixed.",
        panel="Machine",
        shown="1",
        metavar="MIN:MAX",
    )
    meet: str | None = option_field(
        None,
        "Address of one of the machines, where all machines of --nodes connect.",
        panel="Machine",
        shown="this machine",
        metavar="HOST:PORT",
    )

    def group(self) -> "Group | None":
        """None if only this process trains."""
        from tformer_cli.trainer.processes.launch import Group, Launch, read_launch

        place = read_launch()
        nodes, meet = self.nodes, self.meet
        if self.processes is None and nodes is None and meet is None:
            return None
        if place != Launch() and not place.agent:
            raise UsageError("--processes: torchrun has started this process; use one of the two")
        match = re.fullmatch(r"([1-9]\d*)(?::([1-9]\d*))?", nodes or "1")
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f'--nodes: "{nodes}" is not MIN or MIN:MAX; write 2 or 1:4')
        if (nodes is None) != (meet is None):
            option, missing = (
                ("--nodes", "--meet HOST:PORT") if nodes else ("--meet", "--nodes MIN:MAX")
            )
            raise UsageError(f"{option}: {missing} is missing; give both, the same on all machines")
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
        "Run directory to write; it is also a model directory.",
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
        "Train one run per seed (RUN/seed-1 and so on), and report the mean and standard "
        "deviation of their scores, and significance tests between them.",
        panel="Training",
        shown="one run",
        metavar="N,N",
    )
    tensorboard: bool = option_field(
        False, "Also write TensorBoard events to RUN/tensorboard.", panel="Diagnosis"
    )
    profile: int | None = option_field(
        None,
        "Profile N steps and show where the time goes; keep no model.",
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
        from tformer_cli.recipe import SEED_RUN, has_run, seed_run, seed_runs
        from tformer_cli.trainer.processes.launch import read_launch

        seeds = [seed.strip() for seed in self.seeds.split(",")]
        are_numbers = all(seed.isascii() and seed.isdecimal() for seed in seeds)
        # Count the digits first: Python refuses to parse thousands
        for seed in seeds if are_numbers else ():
            if len(seed) > len(str(LARGEST_SEED)) or int(seed) > LARGEST_SEED:
                raise UsageError(
                    f"--seeds: each must be below 2^63, but one is {visible(seed, 40)}"
                )
        if not are_numbers or len({*map(int, seeds)}) < max(2, len(seeds)):
            raise UsageError(
                f'--seeds: "{self.seeds}" is not a list of different seeds; write 1,2,3'
            )
        if changes.seed is not None:
            raise UsageError("--seed, --seeds: exclude each other; omit one of the two")
        # The runs follow each other, and a process that is lost would begin with the first again
        if group is not None or read_launch().world_size > 1:
            raise UsageError(
                "--seeds: only for training in one process; omit it, or train each --seed by itself"
            )
        if has_run(run):
            raise UsageError(f"--seeds: {run} holds a single run; name another directory")
        changed = {int(seed): replace(changes, seed=int(seed)) for seed in seeds}
        # The report of fewer runs would replace that of all of them
        there = [path.name.removeprefix(SEED_RUN) for path in seed_runs(run) if has_run(path)]
        if not {*map(int, there)} <= {*changed}:
            raise UsageError(
                f"--seeds: {run} has runs of {', '.join(there)}; name these seeds too (finished "
                "runs are skipped), or another directory with -o"
            )
        return {seed_run(run, seed): options for seed, options in changed.items()}

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
            from tformer_cli.trainer.processes.launch import read_launch

            if has_model(run):
                # Several processes on one terminal would each ask
                ask_before_removing("run", run, may_ask=read_launch().world_size == 1)


def ask_before_removing(what: str, place: Path, *, may_ask: bool = True) -> None:
    # In a script no one answers: there, only --yes agrees
    if not (may_ask and sys.stdin.isatty() and is_live()):
        raise UsageError(f"--fresh: would remove the {what} in {place}; add --yes to agree")
    # The question is no result, and so goes to stderr
    if not typer.confirm(f"Remove the {what} in {place} and start over?", err=True):
        raise UsageError(f"{place}: nothing was removed; use another directory with -o")


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
