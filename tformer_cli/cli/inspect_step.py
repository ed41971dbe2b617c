"""`tformer inspect-step`: one head for one token, step by step."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from tformer_cli.cli.completion import complete_heads
from tformer_cli.cli.console import utf8_line
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.inspection_options import (
    OpeningArguments,
    SourceOption,
    TargetOption,
    open_model,
    takes_opening_options,
)
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    argument_lines,
    input_lines,
    results,
    text_console,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.inspection.walkthrough.quiz import Quiz
    from tformer_cli.inspection.walkthrough.step import StepRecord


class StepFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
    html = "html"
    json = "json"


WORKSHEET = "Worksheet"
"""The panel of options that make one."""


@takes_opening_options
def inspect_step(
    model: ModelArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The sentence; without it, -i or stdin.")
    ] = None,
    *,
    source: SourceOption = None,
    token: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            help="Query token: a word or piece of the source (enc), or of what the decoder "
            "predicts (dec, cross). it#2 is the second it; a number is a position, from 0.",
        ),
    ],
    head: Annotated[
        str,
        typer.Option(
            metavar="HEAD",
            help="One head, such as enc.0.3 or cross.last.0.",
            autocompletion=complete_heads,
        ),
    ],
    key: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Key token to compute with, named like --token: of the source (enc, cross) or of "
            "what the decoder has read (dec).",
            show_default="the one with the largest weight",
        ),
    ] = None,
    target: TargetOption = None,
    output_format: Annotated[StepFormat | None, format_option(StepFormat, "json")] = None,
    output: OutputOption = STANDARD_STREAM,
    quiz: Annotated[
        bool,
        typer.Option(
            "--quiz",
            help="Make a worksheet: some numbers become blanks to fill in; --seed chooses which.",
            rich_help_panel=WORKSHEET,
        ),
    ] = False,
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File for the worksheet's answers.",
            show_default="the end of the worksheet",
            rich_help_panel=WORKSHEET,
        ),
        PathRole.writes_file,
    ] = None,
    verify: Annotated[
        float,
        typer.Option(
            metavar="X",
            min=0.0,
            help="Exit with status 1 if a step differs from the model's own number by more.",
        ),
    ] = 1e-4,
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
    chosen = chosen_format(output_format, output, StepFormat, StepFormat.json)
    _check_usage(output, answers, is_quiz=quiz)
    counts = LineCounts()
    line = _only_line(text, source, counts, quiet=quiet)

    from tformer_cli.workflows.inspect_step import step_of

    opened = open_model(model, opening, quiet=quiet)
    if target is not None:
        target = next(argument_lines([target], counts))
    record = step_of(opened, line, token=token, head=head, key=key, target=target, tolerance=verify)
    _write(record, chosen, output, _quiz_of(record, opening["seed"]) if quiz else None, answers)
    warn_of_bytes(counts)


def _check_usage(output: str, answers: str | None, *, is_quiz: bool) -> None:
    if answers is not None and not is_quiz:
        raise UsageError("--answers: applies to a worksheet; add --quiz")
    if answers is not None and answers == output:
        raise UsageError(f"--answers: {answers} is the worksheet's own file; name another file")


def _only_line(text: str | None, source: str | None, counts: LineCounts, *, quiet: bool) -> str:
    """The one sentence to look at."""
    lines = input_lines(None if text is None else [text], source, counts, "--source", quiet=quiet)
    first = next(lines, None)
    if first is None or next(lines, None) is not None:
        number = "none" if first is None else "several"
        raise UsageError(f"TEXT: must be one sentence, but there are {number}; give one")
    return first


def _quiz_of(record: "StepRecord", seed: int) -> "Quiz":
    from tformer_cli.inspection.walkthrough.quiz import make_quiz

    return make_quiz(record, seed)


def _write(
    record: "StepRecord",
    chosen: StepFormat,
    output: str,
    quiz: "Quiz | None",
    answers: str | None,
) -> None:
    from tformer_cli.inspection.walkthrough.quiz import answer_key

    with results(output) as stream:
        if chosen == StepFormat.text:
            from tformer_cli.cli.step_view import show_steps

            show_steps(text_console(output, stream), record, quiz)
            if quiz is not None and answers is None:
                stream.write(f"\n{answer_key(record, quiz)}".encode("utf-8", "replace"))
        else:
            stream.write(_rendered(record, chosen, quiz, with_answers=answers is None))
    if quiz is not None and answers is not None:
        with results(answers) as stream:
            stream.write(answer_key(record, quiz).encode("utf-8", "replace"))


def _rendered(
    record: "StepRecord", chosen: StepFormat, quiz: "Quiz | None", *, with_answers: bool
) -> bytes:
    if chosen == StepFormat.json:
        from tformer_cli.inspection.views.render_step_json import render_step_json

        return utf8_line(render_step_json(record, quiz, with_answers=with_answers))
    from tformer_cli.inspection.views.render_step_html import render_step_html

    html = render_step_html(record, quiz, with_answers=with_answers)
    return html.encode("utf-8", "replace")
