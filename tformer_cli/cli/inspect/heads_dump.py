"""`tformer inspect-heads --dump`: the maps of a corpus in a directory of shards."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tformer_cli.cli.inspect.options import (
    GivenSentences,
    SentenceRequest,
    read_with_progress,
)
from tformer_cli.cli.options import PathRole
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
    from tformer_cli.inspect.jobs.dump_heads import DumpedCorpus, DumpReport
    from tformer_cli.inspect.views.heads import HeadsOptions

PANEL = "Dumps of a corpus"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class DumpOptions:
    """Directory of a dump, and how much goes into it."""

    dump: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=PANEL,
            help="Write the maps of all sentences to shards in DIR. The same command again "
            "resumes.",
        ),
        PathRole.writes_directory,
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            metavar="K",
            min=1,
            max=65534,
            rich_help_panel=PANEL,
            help="Keep only the K largest weights of each row, and the sum of the others.",
            show_default="all weights",
        ),
    ] = None
    max_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=PANEL,
            help="Refuse to write a larger dump; such as 500M or 20G.",
        ),
    ] = "2G"
    shard_pairs: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            rich_help_panel=PANEL,
            help="Largest number of sentences per shard; a shard has at most 64 MiB.",
        ),
    ] = 4096

    def check(self) -> None:
        """Makes sure that no option of a dump is given without one."""
        if self.top_k is not None and self.dump is None:
            raise UsageError("--top-k: applies to dumps; add --dump DIR")


def parse_size(text: str, option: str) -> int:
    """Reads a number of bytes: 1000, 500M, 2.5G, 2GiB; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    n_bytes = 0 if match is None else int(float(match[1]) * UNITS[match[2].upper()])
    if n_bytes < 1:
        raise UsageError(f'{option}: "{text}" is not a size above 0; write 500M or 20G')
    return n_bytes


def size_said(n_bytes: int) -> str:
    """Writes a number of bytes with its unit: "1.4 GiB"."""
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def dump_heads(
    request: SentenceRequest, chosen: "HeadsOptions", directory: Path, options: DumpOptions
) -> None:
    """Describes how large a dump will be, and writes it if that is not too large."""
    from tformer_cli.inspect.jobs.dump_heads import DumpSettings, HeadDumper
    from tformer_cli.inspect.views.heads import VIEW

    settings = DumpSettings(
        heads=chosen.heads,
        top_k=options.top_k,
        max_bytes=parse_size(options.max_bytes, "--max-bytes"),
        shard_pairs=options.shard_pairs,
        tolerance=chosen.verify,
    )
    corpus = _dumped_corpus(request.text, request.sentences)
    quiet, opened = request.quiet, request.open(tasks=VIEW.tasks)
    dumper = HeadDumper(opened, settings)
    estimate = dumper.estimate(corpus)
    about = "" if estimate.is_exact else "about "
    size = f"{about}{size_said(estimate.n_bytes)} ({estimate.n_bytes:,} bytes)"
    heads = count_of(len(dumper.layout.heads), "head")
    note(f"{count_of(estimate.pairs, 'sentence')}, {heads}: {size}", quiet=quiet)
    if estimate.n_bytes > settings.max_bytes:
        raise UsageError(
            f"--max-bytes: the dump would take {size}, but the limit is "
            f"{size_said(settings.max_bytes)}; raise it, keep fewer numbers with --top-k K, or "
            "fewer heads with --heads"
        )
    lines = dumper.write(corpus, directory)
    read_with_progress(lines, dumper.report, "dumping heads", total=estimate.lines, quiet=quiet)
    note(_said(dumper.report, directory), quiet=quiet)


def _dumped_corpus(texts: Sequence[str] | None, sentences: GivenSentences) -> "DumpedCorpus":
    """Joins what is dumped: it has to be read twice, so it cannot come from stdin."""
    from tformer_cli.files.regular_file import hash_file
    from tformer_cli.inspect.jobs.dump_heads import DumpedCorpus

    source, target, target_file = sentences.source, sentences.target, sentences.target_file
    if texts and source is not None:
        raise UsageError("--source: texts are given as arguments already; omit one of the two")
    if target is not None and target_file is not None:
        raise UsageError("--target: --target-file gives the targets already; omit one of the two")
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

    def lines_of(given: Sequence[str], file: str | None) -> Iterator[str]:
        counts = LineCounts()
        return argument_lines(given, counts) if file is None else file_lines(file, counts)

    given_target = None if target is None else [target]
    has_targets = given_target is not None or target_file is not None
    facts = [
        list(texts or ()) if source is None else hash_file(Path(source)),
        given_target if target_file is None else hash_file(Path(target_file)),
    ]
    return DumpedCorpus(
        lines=lambda: lines_of(texts or (), source),
        targets=(lambda: lines_of(given_target or (), target_file)) if has_targets else None,
        origin=hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
    )


def _said(report: "DumpReport", directory: Path) -> str:
    shards = count_of(report.shards, "shard")
    holds = f"{count_of(report.pairs, 'sentence')} in {shards}, {size_said(report.n_bytes)}"
    said = f"{directory}: {holds}, largest residual {report.residual:.1e}"
    if report.resumed_at:
        said += f"; {count_of_lines(report.resumed_at)} were done before"
    return said
