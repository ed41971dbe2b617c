"""`tformer inspect-heads`: where every attention head looks.

One sentence after the other is the view `inspect.views.heads`; here are the command and its
other jobs: a corpus, its dump, and the roles over the steps of a run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from tformer_cli.cli.inspect.inspect_view import (
    CommandWithWeights,
    GivenSentences,
    OpeningArguments,
    SentenceRequest,
    emit_view,
    read_with_progress,
    show_sentences,
    takes_opening_options,
    view_format,
    view_format_option,
)
from tformer_cli.cli.options import (
    ModelArgument,
    OutputOption,
    QuietOption,
    given_options,
    option_field,
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
from tformer_cli.inspect.view import NoOptions, TextsArgument
from tformer_cli.inspect.views import heads
from tformer_cli.inspect.views.heads import HeadsOptions, check_residual
from tformer_cli.kinds import reads_words
from tformer_cli.sockets import load_place
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.heads.roles import TokenFrequencies
    from tformer_cli.kinds.stored_model import Opened


PANEL = "Dumps of a corpus"
COMMAND_CLASS = CommandWithWeights


@dataclass(frozen=True, kw_only=True)
class DumpOptions:
    """Directory and size of a dump."""

    dump: Path | None = option_field(
        None,
        "Write the maps of all sentences to shards in DIR. Run the same command again to resume.",
        panel=PANEL,
        role="writes_directory",
    )
    top_k: int | None = option_field(
        None,
        "Keep only the K largest weights of each row, and the sum of the rest.",
        panel=PANEL,
        shown="all weights",
        metavar="K",
        min=1,
        max=65534,
    )
    max_bytes: str = option_field(
        "2G",
        "Refuse to write a dump larger than this, such as 500M or 20G.",
        panel=PANEL,
        metavar="SIZE",
    )
    shard_pairs: int = option_field(
        4096,
        "Maximum number of sentences per shard; a shard has at most 64 MiB.",
        panel=PANEL,
        metavar="N",
        min=1,
    )

    def check(self) -> None:
        if self.top_k is not None and self.dump is None:
            raise UsageError("--top-k: only for dumps; add --dump DIR")


DUMP_HEADS = "tformer_cli.plugins.instruments.commands.dump_heads:dump_heads"
ONE_PASS_WEIGHTS = ("norm", "alti")  # Weights that take a forced pass over one sentence to compute
NO_FREQUENCIES = "no frequencies.json in MODEL, and stdin is not read twice"


def _explain(is_asked: bool) -> None:
    if not is_asked:
        return
    show_role_rules(stdout_console())
    # The option is eager, as --version is: no MODEL needs to be named
    raise typer.Exit


def show_role_rules(console: "Console") -> None:
    from tformer_cli.heads.roles import role_rules
    from tformer_cli.show.terminal import room_of, show_blocks

    show_blocks(console, role_rules(room_of(console)))


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Jobs other than showing one sentence after another; see also `DumpOptions`."""

    corpus: bool = option_field(
        False, "Summarize each head over all sentences, with 95 % confidence intervals."
    )
    over_time: bool = option_field(
        False,
        "Show each head's role at each step of a run trained with training.inspect_every. MODEL "
        "is the run directory; no sentence is read.",
    )
    repeats: int | None = option_field(
        None,
        "Measure the heads of a language model on N repeated blocks of random tokens: "
        "previous-token, duplicate, induction and first-token scores, with 95 % confidence "
        "intervals. No sentence is read; --seed draws the tokens.",
        shown="off",
        metavar="N",
        min=2,
    )
    explain: bool = option_field(
        False,
        "List the rules that assign roles to heads, with their papers, and exit.",
        callback=_explain,
    )


@takes_opening_options
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
    predicts target token i+1. Rows sum to 1. The translation is the one that `tformer translate`
    gives. For a language model, TEXT is its input, and all heads are dec; for a classifier or
    another encoder, all are enc. A masked language model fills each [MASK] in TEXT; a tagger labels
    each word.

    Examples:
        tformer inspect-heads runs/quickstart "The animal was tired."
        tformer inspect-heads runs/quickstart "It is old." --heads cross.last --format svg > it.svg
        tformer inspect-heads runs/quickstart --corpus -i corpus/test.en
        tformer inspect-heads runs/shakespeare --repeats 64
    """
    names = given_options(sentences, options, jobs, dumping)
    names |= {name for name, value in (("TEXT", text), ("format", output_format)) if value}
    if output != STANDARD_STREAM:
        names.add("output")
    dumping.check()
    request = SentenceRequest(
        model=model, text=text, sentences=sentences, output=output, opening=opening, quiet=quiet
    )
    if jobs.over_time:
        _show_over_time(model, options.heads, names, output_format, output)
    elif jobs.repeats is not None:
        _refuse(names, READING_OPTIONS, "reads a text, but --repeats draws its own; omit it")
        _show_repeats(request, options.heads, jobs.repeats, output_format)
    elif dumping.dump is not None:
        _refuse(names, SENTENCE_OPTIONS[:2], "only for single sentences; omit it with --dump")
        shown = ("corpus", "format", "output", "weights")
        _refuse(names, shown, "has no effect with --dump; omit one of the two")
        load_place(DUMP_HEADS)(request, options, dumping.dump, dumping)
    elif jobs.corpus:
        _refuse(names, SENTENCE_OPTIONS, "only for single sentences; omit it with --corpus")
        _sum_up(request, options, output_format)
    else:
        chosen = view_format(heads.VIEW, output_format, output)
        if options.weights in ONE_PASS_WEIGHTS and options.mode == "live":
            raise UsageError(
                f"--weights {options.weights}: needs one pass over the finished hypothesis; omit "
                "--mode live"
            )
        show_sentences(heads.VIEW, request, options, chosen)


SENTENCE_OPTIONS = ("mode", "rank", "weights")
READING_OPTIONS = (
    *("TEXT", "source", "target", "target_file", "rank", "mode", "weights"),
    *("corpus", "dump", "verify"),
)


def _refuse(names: set[str], options: Iterable[str], why: str) -> None:
    """Refuses options, naming the first one that is given."""
    for name in options:
        if name in names:
            option = "--mode live" if name == "mode" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{name if name == 'TEXT' else option}: {why}")


def _show_over_time(
    run: Path, selections: Sequence[str], names: set[str], output_format: str | None, output: str
) -> None:
    from tformer_cli.inspect.views import timeline

    chosen = view_format(heads.VIEW, output_format, output)
    _refuse(names, READING_OPTIONS, "--over-time reads the files of the run; omit it")
    if chosen not in timeline.VIEW.formats:
        formats = ", ".join(timeline.VIEW.formats)
        raise UsageError(f"--over-time: only for {formats}; --format {chosen} shows maps")

    record = timeline.heads_over_time(run, selections)
    if not record.courses:
        warn("no head meets the conditions of --heads")
    emit_view(timeline.VIEW, [record], chosen, output, NoOptions())


def _show_repeats(
    request: SentenceRequest, selections: Sequence[str], n_blocks: int, output_format: str | None
) -> None:
    from tformer_cli.inspect.views import corpus

    chosen = view_format(heads.VIEW, output_format, request.output)
    if chosen not in corpus.REPEATS_VIEW.formats:
        raise UsageError(f"--repeats: only for text and jsonl; --format {chosen} shows maps")

    from tformer_cli.heads.names import head_layout
    from tformer_cli.heads.selectors import select_heads
    from tformer_cli.inspect.heads.repeats import Repeats, measure_repeats

    directory = request.open(tasks=corpus.REPEATS_VIEW.tasks).directory
    selected = select_heads(selections, head_layout(directory.model))
    name, seed = directory.path.resolve().name, request.opening["seed"]
    with line_progress(n_blocks, "reading blocks", quiet=request.quiet) as progress:
        for repeats in measure_repeats(directory.model, name, selected, n_blocks, seed):
            if not isinstance(repeats, Repeats):
                progress.update(repeats)
    assert isinstance(repeats, Repeats)  # noqa: S101 - the last
    emit_view(corpus.REPEATS_VIEW, [repeats], chosen, request.output, NoOptions())


def _sum_up(request: SentenceRequest, options: HeadsOptions, output_format: str | None) -> None:
    from tformer_cli.inspect.views import corpus

    chosen = view_format(heads.VIEW, output_format, request.output)
    if chosen not in corpus.VIEW.formats:
        raise UsageError(f"--corpus: only for text and jsonl; --format {chosen} shows one sentence")
    counts = LineCounts()
    lines, targets = request.read(counts)

    from tformer_cli.heads.roles import NO_RARE_SENTENCE
    from tformer_cli.inspect.jobs.heads import frequencies_of
    from tformer_cli.inspect.jobs.reader import CorpusInspector

    opened = request.open(tasks=heads.VIEW.tasks)
    has_source = reads_words(opened.config)
    frequencies = None
    if has_source:  # rare words are of sources
        frequencies = frequencies_of(opened.directory) or _count_tokens(opened, request)
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
    residual = max((summary.residual for summary in summaries), default=0.0)
    check_residual(residual, options.verify, "of the corpus")
    reason = NO_RARE_SENTENCE if frequencies else NO_FREQUENCIES
    reason = "" if inspector.report.rare or not has_source else reason
    record = corpus.CorpusRecord(summaries=summaries, rare_reason=reason)
    emit_view(corpus.VIEW, [record], chosen, request.output, NoOptions())
    warn_of_bytes(counts)


def _count_tokens(opened: "Opened", request: SentenceRequest) -> "TokenFrequencies | None":
    """Counts the tokens of the corpus, which is read twice then; None where that cannot be."""
    from tformer_cli.inspect.jobs.reader import count_frequencies

    text, source = request.text, request.sentences.source
    if text and text != [STANDARD_STREAM]:
        return count_frequencies(opened, argument_lines(text, LineCounts()))
    if source is None or not Path(source).is_file():
        return None
    return count_frequencies(opened, file_lines(source, LineCounts()))
