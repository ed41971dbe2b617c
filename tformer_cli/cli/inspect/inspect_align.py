"""`tformer inspect-align`: which words go together, by the heads of a model."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from tformer_cli.cli.format_choice import check_ending, chosen_format, format_option
from tformer_cli.cli.inspect.inspect_view import (
    OpeningArguments,
    emit_view,
    open_model,
    takes_opening_options,
)
from tformer_cli.cli.options import (
    ModelArgument,
    OutputOption,
    QuietOption,
    option_field,
    refuse,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    input_lines,
    note,
    results,
    utf8_line,
    warn,
    warn_of_bytes,
)
from tformer_cli.errors import DataError, UsageError
from tformer_cli.inspect.view import NoOptions, SourceOption, TextsArgument
from tformer_cli.inspect.views.corpus import ALIGNMENT_VIEW as VIEW
from tformer_cli.inspect.views.corpus import AlignmentScores
from tformer_cli.settings import Option
from tformer_cli.text.lines import LineCounts
from tformer_cli.text.pharaoh import format_links

if TYPE_CHECKING:
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.inspect.jobs.align import (
        Aligner,
        AlignmentReport,
        Bidirectional,
        PairTexts,
    )
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.text.pharaoh import GoldLinks, Link


EXTRACTION = "Links"  # The panel of options that decide what becomes a link


SCORING = "Scores against gold alignments"  # The panel of options that go with --gold


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """Sentences, their translations, and the words of both."""

    source: SourceOption = None
    target_file: str | None = option_field(
        None,
        "Target sentences, one per source line, to align with.",
        shown="the model's translations",
        role="reads_file",
    )
    source_words: str | None = option_field(
        None,
        "The source split into words by spaces, if links should count these words.",
        shown="the source's own spaces",
        role="reads_file",
    )
    target_words: str | None = option_field(
        None,
        "The target split into words by spaces, if links should count these words.",
        shown="the target's own spaces",
        role="reads_file",
    )

    @property
    def of_pairs(self) -> list[str | None]:
        return [self.target_file, self.source_words, self.target_words]


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """Heads that align, and rules by which their weights become links."""

    heads: list[str] | None = option_field(
        None,
        "Cross-attention heads to align with, such as cross.1.3, cross.2 or cross.last; averaged "
        "if there are several. Repeatable.",
        panel=EXTRACTION,
        shown="those stored by --save, else the last half of the layers",
        metavar="HEADS",
    )
    convention: Literal["naive", "shift"] | None = option_field(
        None,
        "Decoder position of a target token: the one that predicts it (naive), or the one that "
        "has read it (shift; SHIFT-ATT, Chen et al. 2020).",
        panel=EXTRACTION,
        shown="that of the stored heads; naive for --heads; else as unchanged words suggest",
    )
    threshold: float | None = option_field(
        None,
        "Link all word pairs with at least this attention weight, from 0 to 1.",
        panel=EXTRACTION,
        shown="each target word's largest weight",
        metavar="X",
        min=0.0,
        max=1.0,
    )
    eos: Literal["drop", "keep"] = option_field(
        "drop",
        "Weight on the end of sentence: ignore it (drop), or leave words that attend most to it "
        "without a link (keep).",
        panel=EXTRACTION,
    )
    reverse: Path | None = option_field(
        None,
        "A model for the reverse direction, to align both ways.",
        panel=EXTRACTION,
        role="reads_model",
    )
    method: Literal["intersection", "union", "grow-diag", "grow-diag-final-and"] = option_field(
        "grow-diag",
        "How to combine both directions of --reverse: intersection, union, grow-diag or "
        "grow-diag-final-and.",
        "--symmetrize",
        panel=EXTRACTION,
        metavar="METHOD",
    )


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Gold alignments, and scores against them."""

    gold: str | None = option_field(
        None,
        "Gold alignments (i-j sure, i?j possible) to score every head and layer against.",
        panel=SCORING,
        role="reads_file",
    )
    one_based: bool = option_field(False, "The gold file counts words from 1.", panel=SCORING)
    save: bool = option_field(
        False,
        "Store the best heads in the model directory, as the default for later commands.",
        panel=SCORING,
    )
    scores_format: Annotated[
        str | None, format_option(VIEW.formats, "jsonl", "Format of the scores.", SCORING)
    ] = None

    def chosen_format(self, pairs: PairOptions, links: LinkOptions, output: str) -> str:
        if pairs.target_file is None:
            if self.gold is not None:
                raise UsageError("--gold: needs translations; name their file with --target-file")
            if any(pairs.of_pairs):
                raise UsageError(
                    "--source-words, --target-words: need sentence pairs; add --target-file"
                )
        options = {"save": self.save, "format": self.scores_format, "one_based": self.one_based}
        if self.gold is None:
            values = {name: value or None for name, value in options.items()}
            refuse(values, "only for scores; name gold alignments with --gold")
        chosen = "jsonl"
        # Without scores the output is Pharaoh's links, for which there is no other format
        if self.gold is None:
            check_ending(output, ["pharaoh"])
        else:
            chosen = chosen_format(self.scores_format, output, VIEW.formats, chosen)
        if self.save and links.reverse is not None:
            raise UsageError("--save: only stores the heads of one model; omit --reverse")
        return chosen


BufferLinesOption = Annotated[
    int | None,
    Option(
        "Lines to read before aligning a buffer; 1 answers line by line.",
        min=1,
        metavar="N",
        panel="Large jobs",
        shown_default="1024; 1 from a terminal",
    ),
]


@takes_opening_options
def inspect_align(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    files: PairOptions,
    links: LinkOptions,
    scoring: ScoringOptions,
    output: OutputOption = STANDARD_STREAM,
    buffer_lines: BufferLinesOption = None,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Align words by cross-attention.

    Each sentence gets a line of Pharaoh links i-j, source first, that count space-separated words
    from 0. Without --target-file, each sentence is aligned with its translation by MODEL. With
    --gold, every head and every layer's mean is scored: alignment error rate (AER), precision and
    recall in percent.

    Examples:
        tformer inspect-align runs/quickstart "The old house is green."
        tformer inspect-align runs/quickstart -i corpus/test.tok.en --target-file corpus/test.tok.fr
        tformer inspect-align runs/quickstart -i a.en --target-file a.fr --gold a.align --save
    """
    chosen = scoring.chosen_format(files, links, output)
    if not text:
        check_stdin_is_read_once([files.source or STANDARD_STREAM, *files.of_pairs, scoring.gold])
    counts = LineCounts()
    lines = input_lines(text, files.source, counts, "--source", quiet=quiet)
    targets, *words, answers = (
        None if name is None else file_lines(name, counts, quiet=quiet)
        for name in (*files.of_pairs, scoring.gold)
    )
    from tformer_cli.inspect.jobs import align as workflow

    opened, aligner, both = _open_aligners(model, links, opening, quiet=quiet)
    # Against gold links every head is scored, and none is chosen
    if scoring.gold is None or both is not None:
        note(_describe_heads(aligner, both), quiet=quiet)
    report = workflow.AlignmentReport()
    pairs = None if targets is None else workflow.read_pairs(lines, targets, *words)
    if pairs is not None and answers is not None:
        known = workflow.read_gold(answers, str(scoring.gold), is_one_based=scoring.one_based)
        scores = _score_links(aligner, both, pairs, known, report, quiet=quiet)
        emit_view(VIEW, [scores], chosen, output, NoOptions())
        if scoring.save:
            _save(opened.directory, scores, quiet=quiet)
    else:
        is_typed = not text and files.source in (None, STANDARD_STREAM) and sys.stdin.isatty()
        # Who types lines waits for each answer; a buffer would hold them back
        buffer = buffer_lines or (1 if is_typed else workflow.BUFFER_LINES)
        how = both, report, buffer
        if pairs is not None:
            alignments = workflow.align_pairs(aligner, pairs, *how)
        else:
            alignments = workflow.align_translations(aligner, opened.translator, lines, *how)
        _write_links(alignments, output, report, buffer, quiet=quiet or is_typed)
    warn_of_bytes(counts)
    if report.truncated:
        warn(f"{count_of_lines(report.truncated)} longer than the model takes; aligned in part")


def _open_aligners(
    model: Path, links: LinkOptions, opening: OpeningArguments, *, quiet: bool
) -> "tuple[Opened, Aligner, Bidirectional | None]":
    """Opens a model and, to align both ways, the reverse model."""
    from tformer_cli.inspect.alignment import LinkRule
    from tformer_cli.inspect.jobs.align import Aligner, Bidirectional

    opened = open_model(model, opening, quiet=quiet)
    # Both before either aligns: a directory that cannot be used is the first error
    other = None
    if links.reverse is not None:
        # The reverse model reads the language that the first one writes
        turned: OpeningArguments = {
            **opening,
            "source_language": opening["target_language"],
            "target_language": opening["source_language"],
        }
        # Quiet: it computes on the first model's device, which was already noted
        other = open_model(links.reverse, turned, quiet=True)
    rule = LinkRule(threshold=links.threshold, keeps_eos=links.eos == "keep")
    aligner = Aligner(opened.directory, links.heads or (), links.convention, rule)
    if other is None:
        return opened, aligner, None
    backwards = Aligner(other.directory, rule=rule)
    return opened, aligner, Bidirectional(reverse=backwards, method=links.method)


def _describe_heads(aligner: "Aligner", both: "Bidirectional | None") -> str:
    choices = [aligner.choice, *([] if both is None else [both.reverse.choice])]
    sentence = f"aligning by {' and '.join(map(str, choices))}"
    if any(choice.reason == "default" for choice in choices):
        return f"{sentence}; find and store the best heads with --gold FILE --save"
    return sentence


def _score_links(
    aligner: "Aligner",
    both: "Bidirectional | None",
    pairs: "Iterable[PairTexts]",
    gold: "Iterable[GoldLinks]",
    report: "AlignmentReport",
    *,
    quiet: bool,
) -> AlignmentScores:
    from tformer_cli.inspect.jobs.align import score_directions, score_model

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


def _save(directory: "ModelDirectory", scores: AlignmentScores, *, quiet: bool) -> None:
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
    alignments: Iterable[set["Link"]],
    output: str,
    report: "AlignmentReport",
    buffer_lines: int,
    *,
    quiet: bool,
) -> None:
    with (
        results(output) as stream,
        line_progress(None, "aligning", quiet=quiet, output=output) as progress,
    ):
        for number, links in enumerate(alignments, 1):
            stream.write(utf8_line(format_links(links)))
            if number % buffer_lines == 0:
                # Who reads a pipe gets each buffer when it is done
                stream.flush()
                progress.update(report.lines)
