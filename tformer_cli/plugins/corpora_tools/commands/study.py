"""`tformer study`: variants of a recipe × seeds, and one table."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tformer_cli.cli.format_choice import format_option, write_result
from tformer_cli.cli.known_commands import COMMANDS
from tformer_cli.cli.options import (
    DeviceOption,
    QuietOption,
    argument,
    complete_keys,
    option_field,
    prepare_torch,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    is_live,
    note,
    results,
    stderr_console,
    utf8_line,
    warn,
)
from tformer_cli.errors import DataError, TformerError, UsageError
from tformer_cli.settings import declare
from tformer_cli.sockets import load_place
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tformer_cli.plugins.corpora_tools.study.plan import Study, StudyRun
    from tformer_cli.plugins.corpora_tools.study.report import StudyReport
    from tformer_cli.show.document import Document

FORMATS = ("text", "markdown", "latex", "csv", "json")
CURVES = "curves.svg"


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """The study's directory, and changes to what its file says."""

    output: Path | None = option_field(
        None,
        "Directory to write: the runs, and study.html, study.json and curves.svg.",
        "-o",
        shown="runs/STUDY",
        role="adds_files",
    )
    overrides: list[str] | None = option_field(
        None,
        "Override a key of the recipe for all variants, such as data.directory=DIR. Repeatable.",
        "--set",
        metavar="KEY=VALUE",
        complete=complete_keys,
    )
    variants: str | None = option_field(
        None,
        "Train and compare only these variants, separated by commas.",
        shown="all",
        metavar="NAME",
    )
    seeds: str | None = option_field(
        None, "Seeds in place of the study's.", shown="the study's", metavar="N,N"
    )

    def read(self, name: str) -> "Study":
        """Reads the study and checks the runs that there are."""
        from tformer_cli.plugins.corpora_tools.study.plan import read_study

        seeds = _split(self.seeds)
        are_numbers = all(seed.isascii() and seed.isdecimal() for seed in seeds)
        if not are_numbers or len({*seeds}) < len(seeds):
            raise UsageError(
                f'--seeds: "{self.seeds}" is not a list of different seeds; write 1,2,3'
            )
        study = read_study(
            name,
            self.output or Path("runs") / Path(name).stem,
            overrides=self.overrides or (),
            variants=_split(self.variants),
            seeds=[int(seed) for seed in seeds],
        )
        study.check_runs()
        return study


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Device and processors of the runs."""

    jobs: int | None = option_field(
        None,
        "Number of runs to train at a time.",
        panel="Machine",
        shown="one for each processor, or one on a GPU",
        min=1,
    )
    threads: int = option_field(
        1, "CPU threads of each run; results depend on it.", panel="Machine", min=1
    )
    device: DeviceOption = "auto"

    def n_jobs(self) -> int:
        if self.jobs is not None:
            return self.jobs
        if self.device != "cpu":
            from tformer_cli.trainer.hardware import training_device
            from tformer_cli.trainer.processes.launch import read_launch

            if training_device(self.device, read_launch()).type == "cuda":
                return 1
        from tformer_cli.runtime import n_processors

        return max(1, n_processors() // self.threads)


def study(
    name: str = argument(
        "STUDY",
        "A TOML file, or the name of a shipped study: table-3, the paper's table 3 on Multi30k.",
        role="reads_file",
    ),
    *,
    options: StudyOptions,
    dry_run: bool = option_field(False, "Check the study and list its runs; train nothing."),
    output_format: str = declare("text", format_option(FORMATS, what="Format of the table.")),
    machine: MachineOptions,
    quiet: QuietOption = False,
) -> None:
    """Train variants of a recipe with several seeds, and compare them in one table.

    STUDY names a recipe, seeds, and for each variant the keys that it changes; see `tformer guide
    comparing`. Each run is one of `tformer train`, in DIR/VARIANT/seed-N. Run the same command
    again to resume: finished runs are skipped. The table has scores with intervals, p against the
    first variant, parameters, tokens and minutes.

    Examples:
        tformer study table-3 --set data.directory=DIR -o runs/table-3
        tformer study mine.toml --dry-run
        tformer study mine.toml --jobs 4 --format latex > table.tex
    """
    from tformer_cli.plugins.corpora_tools.study.plan import is_finished

    chosen = options.read(name)
    _check(chosen)
    if dry_run:
        _show_runs(chosen)
        return
    _begin(chosen)
    with _display(chosen, quiet=quiet) as display:
        failure = _train(chosen, machine, display)
    if failure and not any(map(is_finished, chosen.runs)):
        raise TformerError(failure)
    report, page = _report(chosen, machine.device, quiet=quiet)
    if page is not None and not chosen.is_part:
        _write_files(chosen, report, page)
    with results(STANDARD_STREAM) as stream:
        ways = report.record, report.document
        write_result(stream, STANDARD_STREAM, output_format, *ways, rows=report.rows)
    folders = " ".join(str(chosen.directory / row.name) for row in report.variants)
    more = f"{chosen.directory / 'study.html'} shows more"
    if chosen.is_part:
        more = "a part of the study: study.json, study.html and curves.svg are not written"
    note(f"{more}; curves: `tformer plot {folders}`", quiet=quiet)
    if failure:
        raise TformerError(failure)


def _split(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",")]


def _show_runs(study: "Study") -> None:
    from tformer_cli.plugins.corpora_tools.study.plan import changed_keys, is_finished

    with results(STANDARD_STREAM) as stream:
        for variant in study.recipes:
            runs = study.runs_of(variant)
            done = sum(map(is_finished, runs))
            keys = changed_keys(study.file.variants[variant])
            changes = ", ".join(f"{key} = {value}" for key, value in keys) or "as the recipe"
            line = f"{variant}\t{done} of {count_of(len(runs), 'run')} finished\t{changes}"
            stream.write(utf8_line(line))


def _check(study: "Study") -> None:
    """Checks that the directory is a study's or new, and that the corpora are there."""
    from tformer_cli.files.atomic import check_free
    from tformer_cli.plugins.corpora_tools.study.plan import STUDY, check_data

    check_free(study.directory, unless=STUDY)
    check_data(study)


def _begin(study: "Study") -> None:
    """Writes the recipes of the variants into the directory."""
    from tformer_cli.files.atomic import make_directory, write_text
    from tformer_cli.plugins.corpora_tools.study.plan import STUDY

    text = study.path.read_text("utf-8-sig")
    make_directory(study.directory)
    write_text(study.directory / STUDY, text)
    for variant, recipe in study.texts.items():
        write_text(study.recipe_file(variant), recipe)


def _train(study: "Study", machine: MachineOptions, display: "StudyDisplay") -> str:
    from tformer_cli.files.atomic import lock_directory
    from tformer_cli.plugins.corpora_tools.study.training import train_runs
    from tformer_cli.trainer.processes.signals import stop_requests

    # Two commands on one directory would train the same runs
    with lock_directory(study.directory), stop_requests() as stop:
        return train_runs(
            study,
            n_jobs=machine.n_jobs(),
            threads=machine.threads,
            device=machine.device,
            display=display,
            stop=stop,
        )


def _report(study: "Study", device: str, *, quiet: bool) -> tuple["StudyReport", "Document | None"]:
    prepare_torch(0)
    from tformer_cli.plugins.corpora_tools.study.report import report_study

    return report_study(study, device=device, tell=partial(note, quiet=quiet), warn=warn)


def _write_files(study: "Study", report: "StudyReport", page: "Document") -> None:
    from tformer_cli.files.atomic import write_text
    from tformer_cli.plugins.corpora_tools.study.report import PAGE
    from tformer_cli.show.curves import XName
    from tformer_cli.show.html import render_html

    write_text(study.directory / PAGE, render_html(page))
    plot: Callable[..., None] = load_place(COMMANDS["plot"].place)
    folders = [study.directory / row.name for row in report.variants]
    try:
        plot(
            folders,
            output=str(study.directory / CURVES),
            output_format="svg",
            x=XName.step,
            metric=None,
            quiet=True,
        )
    except DataError as error:  # runs may be too short for a report
        note(f"no {CURVES}: {error}")


class StudyDisplay:
    """Shows nothing: `--quiet`."""

    def __init__(self, n_runs: int, n_finished: int) -> None:
        self.n_runs, self.n_finished = n_runs, n_finished

    def begin(self, run: "StudyRun") -> None: ...

    def end(self, run: "StudyRun", problem: str) -> None: ...

    def look(self, running: Sequence["StudyRun"]) -> None: ...


class PlainDisplay(StudyDisplay):
    """Shows a line when a run begins and when it ends."""

    def begin(self, run: "StudyRun") -> None:
        note(f"{run.directory}: training")

    def end(self, run: "StudyRun", problem: str) -> None:
        self.n_finished += not problem
        result = f"failed: {problem}" if problem else _result_of(run)
        note(f"{run.directory}: {result} ({self.n_finished} of {self.n_runs} runs)")


class LiveDisplay(PlainDisplay):
    """Shows a bar for each run that is training, above it a line for each that has ended."""

    def __init__(self, n_runs: int, n_finished: int, progress: "Progress") -> None:
        super().__init__(n_runs, n_finished)
        self._progress = progress
        self._tasks: dict[Path, TaskID] = {}

    def begin(self, run: "StudyRun") -> None:
        self._tasks[run.directory] = self._progress.add_task(
            str(run.directory), total=1.0, detail=""
        )

    def end(self, run: "StudyRun", problem: str) -> None:
        self._progress.remove_task(self._tasks.pop(run.directory))
        super().end(run, problem)

    def look(self, running: Sequence["StudyRun"]) -> None:
        from tformer_cli.show.curves import read_run

        for run in running:
            try:
                reports = read_run(run.directory).reports
            except TformerError:  # it has not begun to write
                continue
            if reports and (task := self._tasks.get(run.directory)) is not None:
                last: dict[str, Any] = reports[-1]
                detail = f"step {last['step']:,}, loss {last.get('loss', 0.0):.3f}"
                share = last.get("share_done", 0.0)
                self._progress.update(task, completed=share, detail=detail)


@contextmanager
def _display(study: "Study", *, quiet: bool) -> Iterator[StudyDisplay]:
    from tformer_cli.plugins.corpora_tools.study.plan import is_finished

    counts = len(study.runs), sum(map(is_finished, study.runs))
    if quiet:
        yield StudyDisplay(*counts)
    elif not is_live():
        yield PlainDisplay(*counts)
    else:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        detail = TextColumn("{task.fields[detail]}", markup=False)
        columns = text, BarColumn(), detail, TimeElapsedColumn()
        with Progress(*columns, console=stderr_console(), refresh_per_second=2) as progress:
            yield LiveDisplay(*counts, progress)


def _result_of(run: "StudyRun") -> str:
    from tformer_cli.cli.commands.training_progress import duration
    from tformer_cli.plugins.corpora_tools.comparison.lengths import read_length

    length = read_length(run.directory)
    if length is None:
        return "finished"
    return f"finished after {count_of(length.steps, 'step')}, {duration(length.seconds)}"
