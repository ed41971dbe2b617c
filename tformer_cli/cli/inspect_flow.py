"""`tformer inspect-flow`: how far source and prefix make up each written token."""

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from tformer_cli.cli.console import utf8_line
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.inspection_options import (
    FOUND_OR_GIVEN,
    OpeningArguments,
    RankOption,
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
from tformer_cli.cli.text_io import STANDARD_STREAM, results, text_console, warn_of_bytes
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.inspection.views.flow import FlowRecord


class FlowFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
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
    rank: RankOption = 1,
    method: Annotated[
        MethodChoice,
        typer.Option(
            help="Method to draw: ALTI+ contributions, or attention rollout; jsonl always has both."
        ),
    ] = MethodChoice.alti,
    output_format: Annotated[FlowFormat | None, format_option(FlowFormat, "jsonl")] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show how much source and prefix contribute to each token.

    By ALTI+ contributions (Ferrando et al. 2022) and attention rollout (Abnar & Zuidema 2020),
    through all layers of encoder and decoder. The shares of a token sum to 1. The larger the
    source's share, the more the model translates rather than continues its own text.

    Examples:
        tformer inspect-flow runs/quickstart "The animal was tired."
        tformer inspect-flow runs/quickstart "It is old." --method rollout -o flow.html
    """
    chosen = chosen_format(output_format, output, FlowFormat, FlowFormat.jsonl)
    if rank > 1 and (target is not None or target_file is not None):
        raise UsageError(FOUND_OR_GIVEN.format("--rank"))
    counts = LineCounts()
    lines, targets = sentences_and_targets(text, source, target, target_file, counts, quiet=quiet)

    from tformer_cli.workflows.inspect_flow import flow_of

    opened = open_model(model, opening, quiet=quiet, rank=rank)
    records = flow_of(opened, lines, targets, hypothesis=rank)
    with (
        results(output) as stream,
        counted(records, "inspecting", output, quiet=quiet) as found,
    ):
        if chosen == FlowFormat.text:
            _show(text_console(output, stream), found, method)
        else:
            for part in _rendered(found, chosen, method):
                stream.write(part)
                stream.flush()
    warn_of_bytes(counts)


def _show(console: "Console", records: "Iterator[FlowRecord]", method: MethodChoice) -> None:
    from tformer_cli.cli.flow_view import show_flow

    for record in records:
        if record.sentence.index:
            console.print()
        show_flow(console, record, method.value)


def _rendered(
    records: "Iterator[FlowRecord]", chosen: FlowFormat, method: MethodChoice
) -> Iterator[bytes]:
    """Renders records as the bytes of a format: as they come, or all together."""
    from tformer_cli.inspection.views.render_flow import render_flow_html, render_flow_json

    if chosen == FlowFormat.html:
        yield render_flow_html(list(records), method.value).encode("utf-8")
    else:
        for record in records:
            yield utf8_line(render_flow_json(record))
