"""What runs the shards of a corpus: processes of this machine, or a cluster."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tformer_cli.bulk.shards import Task

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
    answer: dict[str, Any] | None = None
    """Of "done": what `translate_shard` returned."""
    seconds: float = 0.0
    """Of "done": the time that the shard took, where the worker's start is not known."""
    reason: str = ""
    """Of "lost" and "given up": the end of the worker, in words."""


class Running(Protocol):
    """Workers that have a model."""

    facts: dict[str, Any]
    """What `describe` says of the model."""

    def run(self, tasks: Iterable[tuple[int, Task]]) -> Iterator[Event]:
        """Translates shards, each with its number, in any order."""


class BulkEngine(Protocol):
    """Something that translates shards."""

    def start(self, opening: str) -> AbstractContextManager[Running]:
        """Starts workers and has one open the model; in the end they are stopped."""
