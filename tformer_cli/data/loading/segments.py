"""Batches whose rows go on from one to the next, for a model that remembers what it has read."""

from collections.abc import Iterator

import numpy as np

from tformer_cli.data.batching import Batch, collate
from tformer_cli.data.loading.batch_stream import START, BatchStream, LoaderPosition
from tformer_cli.data.loading.encoded import EncodedCorpus


def n_rows(n_blocks: int, block_length: int, tokens_per_batch: int) -> int:
    """Counts the rows that a text is cut into: as many blocks as a batch has room for."""
    return min(n_blocks, max(1, tokens_per_batch // block_length))


class SegmentLoader(BatchStream):
    """A text as rows of blocks, read side by side (Dai et al. 2019, section 3.2).

    Row r of a batch continues row r of the batch before: what it reads first is the token that was
    predicted last there. Only the first batch of an epoch begins with `<s>`. Rows differ by a block
    at most, and those that are longer come first; so the last batch of an epoch may have fewer.
    Every epoch is the same.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        tokens_per_batch: int,
        position: LoaderPosition = START,
        prefetch: int = 8,
    ) -> None:
        """Prepares a stream."""
        super().__init__(position, prefetch)
        self._corpus = corpus
        rows = n_rows(len(corpus), corpus.longest, tokens_per_batch)
        parts = np.array_split(np.arange(len(corpus)), rows)
        self._starts = np.array([part[0] for part in parts])
        self._lengths = np.array([len(part) for part in parts])

    def n_batches(self, epoch: int) -> int:  # noqa: ARG002 - all epochs are alike
        """Batches of an epoch."""
        return int(self._lengths[0])

    def _epoch(self, epoch: int, start: int) -> Iterator[tuple[int, Batch]]:
        """The batches of an epoch from number `start` on."""
        for number in range(start, self.n_batches(epoch)):
            yield number, self._batch(number)

    def _batch(self, number: int) -> Batch:
        blocks = self._starts[self._lengths > number] + number
        _, ids = self._corpus.token_ids(blocks)
        batch = collate([[]] * len(ids), ids, target_eos=False)
        if number:
            _, before = self._corpus.token_ids(blocks - 1)
            for row, tokens in enumerate(before):
                batch.target_input[row, 0] = tokens[-1]
        return batch
