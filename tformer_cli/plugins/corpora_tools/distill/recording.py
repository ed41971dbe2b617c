"""A display that also keeps the record of the job: how far it is, and where its time goes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tformer_cli.artifacts.job_file import Job, Spent
from tformer_cli.kinds.kind import Progress
from tformer_cli.plugins.corpora_tools.distill.setup import Display
from tformer_cli.plugins.corpora_tools.distill.stages import Stage, State
from tformer_cli.recipe import Recipe
from tformer_cli.runtime import Stopwatch
from tformer_cli.trainer.events import (
    RunStarted,
    TrainingEvent,
    TrainingObserver,
    ValidationReport,
)


class RecordingDisplay(Display):
    """Passes everything on to another display."""

    def __init__(self, display: Display, job: Job, watch: Stopwatch) -> None:
        self._display, self._job, self._watch = display, job, watch
        self._stage = ""

    def stage(self, stage: Stage, state: State) -> None:
        self._stage = stage.name
        self._display.stage(stage, state)

    def say(self, text: str) -> None:
        self._display.say(text)

    def times(self, spent: Sequence[Spent]) -> None:
        self._display.times(spent)

    def record(self, doing: str | None = None) -> None:
        """Moves the time so far into the record."""
        self._job.add(self._watch.seconds, self._stage)
        self._watch.seconds.clear()
        self._job.report(doing=doing)

    @contextmanager
    def lines(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        of_total = "" if total is None else f" of {total:,}"
        with self._display.lines(what, total) as progress:

            def show(n_lines: int) -> None:
                progress(n_lines)
                self.record(f"{what}: {n_lines:,}{of_total} lines")

            yield show

    @contextmanager
    def training(
        self, recipe: Recipe
    ) -> Iterator[tuple[Sequence[TrainingObserver], Progress | None]]:
        with self._display.training(recipe) as (observers, progress):
            yield (*observers, self), progress

    def notify(self, event: TrainingEvent) -> None:
        """Tells apart what a training does."""
        if isinstance(event, RunStarted):
            self._watch.lap("preparing")
        elif isinstance(event, ValidationReport):
            self._watch.lap("training")
            seconds = self._watch.seconds
            seconds["training"] -= event.seconds
            seconds["validating"] = seconds.get("validating", 0.0) + event.seconds
        self.record()
