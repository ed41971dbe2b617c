"""Sources divided into shards."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.data.config import CorpusConfig
from tformer_cli.errors import UsageError
from tformer_cli.workflows.bulk.line_files import scan_lines
from tformer_cli.workflows.bulk.shards import (
    ENDINGS,
    LINE_KINDS,
    SHARD_LINES,
    CorpusKind,
    Fields,
    Shard,
    Source,
)
from tformer_cli.workflows.quality.given import JSONL, TSV, ending_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READ_AS_DATASETS = (".csv", ".arrow")
"""Endings of files that only `datasets` reads."""


@dataclass(frozen=True, kw_only=True)
class GivenCorpus:
    """Sources, and how they are read and written."""

    sources: Sequence[str]
    """Files, or directories or hub names of datasets."""
    kind: CorpusKind | None = None
    """Kind of all sources; None: by their endings."""
    fields: Fields = field(default_factory=Fields)
    dataset_config: str = ""
    split: str = "train"
    """Configuration and split of datasets."""
    lines_per_shard: int = SHARD_LINES


@dataclass(frozen=True, kw_only=True)
class CorpusPlan:
    """A corpus in shards."""

    sources: Sequence[Source]
    shards: Sequence[Shard]

    @property
    def rows(self) -> int:
        """Rows of all sources."""
        return sum(source.rows for source in self.sources)


def plan_corpus(given: GivenCorpus, scanned: Callable[[int], None] | None = None) -> CorpusPlan:
    """Reads sources once and divides them into shards, none of which has rows of two sources.

    Raises:
        UsageError: if they are of several kinds.
        DataError: if one cannot be read.
    """
    kinds = {given.kind or kind_of(name) for name in given.sources}
    if len(kinds) > 1:
        raise UsageError(
            f"SOURCE…: are of different kinds ({', '.join(sorted(kinds))}); translate each kind "
            "into a directory of its own"
        )
    (kind,) = kinds
    sources: list[Source] = []
    rows: list[tuple[int, int, int, int]] = []
    tell = scanned or (lambda _: None)
    for number, name in enumerate(given.sources):
        before = sum(source.rows for source in sources)
        source, starts = _scan(name, kind, given, partial(_add, tell, before))
        sources.append(source)
        for place, first in enumerate(range(0, source.rows, given.lines_per_shard)):
            n_rows = min(given.lines_per_shard, source.rows - first)
            rows.append((number, first, n_rows, starts[place] if starts else 0))
    digits = max(5, len(str(len(rows) - 1)))
    shards = [
        Shard(
            file=f"part-{number:0{digits}d}.{ENDINGS[kind]}",
            source=source_number,
            first=first,
            rows=n_rows,
            start=start,
        )
        for number, (source_number, first, n_rows, start) in enumerate(rows)
    ]
    return CorpusPlan(sources=sources, shards=shards)


def check_sources(given: GivenCorpus, output: Path) -> None:
    """Checks that sources can be read twice, and will not change while shards are written.

    Raises:
        UsageError: if not.
    """
    places = {place.resolve() for place in (output, *output.absolute().parents)}
    for name in given.sources:
        if name == "-":
            raise UsageError("SOURCE…: stdin cannot be read twice; use `tformer translate` for it")
        if Path(name).is_dir() and Path(name).resolve() in places:
            raise UsageError(f"--output: {output} lies in {name}, which is read; name another")


def kind_of(name: str) -> CorpusKind:
    """The kind of a source by its name; ``owner/name`` is a dataset on the hub."""
    ending = ending_of(name)
    path = Path(name).expanduser()
    if path.is_dir() or ending in READ_AS_DATASETS:
        return "dataset"
    if not path.exists() and name.count("/") == 1 and name[:1] not in "./~" and not ending:
        return "dataset"
    if ending == ".parquet":
        return "parquet"
    return "tsv" if ending in TSV else "jsonl" if ending in JSONL else "text"


def _add(tell: Callable[[int], None], before: int, n_rows: int) -> None:
    """Tells the rows of a source with those of the sources before it."""
    tell(before + n_rows)


def _scan(
    name: str, kind: CorpusKind, given: GivenCorpus, progress: Callable[[int], None]
) -> tuple[Source, list[int]]:
    """Reads a source; the byte of each shard's beginning is known of files of lines."""
    if kind in LINE_KINDS:
        return scan_lines(name, kind, given.fields, given.lines_per_shard, progress)
    from tformer_cli.workflows.bulk import tables

    if kind == "parquet":
        return tables.scan_parquet(name, given.fields), []
    config = CorpusConfig(dataset=name, dataset_config=given.dataset_config, split=given.split)
    return tables.scan_dataset(config, given.fields), []
