"""`tformer inspect-report`: all of the inspection of a few sentences in one HTML file."""

import sys
from typing import Annotated

import typer

from tformer_cli.cli.decoding_options import BeamSizeOption, LengthPenaltyOption
from tformer_cli.cli.line_progress import line_progress
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


def inspect_report(
    model: ModelArgument,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Sentences; without any, --source or stdin."),
    ] = None,
    *,
    source: Annotated[
        str | None,
        typer.Option("--source", "-i", metavar="FILE", help="File of sentences (-: stdin)."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Look at this target instead of the translation."),
    ] = None,
    target_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of targets, one for each sentence.")
    ] = None,
    heads: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SELECTION", help="Heads to show, as inspect-heads takes them [all heads]."
        ),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEAD:TOKEN",
            help="Work this head out for this token, as inspect-step does, such as "
            "cross.0.1:word; repeatable [the clearest head of each kind].",
        ),
    ] = None,
    ablation: Annotated[
        bool,
        typer.Option(help="Measure each sentence's loss without each head; slow for large models."),
    ] = True,
    output: OutputOption = STANDARD_STREAM,
    beam_size: BeamSizeOption = None,
    length_penalty: LengthPenaltyOption = None,
    device: DeviceOption = "auto",
    seed: SeedOption = 1,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Write all of the inspection of a few sentences as one HTML page.

    Every head as a map, alone and beside all others in colour, with its role and measures; heads
    worked out step by step; logits and the logit lens; positions; the loss without each head. The
    page opens from the disk, fetches nothing, and the same input gives the same bytes.
    """
    if output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError("--output: a page is not for a terminal; name a file with -o FILE")
    if target is not None and target_file is not None:
        raise UsageError("--target: --target-file gives the targets already; leave one of them out")
    if not text:
        check_stdin_is_read_once([source or STANDARD_STREAM, target_file])
    counts = LineCounts()
    lines = input_lines(text, source, counts, "--source")
    targets = None if target_file is None else file_lines(target_file, counts)
    if target is not None:
        targets = argument_lines([target], counts)

    from tformer_cli.inspection.render_report import render_report
    from tformer_cli.workflows.inspect_report import Reporter
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
    reporter = Reporter(opened, heads=heads or (), steps=step or (), with_ablation=ablation)
    say_choices(opened, quiet=quiet)
    with line_progress(None, "inspecting", quiet=quiet) as progress:
        report = reporter.report(lines, targets, progress.update)
    with results(output) as stream:
        stream.write(render_report(report).encode("utf-8"))
    warn_of_bytes(counts)
