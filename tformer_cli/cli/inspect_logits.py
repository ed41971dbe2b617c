"""`tformer inspect-logits`: what the decoder would write at each position, and its layers."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tformer_cli.cli.console import stdout_console, utf8_line
from tformer_cli.cli.decoding_options import BeamSizeOption, LengthPenaltyOption
from tformer_cli.cli.options import (
    DeviceOption,
    ModelArgument,
    OutputOption,
    QuietOption,
    SeedOption,
    ThreadsOption,
)
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    argument_lines,
    check_stdin_is_read_once,
    file_lines,
    input_lines,
    results,
    say_choices,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.inspection.logits import LogitsRecord


class LogitsFormat(StrEnum):
    """Values of `--format`."""

    tty = "tty"
    jsonl = "jsonl"
    html = "html"


def inspect_logits(
    model: ModelArgument,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Sentences; without any, --source or stdin."),
    ] = None,
    *,
    source: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of sentences (-: stdin).")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Look at this target instead of the translation."),
    ] = None,
    target_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of targets, one for each sentence.")
    ] = None,
    top: Annotated[
        int, typer.Option(metavar="K", min=1, help="Most probable tokens of each position.")
    ] = 5,
    lens: Annotated[
        bool, typer.Option("--lens", help="Show what each decoder layer would have written.")
    ] = False,
    output_format: Annotated[
        LogitsFormat | None,
        typer.Option(
            "--format",
            help="[tty on a terminal, jsonl elsewhere; by FILE's name].",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = STANDARD_STREAM,
    beam_size: BeamSizeOption = None,
    length_penalty: LengthPenaltyOption = None,
    device: DeviceOption = "auto",
    seed: SeedOption = 1,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Show what the decoder would write at each position: candidates, entropy, rank.

    With --lens every decoder layer is read as if it were the last (the logit lens): its hidden
    state through the final norm and the output projection.
    """
    chosen = _format(output_format, output)
    if target is not None and target_file is not None:
        raise UsageError("--target: --target-file gives the targets already; leave one of them out")
    if not text:
        check_stdin_is_read_once([source or STANDARD_STREAM, target_file])
    counts = LineCounts()
    lines = input_lines(text, source, counts, "--source")
    targets = None if target_file is None else file_lines(target_file, counts)
    if target is not None:
        targets = argument_lines([target], counts)

    from tformer_cli.workflows.inspect_logits import logits_of
    from tformer_cli.workflows.translate import open_translator

    opened = open_translator(
        model,
        device=device,
        precision="float32",
        threads=threads,
        seed=seed,
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=1,
    )
    say_choices(opened, quiet=quiet)
    records = logits_of(opened, lines, targets, n_top=top, with_lens=lens)
    if chosen == LogitsFormat.tty and output == STANDARD_STREAM:
        _show(records)
    else:
        with results(output) as stream:
            for part in _rendered(records, chosen):
                stream.write(part)
                stream.flush()
    warn_of_bytes(counts)


def _format(given: LogitsFormat | None, output: str) -> LogitsFormat:
    """Chooses a format where none is given: by the file's name, else by who reads stdout."""
    if given is not None:
        return given
    if output != STANDARD_STREAM:
        return LogitsFormat.html if Path(output).suffix == ".html" else LogitsFormat.jsonl
    return LogitsFormat.tty if sys.stdout.isatty() else LogitsFormat.jsonl


def _show(records: "Iterator[LogitsRecord]") -> None:
    from tformer_cli.cli.logits_view import show_logits

    for record in records:
        if record.sentence.index:
            stdout_console().print()
        show_logits(stdout_console(), record)


def _rendered(records: "Iterator[LogitsRecord]", chosen: LogitsFormat) -> Iterator[bytes]:
    """Renders records as the bytes of a format: as they come, or all together."""
    from tformer_cli.inspection.render_logits import render_logits_html, render_logits_json

    if chosen == LogitsFormat.html:
        yield render_logits_html(list(records)).encode("utf-8")
    elif chosen == LogitsFormat.jsonl:
        for record in records:
            yield utf8_line(render_logits_json(record))
    else:
        for record in records:
            yield _plain_text(record)


def _plain_text(record: "LogitsRecord") -> bytes:
    """Renders what a terminal would show as text without colours."""
    from rich.console import Console

    from tformer_cli.cli.logits_view import show_logits

    file = StringIO()
    show_logits(Console(file=file, no_color=True, width=80, highlight=False), record)
    gap = "\n" if record.sentence.index else ""
    return (gap + file.getvalue()).encode("utf-8", "replace")
