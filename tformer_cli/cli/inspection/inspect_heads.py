"""`tformer inspect-heads`: where every attention head looks.

The command only reads its options; each of its jobs has a module: `heads_sentences`,
`heads_corpus`, `heads_dump` and `heads_over_time`.
"""

from dataclasses import dataclass
from typing import Annotated, Unpack

import typer

from tformer_cli.cli.completion import complete_heads
from tformer_cli.cli.console import stdout_console
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.inspection.heads_corpus import sum_up_heads
from tformer_cli.cli.inspection.heads_dump import DumpOptions, dump_heads
from tformer_cli.cli.inspection.heads_output import HeadsFormat
from tformer_cli.cli.inspection.heads_over_time import show_heads_over_time
from tformer_cli.cli.inspection.heads_request import HeadsRequest, VerifyOption
from tformer_cli.cli.inspection.heads_sentences import show_sentences
from tformer_cli.cli.inspection.options import (
    OpeningArguments,
    SentenceOptions,
    TextsArgument,
    takes_opening_options,
)
from tformer_cli.cli.inspection.weights_option import WeightsOption
from tformer_cli.cli.option_groups import takes_groups
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption
from tformer_cli.cli.text_io import STANDARD_STREAM


def _explain(is_asked: bool) -> None:
    """Prints the rules of the roles, and ends the command."""
    if not is_asked:
        return
    from tformer_cli.inspection.figures.role_grid import show_role_rules

    show_role_rules(stdout_console())
    raise typer.Exit


SelectionOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HEADS",
        help="Heads to show: enc.0.3, cross.5.0-3, cross.last, dec.*.*, '!enc.0'. The syntax "
        "is KIND[.LAYER[.HEAD]], separated by commas. KIND: enc, dec, cross, self or *. LAYER "
        "and HEAD: n, a-b, a-, last, ^k, {list} or *. ! excludes. Metrics select too: "
        "'@prev>0.8', 'cross@entropy<1', '@role=sink', top:8@confidence. Repeatable.",
        show_default="all heads",
        autocompletion=complete_heads,
    ),
]
ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain",
        is_eager=True,
        callback=_explain,
        help="List the rules that give heads their roles, with their papers, and exit.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Jobs besides that of showing sentence after sentence; see also `DumpOptions`."""

    corpus: Annotated[
        bool,
        typer.Option(
            "--corpus",
            help="Summarize each head over all sentences, with 95 % confidence intervals.",
        ),
    ] = False
    over_time: Annotated[
        bool,
        typer.Option(
            "--over-time",
            help="Show each head's role at each step of a run trained with "
            "training.inspect_every. MODEL is the run directory; no sentence is read.",
        ),
    ] = False


@takes_opening_options
@takes_groups
def inspect_heads(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    sentences: SentenceOptions,
    heads: SelectionOption = None,
    output_format: Annotated[HeadsFormat | None, format_option(HeadsFormat, "jsonl")] = None,
    output: OutputOption = STANDARD_STREAM,
    weights: WeightsOption = None,
    jobs: JobOptions,
    dumping: DumpOptions,
    explain: ExplainOption = False,  # noqa: ARG001 - its callback does it
    verify: VerifyOption = None,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show where every attention head looks in a sentence.

    Row i of a map is the query, column j the key; in cross and dec, row i is the position that
    predicts target token i+1. Rows sum to 1. The translation is the one `tformer translate` gives.

    Examples:
        tformer inspect-heads runs/quickstart "The animal was tired."
        tformer inspect-heads runs/quickstart "It is old." --heads cross.last --format svg > it.svg
        tformer inspect-heads runs/quickstart --corpus -i corpus/test.en
    """
    request = HeadsRequest(
        model=model,
        texts=text,
        sentences=sentences,
        heads=tuple(heads or ()),
        output_format=output_format,
        chosen=chosen_format(output_format, output, HeadsFormat, HeadsFormat.jsonl),
        output=output,
        weights=weights,
        verify=verify,
        quiet=quiet,
        opening=opening,
        is_corpus=jobs.corpus,
        dump=dumping.dump,
    )
    dumping.check()
    if jobs.over_time:
        show_heads_over_time(request)
    elif dumping.dump is not None:
        dump_heads(request, dumping.dump, dumping)
    elif jobs.corpus:
        sum_up_heads(request)
    else:
        show_sentences(request)
