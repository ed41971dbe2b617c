"""`tformer inspect-NAME` for every view that has a help text: its options, reading, its formats."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from tformer_cli.cli.emit import Part, emit, page_bytes
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.inspection.options import (
    FOUND_OR_GIVEN,
    OPENING_OPTIONS,
    GivenSentences,
    OpeningArguments,
    SourceOption,
    TargetFileOption,
    TargetOption,
    TextsArgument,
    open_model,
)
from tformer_cli.cli.line_progress import counted
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption
from tformer_cli.cli.text_io import STANDARD_STREAM, warn_of_bytes
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError
from tformer_cli.inspection.view import ModelView, Option, SentenceView, View

if TYPE_CHECKING:
    from rich.console import Console

BINARY = ("npz", "png", "safetensors")
"""Formats that are not for a terminal."""
SENTENCES: dict[str, tuple[Any, Any]] = {
    "source": (SourceOption, None),
    "target": (TargetOption, None),
    "target_file": (TargetFileOption, None),
}
"""Options that name the sentences of a view."""


def view_command(view: View[Any]) -> Callable[..., None]:
    """Makes the command of a view.

    Args:
        view: a view with a help text.
    """
    formats = _choices("formats", view.formats)
    format_kind = Annotated[formats | None, format_option(formats, view.formats[1])]  # type: ignore[valid-type]
    positional: dict[str, tuple[Any, Any]] = {"model": (ModelArgument, inspect.Parameter.empty)}
    options: dict[str, tuple[Any, Any]] = {}
    if isinstance(view, SentenceView):
        positional["text"] = (TextsArgument, None)
        options |= SENTENCES
    options |= view_options(view)
    options |= {
        "output_format": (format_kind, None),
        "output": (OutputOption, STANDARD_STREAM),
        "quiet": (QuietOption, False),
    }
    run: Callable[[dict[str, Any]], None]
    if isinstance(view, SentenceView):
        options |= OPENING_OPTIONS
        run = partial(_run_sentences, view, formats)
    else:
        assert isinstance(view, ModelView)  # noqa: S101
        run = partial(_run_model, view, formats)

    def command(*arguments: Any, **given: Any) -> None:  # noqa: ANN401 - the options above
        run(dict(zip(positional, arguments, strict=False)) | given)

    command.__doc__ = view.help
    command.__name__ = f"inspect_{view.name}"
    command.__annotations__.clear()
    parameter = inspect.Parameter
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # Typer reads it
        [
            parameter(name, parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
            for name, (kind, default) in positional.items()
        ]
        + [
            parameter(name, parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in options.items()
        ]
    )
    return command


def view_options(view: View[Any]) -> dict[str, tuple[Any, Any]]:
    """Makes options of the command line of the fields of a view's settings."""
    hints = get_type_hints(view.Options, include_extras=True)
    found: dict[str, tuple[Any, Any]] = {}
    for field in fields(view.Options):
        kind, option = get_args(hints[field.name])
        assert isinstance(option, Option)  # noqa: S101 - see `View.Options`
        assert field.default is not MISSING  # noqa: S101
        default = field.default
        if get_origin(kind) is Literal:
            kind = _choices(field.name, get_args(kind))
            default = kind(default)
        flag = f"--{field.name.replace('_', '-')}"
        shown = {} if option.shown_default is None else {"show_default": option.shown_default}
        declared = typer.Option(
            *([flag] if kind is bool else []),
            metavar=option.metavar,
            min=option.min,
            help=option.help,
            **shown,  # type: ignore[arg-type]
        )
        found[field.name] = (Annotated[kind, declared], default)
    return found


def _choices(name: str, values: Iterable[str]) -> type[StrEnum]:
    """Makes the type of an option that is one of some values."""
    made: type[StrEnum] = StrEnum(name, {value: value for value in values})  # type: ignore[misc]
    return made


def _run_sentences(view: SentenceView[Any], formats: type[StrEnum], given: dict[str, Any]) -> None:
    """Reads sentences and writes their records as they come."""
    quiet, output = given["quiet"], given["output"]
    sentences = GivenSentences(**{name: given[name] for name in SENTENCES})
    chosen = chosen_format(given["output_format"], output, formats, formats(view.formats[1]))
    options = _settings(view, given)
    rank = getattr(options, "rank", 1)
    if rank > 1 and (sentences.target is not None or sentences.target_file is not None):
        raise UsageError(FOUND_OR_GIVEN.format("--rank"))
    counts = LineCounts()
    lines, targets = sentences.read(given["text"], counts, quiet=quiet)

    from tformer_cli.workflows.inspect_views import read_sentences

    opening: OpeningArguments = {name: given[name] for name in OPENING_OPTIONS}  # type: ignore[assignment]
    opened = open_model(given["model"], opening, quiet=quiet, rank=rank)
    records = read_sentences(view, opened, lines, targets, options)
    with counted(records, "inspecting", output, quiet=quiet) as found:
        emit_view(view, found, chosen, output, options)
    warn_of_bytes(counts)


def _run_model(view: ModelView[Any], formats: type[StrEnum], given: dict[str, Any]) -> None:
    """Reads a model and writes its record."""
    output = given["output"]
    chosen = chosen_format(given["output_format"], output, formats, formats(view.formats[1]))
    if chosen in BINARY and output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError(f"--format {chosen}: is not text for a terminal; name a file with -o FILE")

    from tformer_cli.workflows.inspect_views import read_model

    options = _settings(view, given)
    emit_view(view, [read_model(view, given["model"], options)], chosen, output, options)


def _settings(view: View[Any], given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the view's own
    return view.Options(**{field.name: given[field.name] for field in fields(view.Options)})


def emit_view(
    view: View[Any],
    records: Iterable[Any],
    chosen: str,
    output: str,
    options: object,
    *,
    after_text: str = "",
) -> None:
    """Writes records of a view in one of its formats; see `emit`."""

    def show(console: "Console") -> None:
        for number, record in enumerate(records):
            if number:
                console.print()
            view.text(console, record, options)

    def lines() -> Iterator[Part]:
        from tformer_cli.inspection.json_lines import json_line

        return (json_line(data) for record in records for data in view.lines(record, options))

    def page() -> Iterator[Part]:
        from tformer_cli.inspection.page.report_page import render_view

        yield page_bytes(render_view(view, records, options))

    def files() -> Iterator[Part]:
        for record in records:
            file = view.file(record, chosen)
            yield file.encode("utf-8") if isinstance(file, str) else file

    others = dict.fromkeys(view.formats, files) | {"json": lines, "jsonl": lines, "html": page}
    emit(output, chosen, show=show, others=others, after_text=after_text)
