"""`tformer inspect-diff`: which head of one model is which of another, and what has changed."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Unpack

import typer

from tformer_cli.cli.completion import complete_heads
from tformer_cli.cli.console import warn
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.inspection.inspect_view import emit_view
from tformer_cli.cli.inspection.options import (
    GivenSentences,
    OpeningArguments,
    TextsArgument,
    takes_opening_options,
)
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.option_groups import takes_groups
from tformer_cli.cli.options import OutputOption, QuietOption
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    count_of_lines,
    note_choices,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError
from tformer_cli.inspection.views.diff import VIEW, DiffOptions


class DiffFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
    jsonl = "jsonl"
    svg = "svg"
    png = "png"
    html = "html"


class MatchingChoice(StrEnum):
    """Values of `--match`."""

    layer = "layer"
    kind = "kind"


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(GivenSentences):
    """Sentences that both models read, and the heads that are compared."""

    target: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Target that both models read (forced decoding).",
            show_default="A's translation",
        ),
    ] = None
    target_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Targets, one per source line.",
            show_default="A's translations",
        ),
        PathRole.reads_file,
    ] = None
    heads: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEADS",
            help="Heads of A to compare, as `tformer inspect-heads` takes them; metrics are A's. "
            "Repeatable.",
            show_default="all heads",
            autocompletion=complete_heads,
        ),
    ] = None
    match: Annotated[
        MatchingChoice | None,
        typer.Option(
            help="Match heads within their layer, or across all layers of their kind. Swapping "
            "heads within a layer does not change a model; swapping across layers does.",
            show_default="layer if A and B have the same layers and heads, else kind",
        ),
    ] = None
    maps: Annotated[
        bool,
        typer.Option(
            "--maps", help="Add the map B - A of each pair, on the first sentence, to jsonl."
        ),
    ] = False


@takes_opening_options
@takes_groups
def inspect_diff(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="A", help="Model directory, or RUN/checkpoints/step-NNNNNN of a run."
        ),
        PathRole.reads_directory,
    ],
    second: Annotated[
        Path,
        typer.Argument(metavar="B", help="The model to compare it with."),
        PathRole.reads_directory,
    ],
    text: TextsArgument = None,
    *,
    compared: ComparisonOptions,
    output_format: Annotated[DiffFormat | None, format_option(DiffFormat, "jsonl")] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Match the heads of two models and show what changed.

    Both models read the same sentences and targets. Heads are matched so that the sum of the
    Jensen-Shannon divergences of their maps is smallest (mean over rows, in nats: 0 the same, 0.693
    nothing in common); "in place" is that of a moved head from its namesake. The signed map is of
    the first sentence and of the pair that changed most.

    Examples:
        tformer inspect-diff runs/a runs/b "The animal was tired."
        tformer inspect-diff runs/a/checkpoints/step-000100 runs/a -i a.en --heads cross
    """
    chosen = chosen_format(output_format, output, DiffFormat, DiffFormat.jsonl)
    if chosen == DiffFormat.png and output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError("--format png: is not text for a terminal; name a file with -o FILE")
    if compared.maps and chosen != DiffFormat.jsonl:
        raise UsageError(f"--maps: is for jsonl; --format {chosen} shows the map already")
    counts = LineCounts()
    lines, targets = compared.read(text, counts, quiet=quiet)

    from tformer_cli.workflows.inspect_diff import ModelComparer, open_models

    opened, other = open_models(first, second, **opening)
    comparer = ModelComparer(
        opened,
        other,
        compared.heads or (),
        compared.match.value if compared.match else None,
    )
    note_choices(opened, quiet=quiet)
    with line_progress(None, "comparing heads", quiet=quiet) as progress:
        for n_lines in comparer.read(lines, targets):
            progress.update(n_lines)
    if comparer.report.too_long:
        warn(f"{count_of_lines(comparer.report.too_long)} longer than a model takes; skipped")
    diff = comparer.diff()
    if not diff.changes:
        warn("--heads: no head meets the conditions")
    emit_view(VIEW, [diff], chosen, output, DiffOptions(maps=compared.maps))
    warn_of_bytes(counts)
