"""`tformer inspect-report`: all of the inspection of a few sentences in one HTML file."""

import sys
from typing import Annotated, Unpack

from tformer_cli.artifacts.config_file import read_config
from tformer_cli.cli.format_choice import check_ending
from tformer_cli.cli.inspect.inspect_view import (
    GivenSentences,
    OpeningArguments,
    TextsArgument,
    open_model,
    takes_opening_options,
)
from tformer_cli.cli.options import Holds, ModelArgument, OutputOption, QuietOption, takes_groups
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import STANDARD_STREAM, results, warn_of_bytes
from tformer_cli.errors import UsageError
from tformer_cli.inspect.view import ReportOptions
from tformer_cli.text.lines import LineCounts


@takes_opening_options
@takes_groups
def inspect_report(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    sentences: GivenSentences,
    options: ReportOptions,
    output: Annotated[OutputOption, Holds({"HTML"})] = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Write one HTML page with every view of a few sentences.

    Every head as a map, alone and beside all others, with its role and measures, and which
    dimensions of query and key make a weight; with --mode live the tree of the beam search; heads
    worked out step by step; logits and the logit lens; what each token is made of; positions; the
    loss without each head. The page is one file and fetches nothing. The same input gives the same
    bytes. Of a language model TEXT is what it reads, of a classifier what it labels: a text or the
    name of an image, over which a tab has the heads' maps.

    Examples:
        tformer inspect-report runs/quickstart "The animal was tired." -o report.html
        tformer inspect-report runs/quickstart "A cat sleeps." --mode live -o search.html
        tformer inspect-report runs/quickstart -i a.en --heads cross --no-ablation -o cross.html
    """
    if output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError("--output: a page is not for a terminal; name a file with -o FILE")
    check_ending(output, ["html"])
    sentences.check_searched(options)
    counts = LineCounts()
    names = read_config(model).model.reads_images
    lines, targets = sentences.read(text, counts, quiet=quiet, takes_names=names)

    from tformer_cli.inspect.jobs.report import TASKS
    from tformer_cli.inspect.jobs.report import inspect_report as make_report
    from tformer_cli.inspect.pages import render_report

    opened = open_model(model, opening, quiet=quiet, rank=options.rank, tasks=TASKS)
    with line_progress(None, "inspecting", quiet=quiet) as progress:
        observe = progress.update
        report = make_report(opened, lines, targets=targets, options=options, observe=observe)
    with results(output) as stream:
        stream.write(render_report(report).encode("utf-8", "replace"))
    warn_of_bytes(counts)
