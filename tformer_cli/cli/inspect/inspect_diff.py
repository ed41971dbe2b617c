"""`tformer inspect-diff`: which head of one model is which of another, and what has changed."""

from pathlib import Path
from typing import Annotated, Unpack

import typer

from tformer_cli.cli.inspect.inspect_view import (
    GivenSentences,
    OpeningArguments,
    TextsArgument,
    emit_view,
    read_with_progress,
    takes_opening_options,
    view_format,
    view_format_option,
)
from tformer_cli.cli.options import OutputOption, PathRole, QuietOption, prepare_torch, takes_groups
from tformer_cli.cli.streams import STANDARD_STREAM, note_choices, warn, warn_of_bytes
from tformer_cli.errors import UsageError
from tformer_cli.inspect.views.diff import VIEW, DiffOptions
from tformer_cli.text.lines import LineCounts


@takes_opening_options
@takes_groups
def inspect_diff(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="A", help="Model directory, or RUN/checkpoints/step-NNNNNN of a run."
        ),
        PathRole.reads_model,
    ],
    second: Annotated[
        Path,
        typer.Argument(metavar="B", help="The model to compare it with."),
        PathRole.reads_model,
    ],
    text: TextsArgument = None,
    *,
    sentences: GivenSentences,
    options: DiffOptions,
    output_format: Annotated[str | None, view_format_option(VIEW)] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Match the heads of two models and show what changed.

    Both models read the same sentences and targets; without given ones these are A's translations.
    Heads are matched so that the sum of the Jensen-Shannon divergences of their maps is smallest
    (mean over rows, in nats: 0 the same, 0.693 nothing in common); "in place" is that of a moved
    head from its namesake. The signed map is of the first sentence and of the pair that changed
    most.

    Examples:
        tformer inspect-diff runs/a runs/b "The animal was tired."
        tformer inspect-diff runs/a/checkpoints/step-000100 runs/a -i a.en --heads cross
    """
    chosen = view_format(VIEW, output_format, output)
    if options.maps and chosen != "jsonl":
        raise UsageError(f"--maps: is for jsonl; --format {chosen} shows the map already")
    counts = LineCounts()
    sentences.check(text)
    from tformer_cli.inspect.jobs.diff import ModelComparer, open_models

    prepare_torch(opening["threads"])
    opened, other = open_models(first, second, **opening)
    names = opened.directory.config.reads_images
    lines, targets = sentences.read(text, counts, quiet=quiet, takes_names=names)
    comparer = ModelComparer(opened, other, options.heads, options.match)
    note_choices(opened, quiet=quiet)
    lines_done = comparer.read(lines, targets)
    read_with_progress(lines_done, comparer.report, "comparing heads", quiet=quiet)
    diff = comparer.diff()
    if not diff.changes:
        warn("--heads: no head meets the conditions")
    emit_view(VIEW, [diff], chosen, output, options)
    warn_of_bytes(counts)
