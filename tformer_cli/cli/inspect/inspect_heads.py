"""`tformer inspect-heads`: where every attention head looks.

One sentence after the other is the view `inspection.views.heads`; here are the command and its
other jobs: a corpus, its dump (`heads_dump`), and the roles over the steps of a run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from tformer_cli.cli.inspect.heads_dump import DumpOptions, dump_heads
from tformer_cli.cli.inspect.inspect_view import (
    emit_view,
    show_sentences,
    view_format,
    view_format_option,
)
from tformer_cli.cli.inspect.options import (
    GivenSentences,
    OpeningArguments,
    SentenceRequest,
    TextsArgument,
    read_with_progress,
    takes_opening_options,
)
from tformer_cli.cli.options import (
    ModelArgument,
    OutputOption,
    QuietOption,
    given_options,
    takes_groups,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    argument_lines,
    file_lines,
    stdout_console,
    warn,
    warn_of_bytes,
)
from tformer_cli.errors import DataError, UsageError
from tformer_cli.inspect.view import NoOptions
from tformer_cli.inspect.views import corpus, heads, repeats, timeline
from tformer_cli.inspect.views.heads import HeadsOptions, check_residual
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.heads.rare_tokens import TokenFrequencies
    from tformer_cli.kinds.opening.translator import Opened

OF_ONE_PASS = ("norm", "alti")
"""Weights that take a forced pass over one sentence to compute."""
NO_FREQUENCIES = "no frequencies.json in MODEL, and stdin is not read twice"


def _explain(is_asked: bool) -> None:
    """Prints the rules of the roles, and ends the command."""
    if not is_asked:
        return
    show_role_rules(stdout_console())
    raise typer.Exit


def show_role_rules(console: "Console") -> None:
    from tformer_cli.inspect.figures.role_grid import role_rules
    from tformer_cli.show.terminal import room_of, show_blocks

    show_blocks(console, role_rules(room_of(console)))


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
    repeats: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Measure the heads of a language model on N blocks of random tokens that come "
            "twice: previous-token, duplicate, induction and first-token scores, with 95 % "
            "confidence intervals. No sentence is read; --seed draws the tokens.",
            show_default="off",
        ),
    ] = None
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            is_eager=True,
            callback=_explain,
            help="List the rules that give heads their roles, with their papers, and exit.",
        ),
    ] = False


@takes_opening_options
@takes_groups
def inspect_heads(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    sentences: GivenSentences,
    options: HeadsOptions,
    output_format: Annotated[str | None, view_format_option(heads.VIEW)] = None,
    output: OutputOption = STANDARD_STREAM,
    jobs: JobOptions,
    dumping: DumpOptions,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show where every attention head looks in a sentence.

    Row i of a map is the query, column j the key; in cross and dec, row i is the position that
    predicts target token i+1. Rows sum to 1. The translation is the one `tformer translate` gives.
    Of a language model TEXT is what it reads, and all heads are dec; of a classifier or another
    encoder, enc. A masked language model fills each [MASK] in TEXT.

    Examples:
        tformer inspect-heads runs/quickstart "The animal was tired."
        tformer inspect-heads runs/quickstart "It is old." --heads cross.last --format svg > it.svg
        tformer inspect-heads runs/quickstart --corpus -i corpus/test.en
        tformer inspect-heads runs/shakespeare --repeats 64
    """
    given = given_options(sentences, options, jobs, dumping)
    given |= {name for name, value in (("TEXT", text), ("format", output_format)) if value}
    if output != STANDARD_STREAM:
        given.add("output")
    dumping.check()
    request = SentenceRequest(
        model=model, text=text, sentences=sentences, output=output, opening=opening, quiet=quiet
    )
    if jobs.over_time:
        _show_over_time(model, options.heads, given, output_format, output)
    elif jobs.repeats is not None:
        _refuse(given, OF_MODELS, "reads a text, but --repeats draws its own; omit it")
        _show_repeats(request, options.heads, jobs.repeats, output_format)
    elif dumping.dump is not None:
        _refuse(given, OF_SENTENCES[:2], "applies to single sentences; omit it with --dump")
        shown = ("corpus", "format", "output", "weights")
        _refuse(given, shown, "has no effect with --dump; omit one of the two")
        dump_heads(request, options, dumping.dump, dumping)
    elif jobs.corpus:
        _refuse(given, OF_SENTENCES, "applies to single sentences; omit it with --corpus")
        _sum_up(request, options, output_format)
    else:
        chosen = view_format(heads.VIEW, output_format, output)
        if options.weights in OF_ONE_PASS and options.mode == "live":
            raise UsageError(
                f"--weights {options.weights}: is measured in one pass over the finished "
                "hypothesis; omit --mode live"
            )
        show_sentences(heads.VIEW, request, options, chosen)


OF_SENTENCES = ("mode", "rank", "weights")
OF_MODELS = (
    *("TEXT", "source", "target", "target_file", "rank", "mode", "weights"),
    *("corpus", "dump", "verify"),
)
"""Options that apply where sentences are read."""


def _refuse(given: set[str], options: Iterable[str], why: str) -> None:
    """Makes sure that none of some options is given; the first one that is given is named."""
    for name in options:
        if name in given:
            option = "--mode live" if name == "mode" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{name if name == 'TEXT' else option}: {why}")


def _show_over_time(
    run: Path, selections: Sequence[str], given: set[str], output_format: str | None, output: str
) -> None:
    chosen = view_format(heads.VIEW, output_format, output)
    _refuse(given, OF_MODELS, "--over-time reads what the run has written; leave it out")
    if chosen not in timeline.VIEW.formats:
        formats = ", ".join(timeline.VIEW.formats)
        raise UsageError(f"--over-time: is for {formats}; --format {chosen} shows maps")

    from tformer_cli.inspect.heads.timeline import heads_over_time

    found = heads_over_time(run, selections)
    if not found.courses:
        warn("no head meets the conditions of --heads")
    emit_view(timeline.VIEW, [found], chosen, output, NoOptions())


def _show_repeats(
    request: SentenceRequest, selections: Sequence[str], n_blocks: int, output_format: str | None
) -> None:
    chosen = view_format(heads.VIEW, output_format, request.output)
    if chosen not in repeats.VIEW.formats:
        raise UsageError(f"--repeats: is for text and jsonl; --format {chosen} shows maps")

    from tformer_cli.heads.names import head_layout
    from tformer_cli.heads.selectors import select_heads
    from tformer_cli.inspect.heads.repeats import Repeats, measure_repeats

    directory = request.open(tasks=repeats.VIEW.tasks).directory
    selected = select_heads(selections, head_layout(directory.model))
    name, seed = directory.path.resolve().name, request.opening["seed"]
    with line_progress(n_blocks, "reading blocks", quiet=request.quiet) as progress:
        for found in measure_repeats(directory.model, name, selected, n_blocks, seed):
            if not isinstance(found, Repeats):
                progress.update(found)
    assert isinstance(found, Repeats)  # noqa: S101 - the last
    emit_view(repeats.VIEW, [found], chosen, request.output, NoOptions())


def _sum_up(request: SentenceRequest, options: HeadsOptions, output_format: str | None) -> None:
    """Measures the heads over a corpus and writes a table, or a line of JSON for each head."""
    chosen = view_format(heads.VIEW, output_format, request.output)
    if chosen not in corpus.VIEW.formats:
        raise UsageError(f"--corpus: is for text and jsonl; --format {chosen} shows one sentence")
    counts = LineCounts()
    lines, targets = request.read(counts)

    from tformer_cli.heads.rare_tokens import NO_RARE_SENTENCE
    from tformer_cli.inspect.jobs.corpus import CorpusInspector
    from tformer_cli.inspect.jobs.heads import frequencies_of

    opened = request.open(tasks=heads.VIEW.tasks)
    config = opened.directory.config
    has_source = not (config.is_decoder_only or config.reads_images)
    frequencies = None
    if has_source:  # rare words are of sources
        frequencies = frequencies_of(opened.directory) or _counted(opened, request)
    inspector = CorpusInspector(
        opened, options.heads, frequencies=frequencies, seed=request.opening["seed"]
    )
    lines_done = inspector.read(lines, targets)
    read_with_progress(lines_done, inspector.report, "inspecting heads", quiet=request.quiet)
    if not inspector.n_sentences:
        raise DataError("--source: no sentence fits the model; give shorter sentences")
    summaries = inspector.summaries()
    if not summaries:
        warn("--heads: no head meets the conditions")
    residual = max((one.residual for one in summaries), default=0.0)
    check_residual(residual, options.verify, "of the corpus")
    reason = NO_RARE_SENTENCE if frequencies else NO_FREQUENCIES
    reason = "" if inspector.report.rare or not has_source else reason
    record = corpus.CorpusRecord(summaries=summaries, rare_reason=reason)
    emit_view(corpus.VIEW, [record], chosen, request.output, NoOptions())
    warn_of_bytes(counts)


def _counted(opened: "Opened", request: SentenceRequest) -> "TokenFrequencies | None":
    """Counts the tokens of the corpus, which is read twice then; None where that cannot be."""
    from tformer_cli.inspect.jobs.corpus import count_frequencies

    text, source = request.text, request.sentences.source
    if text and text != [STANDARD_STREAM]:
        return count_frequencies(opened, argument_lines(text, LineCounts()))
    if source is None or not Path(source).is_file():
        return None
    return count_frequencies(opened, file_lines(source, LineCounts()))
