"""Sources divided into shards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.errors import UsageError
from tformer_cli.plugins.corpora_tools.bulk.line_files import scan_lines
from tformer_cli.plugins.corpora_tools.bulk.shards import (
    ENDINGS,
    LINE_KINDS,
    SHARD_LINES,
    CorpusKind,
    Fields,
    Shard,
    Source,
)
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.lines import JSONL, TSV, ending_of, shard_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

READ_AS_DATASETS = (".arrow",)
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
    part: tuple[int, int] | None = None
    """Part, from 0, of how many parts of all rows; None: the whole."""


@dataclass(frozen=True, kw_only=True)
class CorpusPlan:
    """A corpus in shards."""

    sources: Sequence[Source]
    shards: Sequence[Shard]

    @property
    def rows(self) -> int:
        """Rows that are translated."""
        return sum(shard.rows for shard in self.shards)


def plan_corpus(corpus: GivenCorpus, scanned: Callable[[int], None] | None = None) -> CorpusPlan:
    """Reads sources once and divides them into shards, none of which has rows of two sources."""
    kind = _kind(corpus)
    sources: list[Source] = []
    starts: list[list[int]] = []
    tell = scanned or (lambda _: None)
    for name in corpus.sources:
        before = sum(source.rows for source in sources)
        source, line_starts = _scan(name, kind, corpus, partial(_add, tell, before))
        sources.append(source)
        starts.append(line_starts)
    n_rows = sum(source.rows for source in sources)
    chosen = shard_range(n_rows, *(corpus.part or (0, 1)))
    shards = list(_shards(sources, starts, chosen, corpus.lines_per_shard))
    shards = shards or [Shard(file="", source=0, first=0, rows=0)]  # so tables keep their columns
    digits = max(5, len(str(len(shards) - 1)))  # sorted by name, they are in the order of rows
    named = [
        replace(shard, file=f"part-{number:0{digits}d}.{ENDINGS[kind]}")
        for number, shard in enumerate(shards)
    ]
    return CorpusPlan(sources=sources, shards=named)


def _shards(
    sources: Sequence[Source], starts: Sequence[Sequence[int]], chosen: range, n_lines: int
) -> Iterator[Shard]:
    """Yields the shards of the chosen rows, without names; `chosen` counts over all sources."""
    before = 0
    for number, source in enumerate(sources):
        for place, first in enumerate(range(0, source.rows, n_lines)):
            begin = max(first, chosen.start - before)
            end = min(first + n_lines, source.rows, chosen.stop - before)
            if begin < end:
                start = starts[number][place] if starts[number] else 0
                yield Shard(
                    file="",
                    source=number,
                    first=begin,
                    rows=end - begin,
                    start=start,
                    skipped=begin - first,  # only the bytes at which whole shards begin are known
                )
        before += source.rows


def check_sources(corpus: GivenCorpus, output: Path) -> None:
    """Checks that sources can be read twice, and will not change while shards are written."""
    places = {place.resolve() for place in (output, *output.absolute().parents)}
    for name in corpus.sources:
        if name == "-":
            raise UsageError("SOURCE…: stdin cannot be read twice; use `tformer translate` for it")
        if Path(name).is_dir() and Path(name).resolve() in places:  # shards would become sources
            raise UsageError(f"--output: {output} lies in {name}, which is read; name another")
    _check_fields(_kind(corpus), corpus.fields)


def _check_fields(kind: CorpusKind, fields: Fields) -> None:
    default = Fields()
    options = {
        "--source-field": fields.source,
        "--target-field": fields.translation if fields.translation != default.translation else "",
        "--score-field": fields.score,
    }
    for option, name in options.items():
        if name and kind == "text":
            raise UsageError(f"{option}: files of text have no fields; omit it")
        if name and kind == "tsv" and option == "--target-field":
            raise UsageError(
                f"{option}: columns of TSV have no names, and the translation is added at their "
                "end; omit it"
            )
        if "." in name and kind not in ("tsv", "csv") and option != "--source-field":
            raise UsageError(
                f'{option}: "{name}" would lie in another field, where no translation is put; '
                "choose a name without dots"
            )


def _kind(corpus: GivenCorpus) -> CorpusKind:
    """The kind of all sources."""
    kinds = {corpus.kind or kind_of(name) for name in corpus.sources}
    if len(kinds) > 1:
        raise UsageError(
            f"SOURCE…: are of different kinds ({', '.join(sorted(kinds))}); translate each kind "
            "into a directory of its own"
        )
    (kind,) = kinds
    return kind


def kind_of(name: str) -> CorpusKind:
    """The kind of a source by its name; ``owner/name`` is a dataset on the hub."""
    ending = ending_of(name)
    path = Path(name).expanduser()
    if path.is_dir() or ending in READ_AS_DATASETS:
        return "dataset"
    # A name with an ending is that of a file which is missing
    if not path.exists() and name.count("/") == 1 and name[:1] not in "./~" and not ending:
        return "dataset"
    if ending in (".parquet", ".csv"):
        return "parquet" if ending == ".parquet" else "csv"
    return "tsv" if ending in TSV else "jsonl" if ending in JSONL else "text"


def _add(tell: Callable[[int], None], before: int, n_rows: int) -> None:
    """Tells the rows of a source with those of the sources before it."""
    tell(before + n_rows)


def _scan(
    name: str, kind: CorpusKind, corpus: GivenCorpus, progress: Callable[[int], None]
) -> tuple[Source, list[int]]:
    """Reads a source; the byte of each shard's beginning is known of files of lines."""
    if kind in LINE_KINDS:
        return scan_lines(name, kind, corpus.fields, corpus.lines_per_shard, progress)
    from tformer_cli.plugins.corpora_tools.bulk import (
        tables,  # it imports pyarrow, which lines do without
    )

    if kind == "parquet":
        return tables.scan_parquet(name, corpus.fields), []
    config = CorpusConfig(dataset=name, dataset_config=corpus.dataset_config, split=corpus.split)
    return tables.scan_dataset(config, corpus.fields), []
