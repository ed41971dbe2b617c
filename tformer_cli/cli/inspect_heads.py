"""`tformer inspect-heads`: where every attention head looks."""

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from tformer_cli.cli.console import stdout_console, warn
from tformer_cli.cli.heads_dump import (
    DumpOption,
    MaxBytesOption,
    ShardPairsOption,
    TopKOption,
    dump_heads,
    dump_settings,
    dumped_corpus,
)
from tformer_cli.cli.heads_output import BINARY, HeadsFormat, write_records, write_summaries
from tformer_cli.cli.inspection_options import (
    FOUND_OR_GIVEN,
    HypothesisOption,
    OpeningArguments,
    SourceOption,
    TargetFileOption,
    TargetOption,
    TextsArgument,
    chosen_format,
    open_model,
    sentences_and_targets,
    takes_opening_options,
)
from tformer_cli.cli.line_progress import counted, line_progress
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption
from tformer_cli.cli.text_io import STANDARD_STREAM, count_of_lines, warn_of_bytes
from tformer_cli.cli.weights_option import OF_ONE_PASS, WeightsOption
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import DataError, TformerError, UsageError

if TYPE_CHECKING:
    from tformer_cli.inspection.head_statistics import HeadSummary
    from tformer_cli.inspection.record import HeadsRecord
    from tformer_cli.inspection.weighting import WeightingName
    from tformer_cli.workflows.inspect_corpus import CorpusInspector


class CaptureModeChoice(StrEnum):
    """Values of `--mode`."""

    forced = "forced"
    live = "live"


def _explain(is_asked: bool) -> None:
    """Prints the rules of the roles, and ends the command."""
    if not is_asked:
        return
    from tformer_cli.cli.role_grid import role_rules

    console = stdout_console()
    console.print(role_rules(is_ascii=not console.encoding.lower().startswith("utf")))
    raise typer.Exit


@takes_opening_options
def inspect_heads(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    source: SourceOption = None,
    target: TargetOption = None,
    target_file: TargetFileOption = None,
    hypothesis: HypothesisOption = 1,
    mode: Annotated[
        CaptureModeChoice,
        typer.Option(
            help="forced: one pass over the finished translation. live: the rows of the search "
            "that found it, along its back-pointers."
        ),
    ] = CaptureModeChoice.forced,
    heads: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SELECTION",
            help="KIND[.LAYER[.HEAD]], separated by commas; KIND: enc, dec, cross, self or *; "
            "LAYER and HEAD: n, a-b, a-, last, ^k, {list} or *; ! takes away. "
            "Such as enc.0.3, cross.5.0-3, cross.last, '!enc.0'. Metrics may decide: "
            "'@prev>0.8', 'cross@entropy<1', '@role=sink', top:8@confidence. "
            "Repeatable [all heads].",
        ),
    ] = None,
    output_format: Annotated[
        HeadsFormat | None,
        typer.Option(
            "--format",
            help="[tty on a terminal, jsonl elsewhere; by FILE's name].",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = STANDARD_STREAM,
    weights: WeightsOption = None,
    corpus: Annotated[
        bool,
        typer.Option(
            "--corpus",
            help="Sum up each head over all sentences, with 95 % intervals: a table on a "
            "terminal, a line of JSON for each head elsewhere.",
        ),
    ] = False,
    over_time: Annotated[
        bool,
        typer.Option(
            "--over-time",
            help="Show the role that each head had at each step of a run that was trained with "
            "training.inspect_every; MODEL is its run directory, no sentence is read.",
        ),
    ] = False,
    dump: DumpOption = None,
    topk: TopKOption = None,
    max_bytes: MaxBytesOption = "2G",
    shard_pairs: ShardPairsOption = 4096,
    explain: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option(
            "--explain",
            is_eager=True,
            callback=_explain,
            help="Tell by which rules heads have roles, and end.",
        ),
    ] = False,
    verify: Annotated[
        float | None,
        typer.Option(
            metavar="TOLERANCE",
            min=0.0,
            help="Fail (status 1) if weights explain the model's output less exactly than this.",
        ),
    ] = None,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show where every attention head looks while a sentence is translated.

    Row i of a map is the query, column j the key; in cross and dec, row i is the position that
    predicts target token i+1. Rows sum to 1. The translation is the one `tformer translate` gives.
    """
    chosen = chosen_format(output_format, output, HeadsFormat, HeadsFormat.jsonl)
    if over_time:
        from tformer_cli.cli.heads_over_time import show_heads_over_time

        given = {
            "TEXT": bool(text),
            "--source": source is not None,
            "--target": target is not None,
            "--target-file": target_file is not None,
            "--hypothesis": hypothesis > 1,
            "--mode": mode != CaptureModeChoice.forced,
            "--weights": weights is not None,
            "--corpus": corpus,
            "--dump": dump is not None,
            "--verify": verify is not None,
        }
        show_heads_over_time(model, heads or (), chosen, output, given)
        return
    _check_usage(chosen, output)
    is_given = target is not None or target_file is not None
    many = "--corpus" if corpus else "" if dump is None else "--dump"
    _check_capture(mode, hypothesis, is_given=is_given, many=many)
    if dump is not None:
        _check_dump(
            {
                "--corpus": corpus,
                "--format": output_format is not None,
                "--output": output != STANDARD_STREAM,
                "--weights": weights is not None,
            }
        )
        settings = dump_settings(heads, topk, max_bytes, shard_pairs, verify)
        dumped = dumped_corpus(text, source, target, target_file)
        dump_heads(open_model(model, opening, quiet=quiet), dumped, dump, settings, quiet=quiet)
        return
    if topk is not None:
        raise UsageError("--topk: is for dumps; add --dump DIR")
    if weights in OF_ONE_PASS and mode == CaptureModeChoice.live:
        raise UsageError(
            f"--weights {weights}: is measured in one pass over the finished hypothesis; "
            "leave --mode live out"
        )
    if corpus and chosen not in (HeadsFormat.tty, HeadsFormat.jsonl):
        raise UsageError(f"--corpus: is for tty and jsonl; --format {chosen} shows one sentence")
    if corpus and weights:
        raise UsageError("--weights: is of single sentences; leave it out with --corpus")
    counts = LineCounts()
    lines, targets = sentences_and_targets(text, source, target, target_file, counts)

    from tformer_cli.workflows.inspect_corpus import CorpusInspector
    from tformer_cli.workflows.inspect_heads import HeadInspector
    from tformer_cli.workflows.weigh_heads import HeadWeigher

    opened = open_model(model, opening, quiet=quiet, hypothesis=hypothesis)
    if corpus:
        over_all = CorpusInspector(opened, heads or (), seed=opening["seed"])
        summaries = _summed_up(over_all, lines, targets, quiet=quiet)
        _check_residual(max((s.residual for s in summaries), default=0.0), verify, "of the corpus")
        write_summaries(summaries, chosen, output)
        warn_of_bytes(counts)
        return
    weighting: WeightingName = "alpha" if weights is None else weights.value
    weigher = None if weighting == "alpha" else HeadWeigher(opened, weighting, heads or ())
    selections = () if weigher else heads or ()
    inspector = HeadInspector(opened, selections, mode=mode.value, hypothesis=hypothesis)
    inspected = inspector.inspect(lines, targets)
    if weigher:
        inspected = map(weigher.weigh, inspected)
    with counted(_verified(inspected, verify), "inspecting heads", output, quiet=quiet) as records:
        write_records(
            records, chosen, output, with_weights=weights is not None, selected=bool(heads)
        )
    warn_of_bytes(counts)


def _check_usage(chosen: HeadsFormat, output: str) -> None:
    if chosen in BINARY and output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError(f"--format {chosen}: is not text for a terminal; name a file with -o FILE")


def _check_capture(mode: CaptureModeChoice, hypothesis: int, *, is_given: bool, many: str) -> None:
    for is_asked, option in (
        (mode == CaptureModeChoice.live, "--mode live"),
        (hypothesis > 1, "--hypothesis"),
    ):
        if is_asked and is_given:
            raise UsageError(FOUND_OR_GIVEN.format(option))
        if is_asked and many:
            raise UsageError(f"{option}: is of single sentences; leave it out with {many}")


def _check_dump(others: dict[str, bool]) -> None:
    for option, is_given in others.items():
        if is_given:
            raise UsageError(f"{option}: has no meaning with --dump; leave one of them out")


def _verified(records: Iterable["HeadsRecord"], tolerance: float | None) -> Iterator["HeadsRecord"]:
    """Passes records on and stops at one whose residual is above the tolerance."""
    for record in records:
        if record.maps is not None:
            _check_residual(record.captured.residual, tolerance, f"line {record.index + 1}")
        yield record


def _check_residual(residual: float, tolerance: float | None, where: str) -> None:
    if tolerance is not None and not residual <= tolerance:
        raise TformerError(
            f"residual {residual:.2g} is above {tolerance:.2g} ({where}): "
            "the maps do not explain the model's output so exactly"
        )


def _summed_up(
    inspector: "CorpusInspector",
    lines: Iterable[str],
    targets: Iterable[str] | None,
    *,
    quiet: bool,
) -> "list[HeadSummary]":
    """Reads a whole corpus, with progress on stderr."""
    with line_progress(None, "inspecting heads", quiet=quiet) as progress:
        for n_lines in inspector.read(lines, targets):
            progress.update(n_lines)
    if inspector.report.too_long:
        warn(f"{count_of_lines(inspector.report.too_long)} longer than the model takes, left out")
    if not inspector.n_sentences:
        raise DataError("holds no sentence that fits (--source): there is nothing to sum up")
    summaries = inspector.summaries()
    if not summaries:
        warn("no head meets the conditions of --heads")
    return summaries
