"""`tformer inspect-step`, `inspect-report` and `inspect-diff`: looking closely."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Unpack

from tformer_cli.cli.format_choice import check_ending
from tformer_cli.cli.inspect.inspect_view import (
    GivenSentences,
    OpeningArguments,
    TargetOption,
    emit_view,
    open_model,
    read_with_progress,
    takes_opening_options,
    view_format,
    view_format_option,
)
from tformer_cli.cli.options import (
    Holds,
    ModelArgument,
    OutputOption,
    QuietOption,
    argument,
    option_field,
    prepare_torch,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    argument_lines,
    input_lines,
    note_choices,
    results,
    warn,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.inspect.view import ReportOptions, SourceOption, TextsArgument
from tformer_cli.plugins.instruments.views.diff import VIEW as DIFF_VIEW
from tformer_cli.plugins.instruments.views.diff import DiffOptions
from tformer_cli.plugins.instruments.views.step import VIEW, StepOptions
from tformer_cli.text.lines import LineCounts

WORKSHEET = "Worksheet"  # The panel of options that make one


@dataclass(frozen=True, kw_only=True)
class WorksheetOptions:
    """Worksheet with blanks, and the file of its answers."""

    quiz: bool = option_field(
        False,
        "Make a worksheet: some numbers become blanks to fill in; --seed chooses which.",
        panel=WORKSHEET,
    )
    answers: str | None = option_field(
        None,
        "File for the worksheet's answers.",
        panel=WORKSHEET,
        shown="the end of the worksheet",
        role="writes_file",
        holds=("text",),
    )

    handout: int = option_field(
        1,
        "N different worksheets with one key: other blanks and, unless --token and --head are "
        "given, other heads and tokens.",
        panel=WORKSHEET,
        metavar="N",
        min=1,
    )

    def check(self, output: str) -> None:
        if self.handout > 1 and not self.quiz:
            raise UsageError("--handout: only for worksheets; add --quiz")
        if self.answers is not None and not self.quiz:
            raise UsageError("--answers: only for a worksheet; add --quiz")
        if self.answers is not None and self.answers == output:
            raise UsageError(
                f"--answers: {self.answers} is the worksheet's own file; name another file"
            )


@takes_opening_options
def inspect_step(
    model: ModelArgument,
    text: str | None = argument(
        "TEXT", "The sentence; without it, reads -i or stdin.", default=None
    ),
    *,
    source: SourceOption = None,
    options: StepOptions,
    target: TargetOption = None,
    output_format: Annotated[str | None, view_format_option(VIEW)] = None,
    output: OutputOption = STANDARD_STREAM,
    worksheet: WorksheetOptions,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Work through one attention head with the model's numbers.

    For one token you see query, keys and values, scores, softmax, the weighted sum, the joined
    heads, residual and norm, the feed-forward layer, and the chosen word. Each step is computed
    from the previous one and compared with the model's own result.

    Examples:
        tformer inspect-step runs/quickstart "It is old." --token 0 --head cross.0.2
        tformer inspect-step runs/quickstart "It is old." --quiz --handout 4 -o sheets.html
    """
    chosen = view_format(VIEW, output_format, output)
    worksheet.check(output)
    counts = LineCounts()
    line = _only_line(text, source, counts, quiet=quiet)

    from tformer_cli.inspect.jobs.views import read_sentences
    from tformer_cli.plugins.instruments.walkthrough.worksheet import (
        answer_key,
        has_weight,
        make_quiz,
    )

    opened = open_model(model, opening, quiet=quiet, tasks=VIEW.tasks)
    targets = None if target is None else [*argument_lines([target], counts)]  # of each sheet
    key_of_quiz, answers, records = "", worksheet.answers, []
    for sheet in range(worksheet.handout):
        chosen_options = replace(options, sheet=sheet) if worksheet.quiz else options
        record = next(read_sentences(VIEW, opened, [line], targets, chosen_options))
        if worksheet.quiz:
            quiz = make_quiz(record, opening["seed"] + sheet)
            record = replace(record, quiz=quiz, with_answers=answers is None)
            if not has_weight(record):
                warn(
                    f"{record.head} gives {record.token} nearly one weight, so none is a blank; "
                    "omit --head or --token"
                )
            key_of_quiz += answer_key(record, sheet + 1 if worksheet.handout > 1 else None)
        records.append(record)
    after = f"\n{key_of_quiz}" if worksheet.quiz and answers is None else ""
    emit_view(VIEW, records, chosen, output, options, after_text=after)
    if answers is not None:
        with results(answers) as stream:
            # A lone surrogate of the sentence has no bytes in UTF-8
            stream.write(key_of_quiz.encode("utf-8", "replace"))
    warn_of_bytes(counts)


def _only_line(text: str | None, source: str | None, counts: LineCounts, *, quiet: bool) -> str:
    texts = None if text is None else [text]
    lines = input_lines(texts, source, counts, "--source", quiet=quiet)
    first = next(lines, None)
    if first is None or next(lines, None) is not None:
        number = "none" if first is None else "several"
        raise UsageError(f"TEXT: must be one sentence, but there are {number}; give one")
    return first


@takes_opening_options
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

    The page shows every head as a map, by itself and with all others, with its role and measures,
    and which query and key dimensions make a weight; with --mode live, the tree of the beam search;
    heads worked out step by step; logits and the logit lens; what each token is made of; positions;
    and the loss without each head. It is a single file that loads nothing. The same input gives the
    same bytes. For a language model, TEXT is its input; for a classifier, a text or the name of an
    image, and a tab shows the heads' maps over the image.

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
    lines, targets = sentences.read(text, counts, quiet=quiet)

    from tformer_cli.inspect.pages import render_report
    from tformer_cli.plugins.instruments.jobs.report import TASKS
    from tformer_cli.plugins.instruments.jobs.report import inspect_report as make_report

    opened = open_model(model, opening, quiet=quiet, rank=options.rank, tasks=TASKS)
    with line_progress(None, "inspecting", quiet=quiet) as progress:
        observe = progress.update
        report = make_report(opened, lines, targets=targets, options=options, observe=observe)
    with results(output) as stream:
        stream.write(render_report(report).encode("utf-8", "replace"))
    warn_of_bytes(counts)


@takes_opening_options
def inspect_diff(
    first: Path = argument(
        "A",
        "Model directory or name (`tformer models`), or RUN/checkpoints/step-NNNNNN of a run.",
        role="reads_model",
    ),
    second: Path = argument("B", "The model to compare it with.", role="reads_model"),
    text: TextsArgument = None,
    *,
    sentences: GivenSentences,
    options: DiffOptions,
    output_format: Annotated[str | None, view_format_option(DIFF_VIEW)] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Match the heads of two models and show what changed.

    Both models read the same sentences and targets; by default the targets are A's translations.
    Heads are matched to minimize the sum of the Jensen-Shannon divergences between their maps (mean
    over rows, in nats: 0 identical, 0.693 nothing in common); for a moved head, "in place" is the
    divergence from its namesake. The signed map shows the pair that changed most, on the first
    sentence.

    Examples:
        tformer inspect-diff runs/a runs/b "The animal was tired."
        tformer inspect-diff runs/a/checkpoints/step-000100 runs/a -i a.en --heads cross
    """
    chosen = view_format(DIFF_VIEW, output_format, output)
    if options.maps and chosen != "jsonl":
        raise UsageError(f"--maps: only for jsonl; --format {chosen} already shows the map")
    counts = LineCounts()
    sentences.check(text)
    from tformer_cli.plugins.instruments.jobs.diff import ModelComparer, open_models

    # Before the models are opened, so that both compute with these threads
    prepare_torch(opening["threads"])
    opened, other = open_models(first, second, **opening)
    lines, targets = sentences.read(text, counts, quiet=quiet)
    comparer = ModelComparer(opened, other, options.heads, options.match)
    note_choices(opened, quiet=quiet)
    lines_done = comparer.read(lines, targets)
    read_with_progress(lines_done, comparer.report, "comparing heads", quiet=quiet)
    diff = comparer.diff()
    if not diff.changes:
        warn("--heads: no head meets the conditions")
    emit_view(DIFF_VIEW, [diff], chosen, output, options)
    warn_of_bytes(counts)
