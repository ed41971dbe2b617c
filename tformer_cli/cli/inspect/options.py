"""Options that the inspection commands share: sentences and targets, the search, the model.

A command ends in ``**opening`` under `takes_opening_options` and hands that on to `open_model`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypedDict

import typer

from tformer_cli.artifacts.config_file import read_config
from tformer_cli.cli.help import MACHINE
from tformer_cli.cli.options import (
    AdapterOption,
    BeamSizeOption,
    Command,
    DeviceOption,
    LengthPenaltyOption,
    PathRole,
    SourceLanguageOption,
    TargetLanguageOption,
    ThreadsOption,
    torch_preparation,
    with_options,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    argument_lines,
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    input_lines,
    note,
    note_choices,
    warn,
    warn_of_file_names,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import check_file

if TYPE_CHECKING:
    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.kinds.opening.translator import Opened
    from tformer_cli.text.lines import LineCounts


TextsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Source sentences; without any, -i or stdin."),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        "-i",
        metavar="FILE",
        help="Source sentences, one per line; - is stdin.",
        show_default="stdin",
    ),
    PathRole.reads_file,
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Inspect this target (forced decoding).",
        show_default="the model's translation",
    ),
]
TargetFileOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Targets to inspect, one per source line.",
        show_default="the model's translations",
    ),
    PathRole.reads_file,
]


@dataclass(frozen=True, kw_only=True)
class GivenSentences:
    """Sentences and their targets."""

    source: SourceOption = None
    target: TargetOption = None
    target_file: TargetFileOption = None

    def check(self, texts: Sequence[str] | None) -> None:
        """Checks the options before a model is opened; `read` does so, too."""
        if self.target is not None and self.target_file is not None:
            raise UsageError(
                "--target: --target-file gives the targets already; omit one of the two"
            )
        for file in (None if texts else self.source, self.target_file):
            if file not in (None, STANDARD_STREAM):
                check_file(file)

    def read(
        self,
        texts: Sequence[str] | None,
        counts: "LineCounts",
        *,
        quiet: bool = False,
        takes_names: bool = False,
    ) -> tuple[Iterator[str], Iterator[str] | None]:
        """Returns the sentences to look at, and their targets if any are given."""
        self.check(texts)
        source, target, target_file = self.source, self.target, self.target_file
        if not texts:
            check_stdin_is_read_once([source or STANDARD_STREAM, target_file])
        lines = input_lines(texts, source, counts, "--source", quiet=quiet, takes_names=takes_names)
        if target is not None:
            warn_of_file_names([target], "--target-file")
            return lines, argument_lines([target], counts)
        return lines, None if target_file is None else file_lines(target_file, counts, quiet=quiet)

    def check_searched(self, options: object) -> None:
        """Makes sure that what a search found is not asked for of a target that was given."""
        is_given = self.target is not None or self.target_file is not None
        is_live = getattr(options, "mode", "forced") == "live"
        for is_asked, option in (
            (is_live, "--mode live"),
            (getattr(options, "rank", 1) > 1, "--rank"),
        ):
            if is_asked and is_given:
                raise UsageError(
                    f"{option}: shows what the search found, but a given target was not searched "
                    "for; omit one of the two"
                )


_SeedOption = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Seed for sampling, if the model's defaults sample.",
        rich_help_panel=MACHINE,
    ),
]


class OpeningArguments(TypedDict):
    """The options of `takes_opening_options`, as a command is given them."""

    adapter: Path | None
    source_language: str | None
    target_language: str | None
    beam_size: int | None
    length_penalty: float | None
    device: str
    seed: int
    threads: int


OPENING_OPTIONS: dict[str, tuple[Any, Any]] = {
    "adapter": (AdapterOption, None),
    "source_language": (SourceLanguageOption, None),
    "target_language": (TargetLanguageOption, None),
    "beam_size": (BeamSizeOption, None),
    "length_penalty": (LengthPenaltyOption, None),
    "device": (DeviceOption, "auto"),
    "seed": (_SeedOption, 1),
    "threads": (ThreadsOption, 0),
}
"""The annotated types and the defaults of `OpeningArguments`."""


def takes_opening_options(command: Command) -> Command:
    """Gives a command that ends in ``**opening`` the options that `open_model` needs."""
    return with_options(command, OPENING_OPTIONS)


def open_model(
    model: Path,
    opening: OpeningArguments,
    *,
    quiet: bool,
    rank: int = 1,
    tasks: tuple["TaskKind", ...] = ("translate",),
) -> "Opened":
    """Opens a model to look into it, at one of its translations, and says where it computes."""
    from tformer_cli.inspect.jobs.reader import open_for_inspection

    before_torch = torch_preparation(opening["threads"])
    opened = open_for_inspection(
        model, hypothesis=rank, tasks=tasks, before_torch=before_torch, **opening
    )
    asked = opening["beam_size"] or opened.directory.decoding.beam_size
    beam = opened.translator.config.beam_size
    if beam > asked:
        note(f"beam size raised from {asked} to {beam}, to find {rank} translations", quiet=quiet)
    note_choices(opened, quiet=quiet)
    return opened


@dataclass(frozen=True, kw_only=True)
class SentenceRequest:
    """What a command that reads sentences was given besides the settings of its view."""

    model: Path
    text: list[str] | None
    sentences: GivenSentences
    output: str
    opening: OpeningArguments
    quiet: bool

    def read(self, counts: "LineCounts") -> tuple[Iterator[str], Iterator[str] | None]:
        """Returns the sentences, and their targets if any are given; see `GivenSentences`."""
        names = read_config(self.model).model.reads_images
        return self.sentences.read(self.text, counts, quiet=self.quiet, takes_names=names)

    def open(self, rank: int = 1, tasks: tuple["TaskKind", ...] = ("translate",)) -> "Opened":
        return open_model(self.model, self.opening, quiet=self.quiet, rank=rank, tasks=tasks)


class ReadReport(Protocol):
    """Counts of a corpus that is read."""

    too_long: int
    """Lines skipped, as a side is longer than a model takes."""


def read_with_progress(
    lines_done: Iterable[int],
    report: ReadReport,
    what: str,
    *,
    quiet: bool,
    total: int | None = None,
) -> None:
    """Runs a job that yields how many lines are done, and warns of the lines it skipped."""
    with line_progress(total, what, quiet=quiet) as progress:
        for n_lines in lines_done:
            progress.update(n_lines)
    if report.too_long:
        warn(f"{count_of_lines(report.too_long)} longer than the model takes; skipped")
