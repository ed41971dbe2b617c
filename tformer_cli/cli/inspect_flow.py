"""`tformer inspect-flow`: how far source and prefix make up each written token."""

from collections.abc import Iterator
from enum import StrEnum
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from tformer_cli.cli.console import stdout_console, utf8_line
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.inspection_options import (
    FOUND_OR_GIVEN,
    HypothesisOption,
    OpeningArguments,
    SourceOption,
    TargetFileOption,
    TargetOption,
    TextsArgument,
    open_model,
    sentences_and_targets,
    takes_opening_options,
)
from tformer_cli.cli.line_progress import counted
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption
from tformer_cli.cli.text_io import STANDARD_STREAM, results, warn_of_bytes
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.inspection.flow import FlowRecord


class FlowFormat(StrEnum):
    """Values of `--format`."""

    tty = "tty"
    jsonl = "jsonl"
    html = "html"


class MethodChoice(StrEnum):
    """Values of `--method`."""

    alti = "alti"
    rollout = "rollout"


@takes_opening_options
def inspect_flow(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    source: SourceOption = None,
    target: TargetOption = None,
    target_file: TargetFileOption = None,
    hypothesis: HypothesisOption = 1,
    method: Annotated[
        MethodChoice,
        typer.Option(help="Whose shares are drawn; jsonl always has both."),
    ] = MethodChoice.alti,
    output_format: Annotated[FlowFormat | None, format_option("jsonl")] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show what each written token is made of: shares of the source and of the prefix.

    By ALTI+ contributions (Ferrando et al. 2022) and attention rollout (Abnar & Zuidema 2020),
    through all attentions of both stacks. The shares of a token sum to 1; the source's tells how
    far the model translates rather than goes on by itself.
    """
    chosen = chosen_format(output_format, output, FlowFormat, FlowFormat.jsonl)
    if hypothesis > 1 and (target is not None or target_file is not None):
        raise UsageError(FOUND_OR_GIVEN.format("--hypothesis"))
    counts = LineCounts()
    lines, targets = sentences_and_targets(text, source, target, target_file, counts)

    from tformer_cli.workflows.inspect_flow import flow_of

    opened = open_model(model, opening, quiet=quiet, hypothesis=hypothesis)
    records = flow_of(opened, lines, targets, hypothesis=hypothesis)
    if chosen == FlowFormat.tty and output == STANDARD_STREAM:
        _show(records, method)
    else:
        with (
            results(output) as stream,
            counted(records, "inspecting", output, quiet=quiet) as found,
        ):
            for part in _rendered(found, chosen, method):
                stream.write(part)
                stream.flush()
    warn_of_bytes(counts)


def _show(records: "Iterator[FlowRecord]", method: MethodChoice) -> None:
    from tformer_cli.cli.flow_view import show_flow

    for record in records:
        if record.sentence.index:
            stdout_console().print()
        show_flow(stdout_console(), record, method.value)


def _rendered(
    records: "Iterator[FlowRecord]", chosen: FlowFormat, method: MethodChoice
) -> Iterator[bytes]:
    """Renders records as the bytes of a format: as they come, or all together."""
    from tformer_cli.inspection.render_flow import render_flow_html, render_flow_json

    if chosen == FlowFormat.html:
        yield render_flow_html(list(records), method.value).encode("utf-8")
    elif chosen == FlowFormat.jsonl:
        for record in records:
            yield utf8_line(render_flow_json(record))
    else:
        for record in records:
            yield _plain_text(record, method)


def _plain_text(record: "FlowRecord", method: MethodChoice) -> bytes:
    """Renders what a terminal would show as text without colours."""
    from rich.console import Console

    from tformer_cli.cli.flow_view import show_flow

    file = StringIO()
    show_flow(Console(file=file, no_color=True, width=80, highlight=False), record, method.value)
    gap = "\n" if record.sentence.index else ""
    return (gap + file.getvalue()).encode("utf-8", "replace")
