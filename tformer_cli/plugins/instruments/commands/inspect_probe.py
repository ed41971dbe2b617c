"""`tformer inspect-probe`: what the states of each layer know, by linear probes."""

from typing import Annotated, Unpack

from tformer_cli.artifacts.config_file import check_model
from tformer_cli.cli.inspect.inspect_view import (
    OpeningArguments,
    SourceOption,
    emit_view,
    open_model,
    takes_opening_options,
    view_format,
    view_format_option,
)
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption, option_field
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    file_lines,
    warn_of_bytes,
)
from tformer_cli.plugins.instruments.views.probe import VIEW, ProbeOptions
from tformer_cli.text.lines import LineCounts, check_file


@takes_opening_options
def inspect_probe(
    model: ModelArgument,
    *,
    source: SourceOption = None,
    labels: str | None = option_field(
        None,
        "Labels for the words of --source, such as parts of speech: one per word, separated by "
        "spaces, line by line.",
        shown="none",
        role="reads_file",
    ),
    target_file: str | None = option_field(
        None,
        "Targets that the decoder reads, one per source line.",
        shown="the model's translations",
        role="reads_file",
    ),
    options: ProbeOptions,
    output_format: Annotated[str | None, view_format_option(VIEW)] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show what each layer knows about words, with linear probes.

    A softmax regression predicts a property of each token from its state: its position, the token
    before or after, the length of its word, or your own labels. It is tested on held-out sentences
    and compared with the share of the most frequent label and with a control task, random labels by
    word (Hewitt and Liang 2019): accuracy without selectivity is only the probe's memory. Labels
    belong to the words of the source, or of a language model's text.

    Examples:
        tformer inspect-probe runs/quickstart -i corpus/valid.en
        tformer inspect-probe runs/quickstart -i a.en --labels a.tags --property label
        tformer inspect-probe runs/shakespeare -i a.txt --property next
    """
    chosen = view_format(VIEW, output_format, output)
    check_model(model, VIEW.tasks)
    check_stdin_is_read_once(files := [source or STANDARD_STREAM, labels, target_file])
    for file in files:
        if file not in (None, STANDARD_STREAM):
            check_file(file)
    counts = LineCounts()
    label_lines, targets = (file and file_lines(file, counts) for file in (labels, target_file))

    from tformer_cli.plugins.instruments.jobs.probe import inspect_probe as probe

    opened = open_model(model, opening, quiet=quiet, tasks=VIEW.tasks)
    with line_progress(None, "reading", quiet=quiet) as progress:
        report = probe(
            opened,
            file_lines(source or STANDARD_STREAM, counts, quiet=quiet),
            labels=label_lines,
            targets=targets,
            settings=options,
            progress=progress.update,
            seed=opening["seed"],
        )
    emit_view(VIEW, [report], chosen, output, options)
    warn_of_bytes(counts)
