"""`tformer score`: what a model thinks of given translations."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tformer_cli.cli.console import utf8_line, warn
from tformer_cli.cli.decoding_options import (
    CoveragePenaltyOption,
    LengthPenaltyOption,
    NormalizationOption,
)
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
        str,
        typer.Option(
            "--source", "-i", metavar="FILE", help="Source sentences, one per line; - is stdin."
        ),
        PathRole.reads_file,
    ],
    target_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Their translations, one per line; - is stdin."),
        PathRole.reads_file,
    ] = None,
    n_best_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Instead of --target-file: an n-best list to rerank, in the format of --format "
            "moses (index ||| translation ||| features ||| score).",
        ),
        PathRole.reads_file,
    ] = None,
    output: OutputOption = STANDARD_STREAM,
    output_format: Annotated[
        ScoreFormatChoice,
        typer.Option(
            "--format",
            help="text: the log-probability. tsv: index, source, target, log-probability, score. "
            "jsonl: one object per line, with the log-probability of every token.",
        ),
    ] = ScoreFormatChoice.text,
    length_penalty: LengthPenaltyOption = None,
    length_normalization: NormalizationOption = None,
    coverage_penalty: CoveragePenaltyOption = None,
    device: DeviceOption = "auto",
    precision: DecodingPrecisionOption = DecodingPrecisionChoice.auto,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Score given translations by the model's probabilities.

    This is forced decoding. The log-probability is the sum of natural logarithms over the tokens
    and the end of sentence. The score is the log-probability after the penalties; --n-best-file
    ranks by it.

    Examples:
        tformer score runs/quickstart -i corpus/test.en --target-file corpus/test.fr
        tformer score runs/quickstart -i a.en --n-best-file a.nbest > reranked.nbest
    """
    if (target_file is None) == (n_best_file is None):
        raise UsageError("--target-file: is missing or doubled; give either it or --n-best-file")
    if n_best_file is not None and output_format != ScoreFormatChoice.text:
        raise UsageError("--format: an n-best list keeps its own; omit it")
    check_stdin_is_read_once([source, target_file or n_best_file])
    counts = LineCounts()
    texts = [
        file_lines(file, counts, quiet=quiet) for file in (source, target_file or n_best_file or "")
    ]
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
        if n_best_file is not None:
            lines = workflow.rank_again(opened, list(texts[0]), texts[1], n_best_file, scored)
        else:
            pairs = workflow.score_lines(opened, texts[0], texts[1], scored)
            lines = (workflow.format_score(pair, output_format.value) for pair in pairs)
        with line_progress(None, "scoring", quiet=quiet) as progress:
            for line in lines:
                stream.write(utf8_line(line))
                progress.update(scored.lines)
    warn_of_bytes(counts)
    if scored.truncated:
        warn(f"{count_of_lines(scored.truncated)} longer than the model takes; truncated")
