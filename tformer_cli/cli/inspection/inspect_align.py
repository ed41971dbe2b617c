"""`tformer inspect-align`: which words go together, by the heads of a model."""

import sys
from collections.abc import Iterable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from tformer_cli.cli.console import is_live, note, utf8_line, warn
from tformer_cli.cli.emit import emit
from tformer_cli.cli.format_choice import check_ending, chosen_format, format_option
from tformer_cli.cli.help_screen import LARGE_JOBS
from tformer_cli.cli.inspection.alignment_options import (
    ConventionOption,
    EosChoice,
    EosOption,
    HeadsOption,
    MethodChoice,
    MethodOption,
    ReverseOption,
    SourceWordsOption,
    TargetFileOption,
    TargetWordsOption,
    ThresholdOption,
)
from tformer_cli.cli.inspection.alignment_table import score_lines, show_scores
from tformer_cli.cli.inspection.options import (
    OpeningArguments,
    SourceOption,
    TextsArgument,
    open_model,
    takes_opening_options,
)
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    input_lines,
    results,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.data.pharaoh import format_links
from tformer_cli.errors import DataError, UsageError

if TYPE_CHECKING:
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.data.pharaoh import GoldLinks, Link
    from tformer_cli.inspection.alignment.links import Convention
    from tformer_cli.workflows.inspect_align import AlignmentReport, Bidirectional, PairTexts
    from tformer_cli.workflows.inspection.aligner import Aligner
    from tformer_cli.workflows.inspection.score_alignment import AlignmentScores


class ScoresFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
    jsonl = "jsonl"
    tsv = "tsv"


SCORING = "Scores against gold alignments"
"""The panel of options that go with --gold."""


@takes_opening_options
def inspect_align(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    source: SourceOption = None,
    target_file: TargetFileOption = None,
    source_words: SourceWordsOption = None,
    target_words: TargetWordsOption = None,
    heads: HeadsOption = None,
    convention: ConventionOption = None,
    threshold: ThresholdOption = None,
    eos: EosOption = EosChoice.drop,
    reverse: ReverseOption = None,
    method: MethodOption = MethodChoice.grow_diag,
    gold: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Gold alignments (i-j sure, i?j possible) to score every head and layer with.",
            rich_help_panel=SCORING,
        ),
        PathRole.reads_file,
    ] = None,
    one_based: Annotated[
        bool,
        typer.Option(
            "--one-based", help="The gold file counts words from 1.", rich_help_panel=SCORING
        ),
    ] = False,
    save: Annotated[
        bool,
        typer.Option(
            "--save",
            help="Store the best heads in the model directory, as the default for later commands.",
            rich_help_panel=SCORING,
        ),
    ] = False,
    scores_format: Annotated[
        ScoresFormat | None,
        format_option(ScoresFormat, "jsonl", "Format of the scores.", SCORING),
    ] = None,
    output: OutputOption = STANDARD_STREAM,
    buffer_lines: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Lines read before a buffer is aligned; 1 answers line by line.",
            show_default="1024; 1 from a terminal",
            rich_help_panel=LARGE_JOBS,
        ),
    ] = None,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Align words by cross-attention.

    Each sentence gets a line of Pharaoh links i-j. Links count words, which spaces separate, from
    0: source first. Without --target-file each sentence is aligned with its translation. With
    --gold every head and every layer's mean is scored: alignment error rate (AER), precision and
    recall in percent.

    Examples:
        tformer inspect-align runs/quickstart "The old house is green."
        tformer inspect-align runs/quickstart -i corpus/test.tok.en --target-file corpus/test.tok.fr
        tformer inspect-align runs/quickstart -i a.en --target-file a.fr --gold a.align --save
    """
    _check_pairs(target_file, (source_words, target_words), gold)
    _check_scores(gold, {"--save": save, "--format": scores_format, "--one-based": one_based})
    chosen = ScoresFormat.jsonl
    if gold is None:
        check_ending(output, ["pharaoh"])
    else:
        chosen = chosen_format(scores_format, output, ScoresFormat, chosen)
    if save and reverse is not None:
        raise UsageError("--save: stores the heads of one model; omit --reverse")
    if not text:
        files = [source or STANDARD_STREAM, target_file, source_words, target_words, gold]
        check_stdin_is_read_once(files)
    counts = LineCounts()
    lines = input_lines(text, source, counts, "--source", quiet=quiet)
    targets, *words, answers = (
        None if name is None else file_lines(name, counts, quiet=quiet)
        for name in (target_file, source_words, target_words, gold)
    )

    from tformer_cli.inspection.alignment.links import LinkRule
    from tformer_cli.workflows import inspect_align as workflow
    from tformer_cli.workflows.inspection.aligner import Aligner

    opened, *other = (
        open_model(path, opening, quiet=quiet or path is reverse)
        for path in (model, reverse)
        if path is not None
    )
    rule = LinkRule(threshold=threshold, keeps_eos=eos == EosChoice.keep)
    given: Convention | None = None if convention is None else convention.value
    aligner = Aligner(opened.directory, heads or (), given, rule)
    both = None
    if other:
        backwards = Aligner(other[0].directory, rule=rule)
        both = workflow.Bidirectional(reverse=backwards, method=method.value)
    if gold is None or both is not None:
        note(_heads_said(aligner, both), quiet=quiet)
    report = workflow.AlignmentReport()
    pairs = None if targets is None else workflow.read_pairs(lines, targets, *words)
    if pairs is not None and answers is not None:
        known = workflow.read_gold(answers, str(gold), is_one_based=one_based)
        scores = _scored(aligner, both, pairs, known, report, quiet=quiet)
        _write_scores(scores, chosen, output)
        if save:
            _save(opened.directory, scores, quiet=quiet)
    else:
        is_typed = not text and source in (None, STANDARD_STREAM) and sys.stdin.isatty()
        buffer = buffer_lines or (1 if is_typed else workflow.BUFFER_LINES)
        found = (
            workflow.align_pairs(aligner, pairs, both, report, buffer)
            if pairs is not None
            else workflow.align_translations(
                aligner, opened.translator, lines, both, report, buffer
            )
        )
        _write_links(found, output, report, buffer, quiet=quiet or is_typed)
    warn_of_bytes(counts)
    if report.truncated:
        warn(f"{count_of_lines(report.truncated)} longer than the model takes; aligned in part")


def _check_pairs(
    target_file: str | None, words: tuple[str | None, str | None], gold: str | None
) -> None:
    if target_file is not None:
        return
    if gold is not None:
        raise UsageError("--gold: needs given translations; name their file with --target-file")
    if any(words):
        raise UsageError("--source-words, --target-words: need sentence pairs; add --target-file")


def _check_scores(gold: str | None, options: dict[str, object]) -> None:
    for option, value in options.items():
        if value and gold is None:
            raise UsageError(f"{option}: applies to scores; name gold alignments with --gold")


def _heads_said(aligner: "Aligner", both: "Bidirectional | None") -> str:
    """Describes which heads align, and what to do where nothing is known of them."""
    choices = [aligner.choice, *([] if both is None else [both.reverse.choice])]
    said = f"aligning by {' and '.join(map(str, choices))}"
    if any(choice.reason == "default" for choice in choices):
        return f"{said}; find and store the best heads with --gold FILE --save"
    return said


def _scored(
    aligner: "Aligner",
    both: "Bidirectional | None",
    pairs: "Iterable[PairTexts]",
    gold: "Iterable[GoldLinks]",
    report: "AlignmentReport",
    *,
    quiet: bool,
) -> "AlignmentScores":
    """Scores heads, or two directions, and shows progress until all is done."""
    from tformer_cli.workflows.inspection.score_alignment import score_directions, score_model

    so_far = (
        score_model(aligner, pairs, gold, report)
        if both is None
        else score_directions(aligner, both.reverse, pairs, gold, report)
    )
    scores = None
    with line_progress(None, "scoring alignments", quiet=quiet) as progress:
        for scores in so_far:
            progress.update(report.lines)
    if scores is None:
        raise DataError("--source: has no lines; give a text with sentences")
    return scores


def _write_scores(scores: "AlignmentScores", chosen: ScoresFormat, output: str) -> None:
    lines = partial(score_lines, scores, chosen.value)
    emit(
        output,
        chosen,
        show=partial(show_scores, scores=scores),
        others={"jsonl": lines, "tsv": lines},
    )


def _save(directory: "ModelDirectory", scores: "AlignmentScores", *, quiet: bool) -> None:
    from tformer_cli.artifacts.config_file import AlignmentInfo
    from tformer_cli.artifacts.model_directory import store_alignment

    best = scores.best
    assert best.convention is not None  # noqa: S101 - of two directions there is nothing to save
    store_alignment(directory.path, AlignmentInfo(heads=best.name, convention=best.convention))
    rate = 100 * best.counts.error_rate
    note(
        f"stored {best.name} ({best.convention}), AER {rate:.1f}, in {directory.path}", quiet=quiet
    )


def _write_links(
    found: Iterable[set["Link"]],
    output: str,
    report: "AlignmentReport",
    buffer_lines: int,
    *,
    quiet: bool,
) -> None:
    """Writes a line of links for each line, and hands them on whenever a buffer is done."""
    # A bar would be drawn over results on the same terminal
    is_quiet = quiet or (output == STANDARD_STREAM and sys.stdout.isatty() and is_live())
    with results(output) as stream, line_progress(None, "aligning", quiet=is_quiet) as progress:
        for number, links in enumerate(found, 1):
            stream.write(utf8_line(format_links(links)))
            if number % buffer_lines == 0:
                stream.flush()
                progress.update(report.lines)
