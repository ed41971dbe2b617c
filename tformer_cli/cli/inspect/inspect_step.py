"""`tformer inspect-step`: one head for one token, step by step."""

from dataclasses import dataclass, replace
from typing import Annotated, Unpack

import typer

from tformer_cli.artifacts.config_file import read_config
from tformer_cli.cli.inspect.inspect_view import (
    OpeningArguments,
    SourceOption,
    TargetOption,
    emit_view,
    open_model,
    takes_opening_options,
    view_format,
    view_format_option,
)
from tformer_cli.cli.options import (
    Holds,
    ModelArgument,
    OutputOption,
    PathRole,
    QuietOption,
    option_field,
    takes_groups,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    argument_lines,
    input_lines,
    results,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.inspect.views.step import VIEW, StepOptions
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
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File for the worksheet's answers.",
            show_default="the end of the worksheet",
            rich_help_panel=WORKSHEET,
        ),
        PathRole.writes_file,
        Holds({"text"}),
    ] = None

    def check(self, output: str) -> None:
        if self.answers is not None and not self.quiz:
            raise UsageError("--answers: applies to a worksheet; add --quiz")
        if self.answers is not None and self.answers == output:
            raise UsageError(
                f"--answers: {self.answers} is the worksheet's own file; name another file"
            )


@takes_opening_options
@takes_groups
def inspect_step(
    model: ModelArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The sentence; without it, -i or stdin.")
    ] = None,
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

    For one token: query, keys and values, scores, softmax, the weighted sum, the heads joined,
    residual and layer norm, and the word that is chosen: each step is computed from the one before
    and compared with what the model itself computed.

    Examples:
        tformer inspect-step runs/quickstart "It is old." --token 0 --head cross.0.2
        tformer inspect-step runs/quickstart "It is old." --token it --head enc.0.1 --quiz
    """
    chosen = view_format(VIEW, output_format, output)
    worksheet.check(output)
    counts = LineCounts()
    names = read_config(model).model.reads_images
    line = _only_line(text, source, counts, quiet=quiet, takes_names=names)

    from tformer_cli.inspect.jobs.report import read_sentences
    from tformer_cli.inspect.walkthrough.step import answer_key, make_quiz

    opened = open_model(model, opening, quiet=quiet, tasks=VIEW.tasks)
    targets = None if target is None else argument_lines([target], counts)
    record = next(read_sentences(VIEW, opened, [line], targets, options))
    key_of_quiz, answers = "", worksheet.answers
    if worksheet.quiz:
        quiz = make_quiz(record, opening["seed"])
        record = replace(record, quiz=quiz, with_answers=answers is None)
        key_of_quiz = answer_key(record)
    after = f"\n{key_of_quiz}" if worksheet.quiz and answers is None else ""
    emit_view(VIEW, [record], chosen, output, options, after_text=after)
    if answers is not None:
        with results(answers) as stream:
            stream.write(key_of_quiz.encode("utf-8", "replace"))
    warn_of_bytes(counts)


def _only_line(
    text: str | None, source: str | None, counts: LineCounts, *, quiet: bool, takes_names: bool
) -> str:
    texts = None if text is None else [text]
    lines = input_lines(texts, source, counts, "--source", quiet=quiet, takes_names=takes_names)
    first = next(lines, None)
    if first is None or next(lines, None) is not None:
        number = "none" if first is None else "several"
        raise UsageError(f"TEXT: must be one sentence, but there are {number}; give one")
    return first
