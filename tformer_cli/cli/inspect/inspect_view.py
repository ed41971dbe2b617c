"""The body that inspection commands share, and `tformer inspect-NAME` of views with a help text."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from tformer_cli.artifacts.config_file import check_model
from tformer_cli.cli.format_choice import BINARY, chosen_format, format_option
from tformer_cli.cli.inspect.options import (
    GivenSentences,
    OpeningArguments,
    SentenceRequest,
    TextsArgument,
    takes_opening_options,
)
from tformer_cli.cli.options import (
    ModelArgument,
    OutputOption,
    QuietOption,
    prepare_torch,
    takes_groups,
    without_options,
)
from tformer_cli.cli.progress import counted
from tformer_cli.cli.streams import STANDARD_STREAM, results, text_console, utf8_line, warn_of_bytes
from tformer_cli.errors import UsageError
from tformer_cli.inspect.view import ModelView, SentenceView, View
from tformer_cli.show.png import check_png
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from rich.console import Console


READ_ONLY = {"image", "embed"}
"""Tasks whose models write no text."""
SEARCH_OPTIONS = (
    *("target", "target_file", "beam_size", "length_penalty"),
    *("source_language", "target_language", "seed"),
)
"""Options that mean nothing to them."""


def view_command(view: View[Any]) -> Callable[..., None]:
    """Makes the command of a view with a help text."""
    format_kind = Annotated[str | None, view_format_option(view)]

    @takes_opening_options
    @takes_groups
    def of_sentences(
        model: ModelArgument,
        text: TextsArgument = None,
        *,
        sentences: GivenSentences,
        options: view.Options,  # type: ignore[name-defined]
        output_format: format_kind = None,
        output: OutputOption = STANDARD_STREAM,
        quiet: QuietOption = False,
        **opening: Unpack[OpeningArguments],
    ) -> None:
        assert isinstance(view, SentenceView)  # noqa: S101
        chosen = view_format(view, output_format, output)
        request = SentenceRequest(
            model=model,
            text=text,
            sentences=sentences,
            output=output,
            opening=opening,
            quiet=quiet,
        )
        show_sentences(view, request, options, chosen)

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

    command = of_sentences if isinstance(view, SentenceView) else of_model
    if set(view.tasks) <= READ_ONLY:
        command = without_options(command, SEARCH_OPTIONS)
    command.__doc__ = view.help
    return command


def view_format_option(view: View[Any]) -> Any:  # noqa: ANN401 - Typer's options have no type
    return format_option(view.formats, view.formats[1])


def view_format(view: View[Any], given: str | None, output: str) -> str:
    """Chooses the format in which a view is written; see `chosen_format`."""
    chosen = chosen_format(given, output, view.formats, view.formats[1])
    if chosen == "png" and view.draws_png:
        check_png()
    if chosen in BINARY and output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError(f"--format {chosen}: is not text for a terminal; name a file with -o FILE")
    return chosen


def show_sentences(
    view: SentenceView[Any],
    request: SentenceRequest,
    options: Any,  # noqa: ANN401 - the view's own
    chosen: str,
) -> None:
    """Reads sentences and writes their records as they come, in the chosen format."""
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
    with counted(records, "inspecting", output, quiet=request.quiet) as found:
        emit_view(view, found, chosen, output, options)
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
            from tformer_cli.inspect.json_lines import json_line

            for record in records:
                for line in view.lines(record, options):
                    stream.write(utf8_line(line if isinstance(line, str) else json_line(line)))
                    stream.flush()
        else:
            if chosen == "html":
                content: bytes | str = view.page(records, options)
            else:
                content = view.file(_only(records, chosen), chosen)
            if isinstance(content, str):  # lone surrogates, which no file holds, become "?"
                content = content.encode("utf-8", "replace")
            stream.write(content)


def _show(console: "Console", view: View[Any], records: Iterable[Any], options: object) -> None:
    for number, record in enumerate(records):
        if number:
            console.print()
        view.text(console, record, options)


def _only(records: Iterable[Any], chosen: str) -> Any:  # noqa: ANN401 - the view's own
    """Takes the one record that a format holds."""
    remaining = iter(records)
    record = next(remaining, None)
    if record is None or getattr(record, "maps", record) is None:
        raise UsageError(f"--format {chosen}: there is no sentence to show; give one that is text")
    if next(remaining, None) is not None:
        raise UsageError(
            f"--format {chosen}: holds one sentence, but there are several; use jsonl or html"
        )
    return record
