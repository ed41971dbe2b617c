"""The body that inspection commands share, and `tformer inspect-NAME` of views with a help text.

A command ends in ``**opening`` under `takes_opening_options` and hands that on to `open_model`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack, get_args

from tformer_cli.artifacts.config_file import (
    DEFAULT_KIND,
    TASKS,
    TRANSLATORS,
    check_model,
)
from tformer_cli.cli.command import CheckedCommand
from tformer_cli.cli.format_choice import check_format, chosen_format, format_option
from tformer_cli.cli.options import (
    Command,
    ModelArgument,
    OutputOption,
    QuietOption,
    one_of,
    option,
    option_field,
    prepare_torch,
    settings_options,
    takes_groups,
    torch_preparation,
    with_options,
    without_options,
)
from tformer_cli.cli.progress import counted_steps, line_progress, show_count
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    argument_lines,
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    input_lines,
    note,
    note_choices,
    results,
    text_console,
    utf8_line,
    warn,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.inspect.view import (
    CorpusView,
    ModelView,
    NoOptions,
    SentenceView,
    SourceOption,
    TextsArgument,
    View,
)
from tformer_cli.inspect.weighting import WeightingName
from tformer_cli.settings import Option, dataclass
from tformer_cli.text.lines import LineCounts, check_file

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.inspect.jobs.reader import ReadReport
    from tformer_cli.kinds.stored_model import Opened


ImagesArgument = Annotated[
    list[str] | None,
    Option(
        "Image files or other image names; without any, reads -i or stdin.",
        metavar="TEXT",
        is_argument=True,
    ),
]
TargetOption = Annotated[
    str | None,
    option(
        "Inspect this target (forced decoding).", shown="the model's translation", metavar="TEXT"
    ),
]


@dataclass(frozen=True, kw_only=True)
class GivenSentences:
    """Sentences and their targets."""

    source: SourceOption = None
    target: TargetOption = None
    target_file: str | None = option_field(
        None,
        "Targets to inspect, one per source line.",
        shown="the model's translations",
        role="reads_file",
    )

    def check(self, texts: Sequence[str] | None) -> None:
        """Checks the options before a model is opened; `read` does so, too."""
        if self.target is not None and self.target_file is not None:
            raise UsageError(
                "--target: --target-file already gives the targets; omit one of the two"
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
    ) -> tuple[Iterator[str], Iterator[str] | None]:
        self.check(texts)
        source, target, target_file = self.source, self.target, self.target_file
        # TextsArgument on the command line leave stdin to one of the files
        if not texts:
            check_stdin_is_read_once([source or STANDARD_STREAM, target_file])
        lines = input_lines(texts, source, counts, "--source", quiet=quiet)
        if target is not None:
            return lines, argument_lines([target], counts)
        return lines, None if target_file is None else file_lines(target_file, counts, quiet=quiet)

    def check_searched(self, options: object) -> None:
        """Refuses options about the search for targets that the user gave."""
        is_given = self.target is not None or self.target_file is not None
        is_live = getattr(options, "mode", "forced") == "live"
        for is_asked, name in (
            (is_live, "--mode live"),
            (getattr(options, "rank", 1) > 1, "--rank"),
        ):
            if is_asked and is_given:
                raise UsageError(
                    f"{name}: shows results of the search, but your target was not searched for; "
                    "omit one of the two"
                )


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


OPENING_OPTIONS = settings_options(OpeningArguments.__annotations__)


def takes_opening_options(command: Command) -> Command:
    """Adds the options that `open_model` needs to a command that ends in ``**opening``."""
    return with_options(command, OPENING_OPTIONS)


def open_model(
    model: Path,
    opening: OpeningArguments,
    *,
    quiet: bool,
    rank: int = 1,
    tasks: tuple["TaskKind", ...] = TRANSLATORS,
) -> "Opened":
    """Opens a model to look into it, at one of its translations, and says where it computes."""
    from tformer_cli.inspect.jobs.reader import open_for_inspection

    before_torch = torch_preparation(opening["threads"])
    opened = open_for_inspection(
        model, hypothesis=rank, tasks=tasks, before_torch=before_torch, **opening
    )
    width = opening["beam_size"] or opened.directory.decoding.beam_size
    beam = opened.translator.config.beam_size
    # Another beam may find another best translation than `translate` gives
    if beam > width:
        note(f"beam size raised from {width} to {beam}, to find {rank} translations", quiet=quiet)
    note_choices(opened, quiet=quiet)
    return opened


@dataclass(frozen=True, kw_only=True)
class SentenceRequest:
    """Options of a command that reads sentences, in addition to its view's settings."""

    model: Path
    text: list[str] | None
    sentences: GivenSentences
    output: str
    opening: OpeningArguments
    quiet: bool

    def read(self, counts: "LineCounts") -> tuple[Iterator[str], Iterator[str] | None]:
        return self.sentences.read(self.text, counts, quiet=self.quiet)

    def open(self, rank: int = 1, tasks: tuple["TaskKind", ...] = TRANSLATORS) -> "Opened":
        return open_model(self.model, self.opening, quiet=self.quiet, rank=rank, tasks=tasks)


@dataclass(frozen=True, kw_only=True)
class CorpusRequest:
    """The request of a command for a view; see `inspect.view.Request`."""

    model: Path
    tasks: tuple["TaskKind", ...]
    opening: OpeningArguments
    quiet: bool
    counts: LineCounts = field(default_factory=LineCounts)
    files: list[str] = field(default_factory=list)

    @property
    def seed(self) -> int:
        return self.opening["seed"]

    def open(self, model: Path | None = None) -> "Opened":
        return open_model(model or self.model, self.opening, quiet=self.quiet, tasks=self.tasks)

    def lines(self, file: str | None, texts: Sequence[str] | None = None) -> Iterator[str]:
        if not texts:
            self.files.append(file or STANDARD_STREAM)
            check_stdin_is_read_once(self.files)
        return input_lines(texts, file, self.counts, "--source", quiet=self.quiet)

    def tell(self, message: str) -> None:
        note(message, quiet=self.quiet)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int], None]]:
        with line_progress(None, what, quiet=self.quiet) as progress:
            yield progress.update

    def steps(self, what: str) -> AbstractContextManager[Callable[[], None]]:
        return counted_steps(what, quiet=self.quiet)


def read_with_progress(
    lines_done: Iterable[int],
    report: "ReadReport",
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


NAME = "--weights"


class CommandWithWeights(CheckedCommand):
    """A command that reads ``--weights`` without a value as ``--weights alpha``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's
        return super().parse_args(ctx, with_value(args))


def with_value(args: list[str]) -> list[str]:
    """Adds the value alpha to every ``--weights`` without a value."""
    # Arguments after `--` are text, and so is a sentence after `--weights`.
    end = args.index("--") if "--" in args else len(args)
    following = [*args[1:], ""][:end]
    written = [
        f"{NAME}=alpha" if arg == NAME and not _is_meant_as_value(after) else arg
        for arg, after in zip(args[:end], following, strict=True)
    ]
    return [*written, *args[end:]]


def _is_meant_as_value(text: str) -> bool:
    """True if a text is a value or a misspelt one, which is refused and not read as a sentence."""
    return bool(get_close_matches(text, get_args(WeightingName), n=1, cutoff=0.7))


# Options that mean nothing to a model that writes no text.
SEARCH_OPTIONS = (
    *("target", "target_file", "beam_size", "length_penalty"),
    *("source_language", "target_language", "seed"),
)


def view_command(view: View[Any], instead: type = NoOptions) -> Callable[..., None]:
    """Makes the command of a view; `instead`: the options of a job that takes the view's place."""
    format_kind = Annotated[str | None, view_format_option(view)]
    texts_kind = TextsArgument
    if DEFAULT_KIND not in view.tasks and any(TASKS[task].reads == "images" for task in view.tasks):
        texts_kind = ImagesArgument

    @takes_opening_options
    @takes_groups
    def of_sentences(
        model: ModelArgument,
        text: texts_kind = None,  # type: ignore[valid-type]
        *,
        sentences: GivenSentences,
        options: view.Options,  # type: ignore[name-defined]
        job: instead,  # type: ignore[valid-type]
        output_format: format_kind = None,
        output: OutputOption = STANDARD_STREAM,
        quiet: QuietOption = False,
        **opening: Unpack[OpeningArguments],
    ) -> None:
        assert isinstance(view, SentenceView)  # noqa: S101
        request = SentenceRequest(
            model=model, text=text, sentences=sentences, output=output, opening=opening, quiet=quiet
        )
        if job != instead():
            job.run(request, options, output_format)  # type: ignore[attr-defined]
        else:
            show_sentences(view, request, options, view_format(view, output_format, output))

    @takes_groups
    def of_model(
        model: ModelArgument,
        *,
        options: view.Options,  # type: ignore[name-defined]
        output_format: format_kind = None,
        output: OutputOption = STANDARD_STREAM,
        quiet: QuietOption = False,  # noqa: ARG001 - there is nothing to note
    ) -> None:
        assert isinstance(view, ModelView)  # noqa: S101
        chosen = view_format(view, output_format, output)

        from tformer_cli.inspect.jobs.views import read_model

        prepare_torch()
        emit_view(view, [read_model(view, model, options)], chosen, output, options)

    if isinstance(view, CorpusView):
        command = _corpus_command(view, format_kind)
    else:
        command = of_sentences if isinstance(view, SentenceView) else of_model
    if all(TASKS[kind].head for kind in view.tasks):  # encoders
        command = without_options(command, SEARCH_OPTIONS)
    command.__doc__ = view.help
    return command


def _corpus_command(view: CorpusView[Any], format_kind: Any) -> Callable[..., None]:  # noqa: ANN401
    @takes_opening_options
    @takes_groups
    def of_corpus(
        model: ModelArgument,
        *,
        inputs: view.Inputs,  # type: ignore[name-defined]
        options: view.Options,  # type: ignore[name-defined]
        output_format: format_kind = None,
        output: OutputOption = STANDARD_STREAM,
        quiet: QuietOption = False,
        **opening: Unpack[OpeningArguments],
    ) -> None:
        chosen = view_format(view, output_format, output)
        check_model(model, view.tasks)
        request = CorpusRequest(model=model, tasks=view.tasks, opening=opening, quiet=quiet)
        record = view.read(request, inputs, options)
        emit_view(view, [record], chosen, output, options)
        warn_of_bytes(request.counts)

    return of_corpus


def view_format_option(view: View[Any]) -> Any:  # noqa: ANN401 - Typer's options have no type
    option = format_option(view.formats, view.formats[1])
    read = one_of(view.formats)
    # `tty` is another name of what a terminal shows
    return replace(option, parser=lambda name: "text" if name == "tty" else read(name))


def view_format(view: View[Any], name: str | None, output: str) -> str:
    """Chooses the format in which a view is written; see `chosen_format`."""
    chosen = chosen_format(name, output, view.formats, view.formats[1])
    check_format(chosen, output, draws_svg=view.draws_svg)
    return chosen


def show_sentences(
    view: SentenceView[Any],
    request: SentenceRequest,
    options: Any,  # noqa: ANN401 - the view's own
    chosen: str,
) -> None:
    check_model(request.model, view.tasks)
    request.sentences.check_searched(options)
    counts = LineCounts()
    lines, targets = request.read(counts)

    from tformer_cli.inspect.jobs.views import read_sentences

    opened = request.open(getattr(options, "rank", 1), view.tasks)
    if chosen == "html" and hasattr(options, "for_page"):
        options = replace(options, for_page=True)
    records = read_sentences(view, opened, lines, targets, options)
    output = request.output
    with show_count(records, "inspecting", output, quiet=request.quiet) as shown_records:
        emit_view(view, shown_records, chosen, output, options)
    warn_of_bytes(counts)


def emit_view(
    view: View[Any],
    records: Iterable[Any],
    chosen: str,
    output: str,
    options: object,
    *,
    after_text: str = "",
) -> None:
    """Writes records of a view in one of its formats; a file is there whole in the end or not."""
    with results(output) as stream:
        if chosen == "text":
            _show(text_console(output, stream), view, records, options)
            stream.write(after_text.encode("utf-8", "replace"))
        elif chosen in ("json", "jsonl"):
            from tformer_cli.inspect.data import json_line

            for record in records:
                for line in view.lines(record, options):
                    stream.write(utf8_line(line if isinstance(line, str) else json_line(line)))
                    # A reader of the pipe gets each sentence when it is done
                    stream.flush()
        else:
            if chosen == "html":
                from tformer_cli.inspect.pages import render_view

                content: bytes | str = render_view(view, records, options)
            else:
                content = view.file(_only(records, chosen), chosen, options)
            if isinstance(content, str):  # lone surrogates, which no file holds, become "?"
                content = content.encode("utf-8", "replace")
            stream.write(content)


def _show(console: "Console", view: View[Any], records: Iterable[Any], options: object) -> None:
    for number, record in enumerate(records):
        if number:
            console.print()
        view.text(console, record, options)


def _only(records: Iterable[Any], chosen: str) -> Any:  # noqa: ANN401 - the view's own
    """Returns the only record, for formats that hold one."""
    from tformer_cli.inspect.pages import is_blank

    remaining = iter(records)
    record = next(remaining, None)
    if record is None or is_blank(record):
        raise UsageError(f"--format {chosen}: every line is blank; give a sentence")
    if next(remaining, None) is not None:
        raise UsageError(
            f"--format {chosen}: holds one sentence, but there are several; use jsonl or html"
        )
    return record
