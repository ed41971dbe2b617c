"""`tformer distill`: a teacher and a recipe in, a small student and a report out."""

import json
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.commands.train import RECIPE, naming_recipe
from tformer_cli.cli.commands.train_options import RecipeOptions, ask_before_removing
from tformer_cli.cli.format_choice import text_or_json
from tformer_cli.cli.jobs import show_times
from tformer_cli.cli.options import (
    DeviceOption,
    QuietOption,
    ThreadsOption,
    option_field,
    prepare_torch,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import note, stdout_console, write_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tformer_cli.artifacts.job_file import Spent
    from tformer_cli.kinds.kind import Progress
    from tformer_cli.plugins.corpora_tools.distill.report import DistillationReport
    from tformer_cli.plugins.corpora_tools.distill.stages import Stage, State
    from tformer_cli.recipe import Recipe
    from tformer_cli.trainer.events import TrainingObserver


def distill(
    recipe: str = RECIPE,
    *,
    changes: RecipeOptions,
    output: Path | None = option_field(
        None,
        "Directory to write: translations, student and report.",
        "-o",
        shown="runs/RECIPE",
        role="adds_files",
    ),
    fresh: bool = option_field(False, "Delete an earlier distillation in DIR and start over."),
    yes: bool = option_field(False, "Do not ask before --fresh deletes it.", "-y"),
    dry_run: bool = option_field(False, "Show each stage and what it would do; do nothing."),
    output_format: str = text_or_json("Tables, or the report as a JSON object."),
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Train a small student on a teacher's translations.

    A report compares the two in size, speed and quality; DIR/report shows it as a page and as JSON.
    The recipe is a `tformer train` recipe with a [distillation] table; see `tformer guide
    distilling`. Run the same command again to resume; unchanged stages are skipped.

    Examples:
        tformer distill multi30k-en-de-student --dry-run
        tformer distill my.toml -o runs/small
        tformer distill my.toml -o runs/small --set distillation.teacher_n_best=1 --max-time 20m
    """
    from tformer_cli.plugins.corpora_tools.distill import distill as workflow
    from tformer_cli.plugins.corpora_tools.distill.setup import STUDENT, Setup

    directory = output or Path("runs") / Path(recipe).stem
    chosen = changes.load(recipe, directory / STUDENT, fresh=fresh, quiet=quiet)
    setup = Setup(
        recipe=chosen,
        directory=directory,
        device=device,
        threads=threads,
        display=TerminalDisplay(quiet=quiet),
        before_torch=partial(prepare_torch, threads),
    )
    with naming_recipe(recipe, "data.", "distillation."):
        if dry_run:
            show_plan(directory, *workflow.plan_distillation(setup))
            return
        # Asks only where there is something to lose
        if fresh and not yes and workflow.has_distillation(directory):
            ask_before_removing("distillation", directory)
        report = workflow.distill(setup, fresh=fresh)
    if output_format == "json":
        write_line(json.dumps(asdict(report), ensure_ascii=False))
    else:
        _show_report(report, directory, quiet=quiet)


def _show_report(report: "DistillationReport", directory: Path, *, quiet: bool) -> None:
    from tformer_cli.plugins.corpora_tools.distill.report import report_document
    from tformer_cli.show.terminal import show_document

    show_document(stdout_console(), report_document(report))
    note(f"{directory / 'report' / 'report.html'} shows it as a page", quiet=quiet)


class TerminalDisplay:
    """Shows stages, lines and trainings on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def stage(self, stage: "Stage", state: "State") -> None:
        how = "" if state.is_first else f"; {state.value}"
        note(f"{stage.name}: {stage.what}{how}", quiet=self._quiet)

    def say(self, text: str) -> None:
        note(text, quiet=self._quiet)

    @contextmanager
    def lines(self, what: str, total: int | None) -> "Iterator[Callable[[int], None]]":
        with line_progress(total, what, quiet=self._quiet) as progress:
            yield progress.update

    def times(self, spent: "Sequence[Spent]") -> None:
        show_times(spent, quiet=self._quiet)

    @contextmanager
    def training(
        self, recipe: "Recipe"
    ) -> "Iterator[tuple[Sequence[TrainingObserver], Progress | None]]":
        """Shows a training as `tformer train` does."""
        from tformer_cli.cli.commands.training_progress import training_progress
        from tformer_cli.kinds import training_of

        with training_progress(training_of(recipe).examples, quiet=self._quiet) as view:
            yield [view], view.prepare


def show_plan(directory: Path, stages: "Sequence[tuple[Stage, State]]", n_parameters: int) -> None:
    for stage, state in stages:
        write_line(f"{stage.name}: {stage.what} -> {directory / stage.place}; {state.value}")
    megabytes = n_parameters / 1e6
    write_line(f"student: {n_parameters:,} parameters, about {megabytes:.1f} MB with int8 weights")
