"""`tformer score`: what a model thinks of given translations."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tformer_cli.cli.console import utf8_line, warn
from tformer_cli.cli.decoding_options import LengthPenaltyOption, NormalizationChoice
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.options import (
    DecodingPrecisionChoice,
    DecodingPrecisionOption,
    DeviceOption,
    ModelArgument,
    OutputOption,
    QuietOption,
    ThreadsOption,
)
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    results,
    say_choices,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class ScoreFormatChoice(StrEnum):
    """Values of `--format`."""

    text = "text"
    tsv = "tsv"
    jsonl = "jsonl"


def score(
    model: ModelArgument,
    *,
    source: Annotated[
        str, typer.Option(metavar="FILE", help="Source text (-: stdin)."), PathRole.reads_file
    ],
    target: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Its translation, a line for a line."),
        PathRole.reads_file,
    ] = None,
    nbest: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Instead of --target: an n-best list (index ||| translation ||| features ||| "
            "score) to rank again.",
        ),
        PathRole.reads_file,
    ] = None,
    output: OutputOption = STANDARD_STREAM,
    output_format: Annotated[
        ScoreFormatChoice,
        typer.Option(
            "--format",
            help="text: the log-probability. tsv: index, source, target, log-probability, score. "
            "jsonl: an object a line, with every token's.",
        ),
    ] = ScoreFormatChoice.text,
    length_penalty: LengthPenaltyOption = None,
    length_normalization: Annotated[
        NormalizationChoice | None,
        typer.Option(help="Divide log-probabilities by A's formula, or by T [the model's]."),
    ] = None,
    coverage_penalty: Annotated[
        float | None,
        typer.Option(help="Weight of the penalty for source tokens not attended to [the model's]."),
    ] = None,
    device: DeviceOption = "auto",
    precision: DecodingPrecisionOption = DecodingPrecisionChoice.auto,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Force given translations through a model and print their log-probabilities.

    The log-probability is the natural logarithm, summed over the tokens and the end of sentence;
    the score is that after the penalties. With --nbest the list comes out ranked by score.
    """
    if (target is None) == (nbest is None):
        raise UsageError("--target: give either it or --nbest")
    if nbest is not None and output_format != ScoreFormatChoice.text:
        raise UsageError("--format: an n-best list keeps its own; leave it out")
    check_stdin_is_read_once([source, target or nbest])
    counts = LineCounts()
    texts = [file_lines(file, counts) for file in (source, target or nbest or "")]
    from tformer_cli.workflows import score as workflow
    from tformer_cli.workflows.open_translator import open_translator

    with results(output) as stream:
        opened = open_translator(
            model,
            device=device,
            precision=precision.value,
            threads=threads,
            length_penalty=length_penalty,
            length_normalization=None
            if length_normalization is None
            else length_normalization.value,
            coverage_penalty=coverage_penalty,
        )
        say_choices(opened, quiet=quiet)
        scored = workflow.ScoreCounts()
        lines: Iterator[str]
        if nbest is not None:
            lines = workflow.rank_again(opened, list(texts[0]), texts[1], nbest, scored)
        else:
            pairs = workflow.score_lines(opened, texts[0], texts[1], scored)
            lines = (workflow.format_score(pair, output_format.value) for pair in pairs)
        with line_progress(None, "scoring", quiet=quiet) as progress:
            for line in lines:
                stream.write(utf8_line(line))
                progress.update(scored.lines)
    warn_of_bytes(counts)
    if scored.truncated:
        warn(f"{count_of_lines(scored.truncated)} longer than the model takes, cut off")
