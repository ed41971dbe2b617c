"""`tformer inspect-heads --corpus`: each head summed up over all sentences."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.console import warn
from tformer_cli.cli.emit import emit
from tformer_cli.cli.inspection.heads_output import HeadsFormat
from tformer_cli.cli.inspection.heads_request import HeadsRequest
from tformer_cli.cli.inspection.options import open_model
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    argument_lines,
    count_of_lines,
    file_lines,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tformer_cli.inspection.heads.rare_tokens import TokenFrequencies
    from tformer_cli.inspection.heads.statistics import HeadSummary
    from tformer_cli.workflows.inspection.inspect_corpus import CorpusInspector
    from tformer_cli.workflows.open_translator import Opened

FORMATS = (HeadsFormat.text, HeadsFormat.jsonl)
NO_FREQUENCIES = "no frequencies.json in MODEL, and stdin is not read twice"


def sum_up_heads(request: HeadsRequest) -> None:
    """Measures the heads over a corpus and writes a table, or a line of JSON for each head.

    Raises:
        UsageError: if the options are of single sentences, or contradict each other.
        ArtifactError: if the model directory cannot be used.
        DataError: if there is no sentence, or there are more or fewer targets.
        TformerError: if the maps are less exact than `--verify` asks.
    """
    request.refuse(
        ("--mode live", "--rank", "--weights"),
        "applies to single sentences; omit it with --corpus",
    )
    if request.chosen not in FORMATS:
        raise UsageError(
            f"--corpus: is for text and jsonl; --format {request.chosen} shows one sentence"
        )
    counts = LineCounts()
    lines, targets = request.sentences.read(request.texts, counts, quiet=request.quiet)

    from tformer_cli.inspection.heads.rare_tokens import NO_RARE_SENTENCE
    from tformer_cli.workflows.inspect_heads import frequencies_of
    from tformer_cli.workflows.inspection.inspect_corpus import CorpusInspector

    opened = open_model(request.model, request.opening, quiet=request.quiet)
    frequencies = frequencies_of(opened.directory) or _counted(opened, request)
    inspector = CorpusInspector(
        opened, request.heads, frequencies=frequencies, seed=request.opening["seed"]
    )
    summaries = _summed_up(inspector, lines, targets, quiet=request.quiet)
    request.check_residual(max((s.residual for s in summaries), default=0.0), "of the corpus")
    reason = "" if inspector.report.rare else NO_RARE_SENTENCE if frequencies else NO_FREQUENCIES
    _write(summaries, request.chosen, request.output, reason)
    warn_of_bytes(counts)


def _counted(opened: "Opened", request: HeadsRequest) -> "TokenFrequencies | None":
    """Counts the tokens of the corpus, which is read twice then; None where that cannot be."""
    from tformer_cli.workflows.inspection.inspect_corpus import count_frequencies

    if request.texts and list(request.texts) != [STANDARD_STREAM]:
        return count_frequencies(opened, argument_lines(request.texts, LineCounts()))
    if request.sentences.source is None or not Path(request.sentences.source).is_file():
        return None
    return count_frequencies(opened, file_lines(request.sentences.source, LineCounts()))


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
        warn(f"{count_of_lines(inspector.report.too_long)} longer than the model takes; skipped")
    if not inspector.n_sentences:
        raise DataError("--source: no sentence fits the model; give shorter sentences")
    summaries = inspector.summaries()
    if not summaries:
        warn("--heads: no head meets the conditions")
    return summaries


def _write(
    summaries: "Sequence[HeadSummary]", chosen: HeadsFormat, output: str, rare_reason: str
) -> None:
    from tformer_cli.cli.inspection.corpus_table import show_summaries, summary_lines

    def show(console: "Console") -> None:
        if summaries:
            show_summaries(console, summaries, rare_reason)

    lines = partial(summary_lines, summaries)
    emit(output, chosen, show=show, others={HeadsFormat.jsonl: lines})
