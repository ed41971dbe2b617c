"""A shard of a corpus: rows of one source that are translated into one file."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

from tformer_cli.errors import DataError
from tformer_cli.search.translator import BUFFER_LINES
from tformer_cli.text.config import CorpusConfig

CorpusKind = Literal["text", "tsv", "csv", "jsonl", "parquet", "dataset"]
LINE_KINDS: tuple[CorpusKind, ...] = ("text", "tsv", "csv", "jsonl")
"""Kinds of sources that are files of lines; the others are tables."""
ENDINGS: Mapping[CorpusKind, str] = MappingProxyType(
    {
        "text": "txt",
        "tsv": "tsv",
        "csv": "csv",
        "jsonl": "jsonl",
        "parquet": "parquet",
        "dataset": "parquet",
    }
)
"""Endings of the files that sources of each kind are translated into."""
SHARD_LINES = 10 * BUFFER_LINES
"""Lines of a shard. A multiple of the translator's buffer: batches are the same as in a file."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Where the text of a row is, and where its translation goes."""

    source: str = ""
    """Column of TSV from 1, or field of a record; empty: 1, or "source"."""
    translation: str = "translation"
    """Field or column of records for the translation."""
    score: str = ""
    """Field or column of records for its score; empty: it is not written."""

    def of_source(self, kind: CorpusKind) -> str:
        """The field of the source."""
        return self.source or ("1" if kind == "tsv" else "source")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Something to translate."""

    kind: CorpusKind
    name: str
    """As it was given."""
    path: str
    """Absolute path of what is read: the file, or its decompressed copy; or a dataset's name."""
    rows: int
    content: str
    """Differs whenever the rows do."""
    state: tuple[int, int] = (0, 0)
    """Bytes and time of change of the file, which must not change while it is translated."""
    dataset_config: str = ""
    split: str = ""

    def check(self) -> None:
        """Checks that the file is there and is that which was divided into shards."""
        if self.kind == "dataset":  # it has no single file
            return
        try:
            state = file_state(Path(self.path))
        except OSError:
            state = None
        if state != self.state:
            what = "is not there, or has changed since it was divided into shards"
            raise DataError(
                f"{self.name}: {what}; every worker must see the same file: run the command again"
            )

    def corpus(self) -> CorpusConfig:
        """The same for the reader of datasets."""
        return CorpusConfig(dataset=self.path, dataset_config=self.dataset_config, split=self.split)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Rows of a source that become one file."""

    file: str
    """Name of that file."""
    source: int
    """Number of the source."""
    first: int
    """Number of the first row in the source, from 0."""
    rows: int
    start: int = 0
    """Byte in a file of lines at which they begin, behind `skipped` lines more."""
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class Task:
    """All that a worker must know to translate a shard."""

    directory: str
    """Absolute path of the directory that the file is written into."""
    shard: Shard
    source: Source
    fields: Fields

    def as_json(self) -> dict[str, Any]:
        """The task as an object for JSON."""
        return asdict(self)

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Task":
        """Makes the task of such an object."""
        # JSON has only lists, which never equal the state of a file
        source = {**record["source"], "state": tuple(record["source"]["state"])}
        return Task(
            directory=record["directory"],
            shard=Shard(**record["shard"]),
            source=Source(**source),
            fields=Fields(**record["fields"]),
        )


def file_state(path: Path) -> tuple[int, int]:
    """The bytes and the time of change of a file."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns  # each shard asks twice: a hash would be slow


MOST_ATTEMPTS = 3
"""Workers that a shard may take with it before it is given up."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that a worker did."""

    kind: Literal["ready", "rows", "done", "lost", "given up"]
    """It has opened the model; has translated rows of its shard, or all; has died over it, or is
    the last of several that have."""
    worker: str
    """Name of the worker."""
    number: int = 0
    """Number of the shard."""
    rows: int = 0
    """Rows of the shard that are translated."""
    times: Mapping[str, float] = field(default_factory=dict)
    """For "rows": seconds spent on the shard so far, by part of the work."""
    answer: dict[str, Any] | None = None
    """For "done": the result of `translate_shard`."""
    seconds: float = 0.0
    """For "done": the time that the shard took, where the worker's start is not known."""
    reason: str = ""
    """For "lost" and "given up": the end of the worker, in words."""


class Running(Protocol):
    """Workers that have a model."""

    facts: dict[str, Any]
    """The model, as `describe` puts it."""

    def run(self, tasks: Iterable[tuple[int, Task]]) -> Iterator[Event]:
        """Translates shards, each with its number, in any order."""


class BulkEngine(Protocol):
    """Something that translates shards."""

    def start(self, opening: str) -> AbstractContextManager[Running]:
        """Starts workers and has one open the model; in the end they are stopped."""
