"""An endless stream of training batches, prepared in the background, and a place in it."""

from collections.abc import Iterator
from dataclasses import dataclass

from tformer_cli.data.batching import Batch
from tformer_cli.data.prefetch import Prefetcher


@dataclass(frozen=True)
class LoaderPosition:
    """A place between two batches of the stream."""

    epoch: int = 0
    """Passes over the corpora completed."""
    batch: int = 0
    """Batches of this epoch already given."""


START = LoaderPosition()
"""Where a stream begins."""


class BatchStream:
    """Batches of epoch after epoch, from a position on.

    What comes depends on the position alone: a run that stops and resumes sees the batches it would
    have seen.
    """

    def __init__(self, position: LoaderPosition, prefetch: int) -> None:
        """Takes where to start, and how many batches are made ahead."""
        self._position = position
        self._prefetch = prefetch
        self._workers: list[Prefetcher[tuple[Batch, LoaderPosition]]] = []

    def n_batches(self, epoch: int) -> int:
        """Batches of an epoch."""
        raise NotImplementedError

    def _epoch(self, epoch: int, start: int) -> Iterator[tuple[int, Batch]]:
        """The batches of an epoch from number `start` on."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[Batch, LoaderPosition]]:
        """Yields batches, each with the position after it, until the consumer stops."""
        worker = Prefetcher(self._stream(), self._prefetch)
        self._workers.append(worker)
        try:
            yield from worker
        finally:
            worker.close()
            self._workers.remove(worker)

    def close(self) -> None:
        """Ends the background work of every iteration."""
        for worker in list(self._workers):
            worker.close()

    def _stream(self) -> Iterator[tuple[Batch, LoaderPosition]]:
        epoch, start = self._position.epoch, self._position.batch
        while True:
            n_batches = self.n_batches(epoch)
            for number, batch in self._epoch(epoch, start):
                is_last = number + 1 == n_batches
                after = LoaderPosition(epoch + 1) if is_last else LoaderPosition(epoch, number + 1)
                yield batch, after
            epoch, start = epoch + 1, 0
