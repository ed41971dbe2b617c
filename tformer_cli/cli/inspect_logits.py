"""`tformer inspect-logits`: what the decoder would write at each position, and its layers."""

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from tformer_cli.cli.console import utf8_line
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.inspection_options import (
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
from tformer_cli.cli.text_io import STANDARD_STREAM, results, text_console, warn_of_bytes
from tformer_cli.data.lines import LineCounts

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.inspection.views.logits import LogitsRecord


class LogitsFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
    jsonl = "jsonl"
    html = "html"


@takes_opening_options
def inspect_logits(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    source: SourceOption = None,
    target: TargetOption = None,
    target_file: TargetFileOption = None,
    top_k: Annotated[
        int, typer.Option(metavar="K", min=1, help="Show the K most probable tokens per position.")
    ] = 5,
    lens: Annotated[
        bool, typer.Option("--lens", help="Logit lens: show what each decoder layer would predict.")
    ] = False,
    output_format: Annotated[LogitsFormat | None, format_option(LogitsFormat, "jsonl")] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show the decoder's candidates, entropy and rank.

    There is a row for each position of the target. With --lens every decoder layer is read as if it
    were the last (the logit lens): its hidden state through the final norm and the output
    projection.

    Examples:
        tformer inspect-logits runs/quickstart "The animal was tired."
        tformer inspect-logits runs/quickstart "It is old." --top-k 3 --lens
        tformer inspect-logits runs/quickstart "It is old." --target "Elle est vieille."
    """
    chosen = chosen_format(output_format, output, LogitsFormat, LogitsFormat.jsonl)
    counts = LineCounts()
    lines, targets = sentences_and_targets(text, source, target, target_file, counts, quiet=quiet)

    from tformer_cli.workflows.inspect_logits import logits_of

    opened = open_model(model, opening, quiet=quiet)
    records = logits_of(opened, lines, targets, n_top=top_k, with_lens=lens)
    with (
        results(output) as stream,
        counted(records, "inspecting", output, quiet=quiet) as found,
    ):
        if chosen == LogitsFormat.text:
            _show(text_console(output, stream), found)
        else:
            for part in _rendered(found, chosen):
                stream.write(part)
                stream.flush()
    warn_of_bytes(counts)


def _show(console: "Console", records: "Iterator[LogitsRecord]") -> None:
    from tformer_cli.cli.logits_view import show_logits

    for record in records:
        if record.sentence.index:
            console.print()
        show_logits(console, record)


def _rendered(records: "Iterator[LogitsRecord]", chosen: LogitsFormat) -> Iterator[bytes]:
    """Renders records as the bytes of a format: as they come, or all together."""
    from tformer_cli.inspection.views.render_logits import render_logits_html, render_logits_json

    if chosen == LogitsFormat.html:
        yield render_logits_html(list(records)).encode("utf-8")
    else:
        for record in records:
            yield utf8_line(render_logits_json(record))
