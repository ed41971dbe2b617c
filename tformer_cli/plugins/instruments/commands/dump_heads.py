"""`tformer inspect-heads --dump`: the attention maps of a corpus in files."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.help import format_size, parse_size
from tformer_cli.cli.inspect.inspect_view import GivenSentences, SentenceRequest, read_with_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    argument_lines,
    count_of_lines,
    file_lines,
    note,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.cli.inspect.inspect_heads import DumpOptions
    from tformer_cli.inspect.views.heads import HeadsOptions
    from tformer_cli.plugins.instruments.jobs.dump_heads import DumpedCorpus, DumpReport


def dump_heads(
    request: SentenceRequest, chosen: "HeadsOptions", directory: Path, options: "DumpOptions"
) -> None:
    """Describes how large a dump will be, and writes it if that is not too large."""
    from tformer_cli.inspect.views.heads import VIEW
    from tformer_cli.plugins.instruments.jobs.dump_heads import DumpSettings, HeadDumper

    settings = DumpSettings(
        heads=chosen.heads,
        top_k=options.top_k,
        max_bytes=parse_size(options.max_bytes, "--max-bytes"),
        shard_pairs=options.shard_pairs,
        tolerance=chosen.verify,
    )
    corpus = _join_corpus(request.text, request.sentences)
    quiet, opened = request.quiet, request.open(tasks=VIEW.tasks)
    dumper = HeadDumper(opened, settings)
    estimate = dumper.estimate(corpus)
    about = "" if estimate.is_exact else "about "
    size = f"{about}{format_size(estimate.n_bytes)} ({estimate.n_bytes:,} bytes)"
    heads = count_of(len(dumper.layout.heads), "head")
    note(f"{count_of(estimate.pairs, 'sentence')}, {heads}: {size}", quiet=quiet)
    # Maps grow with the square of a sentence: a corpus may fill the disk
    if estimate.n_bytes > settings.max_bytes:
        raise UsageError(
            f"--max-bytes: the dump would take {size}, but the limit is "
            f"{format_size(settings.max_bytes)}; raise it, keep fewer numbers with --top-k K, or "
            "fewer heads with --heads"
        )
    lines = dumper.write(corpus, directory)
    read_with_progress(lines, dumper.report, "dumping heads", total=estimate.lines, quiet=quiet)
    note(_summary_line(dumper.report, directory), quiet=quiet)


def _join_corpus(texts: Sequence[str] | None, sentences: GivenSentences) -> "DumpedCorpus":
    """Reads the sentences to dump: they are read twice, so they cannot come from stdin."""
    from tformer_cli.files.regular_file import hash_file
    from tformer_cli.plugins.instruments.jobs.dump_heads import DumpedCorpus

    source, target, target_file = sentences.source, sentences.target, sentences.target_file
    if texts and source is not None:
        raise UsageError("--source: texts are already given as arguments; omit one of the two")
    if target is not None and target_file is not None:
        raise UsageError("--target: --target-file already gives the targets; omit one of the two")
    if STANDARD_STREAM in (*(texts or ()), source, target_file) or not (texts or source):
        raise UsageError(
            "--dump: reads its sentences twice, so stdin cannot be used; name a --source"
        )
    for option, file in (("--source", source), ("--target-file", target_file)):
        if file is not None and Path(file).exists() and not Path(file).is_file():
            raise UsageError(
                f"{option}: {file} is not an ordinary file, but --dump reads it twice; name "
                "an ordinary file"
            )

    def lines_of(arguments: Sequence[str], file: str | None) -> Iterator[str]:
        counts = LineCounts()
        return argument_lines(arguments, counts) if file is None else file_lines(file, counts)

    given_target = None if target is None else [target]
    has_targets = given_target is not None or target_file is not None
    facts = [
        list(texts or ()) if source is None else hash_file(Path(source)),
        given_target if target_file is None else hash_file(Path(target_file)),
    ]
    return DumpedCorpus(
        lines=lambda: lines_of(texts or (), source),
        targets=(lambda: lines_of(given_target or (), target_file)) if has_targets else None,
        # A dump resumes only with the sentences that it began with
        origin=hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
    )


def _summary_line(report: "DumpReport", directory: Path) -> str:
    shards = count_of(report.shards, "shard")
    holds = f"{count_of(report.pairs, 'sentence')} in {shards}, {format_size(report.n_bytes)}"
    summary = f"{directory}: {holds}, largest residual {report.residual:.1e}"
    if report.resumed_at:
        summary += f"; {count_of_lines(report.resumed_at)} were done before"
    return summary
