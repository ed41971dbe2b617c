"""Tokenized pairs in an Arrow IPC file: written batch by batch, read memory-mapped."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SCHEMA = pa.schema(
    [
        pa.field("source_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("target_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("source_length", pa.int32(), nullable=False),
        pa.field("target_length", pa.int32(), nullable=False),
    ]
)
Ids = Sequence[Sequence[int]]


def record_batch(
    source_ids: Ids, target_ids: Ids, sources: Sequence[str], targets: Sequence[str]
) -> pa.RecordBatch:
    """Packs the token ids and texts of pairs with their lengths."""
    lists = [_list_array(ids) for ids in (source_ids, target_ids)]
    texts = [pa.array(side, pa.string()) for side in (sources, targets)]
    lengths = [pa.array(np.diff(array.offsets.to_numpy())) for array in lists]
    return pa.record_batch([*lists, *texts, *lengths], schema=SCHEMA)


def _list_array(lists: Ids) -> pa.ListArray:
    # Arrow's own conversion of nested lists is slow and holds a Python object for each number.
    offsets = np.zeros(len(lists) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, lists), np.int32, len(lists)), out=offsets[1:])
    values = np.fromiter(chain.from_iterable(lists), np.int32, int(offsets[-1]))
    return pa.ListArray.from_arrays(offsets, values)


class ArrowTable:
    """Random access to the pairs of a file; nothing that grows with it is held in memory."""

    def __init__(self, path: Path) -> None:
        """Maps the file."""
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if reader.schema != SCHEMA:
            raise pa.ArrowInvalid(f"not a tokenized corpus: {reader.schema.names}")
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        sizes = [batch.num_rows for batch in self._batches]
        self._starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)
        self._ids = [[_list_views(b.column(i)) for b in self._batches] for i in (0, 1)]
        self._lengths = [[np.asarray(b.column(i)) for b in self._batches] for i in (4, 5)]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def ids(self, column: int, indices: NDArray[np.int64]) -> list[list[int]]:
        """The lists of column 0 (source) or 1 (target) at these rows."""
        views = self._ids[column]
        return [
            views[batch][1][views[batch][0][row] : views[batch][0][row + 1]].tolist()
            for batch, row in self._places(indices)
        ]

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """(2, N) tokens of source and target at these rows."""
        found = np.empty((2, len(indices)), dtype=np.int32)
        batches = np.searchsorted(self._starts, indices, side="right") - 1
        # Places in the order of their batches, cut where the batch changes.
        places = np.argsort(batches, kind="stable")
        ends = np.flatnonzero(np.diff(batches[places])) + 1
        for members in np.split(places, ends) if len(places) else ():
            batch = batches[members[0]]
            rows = indices[members] - self._starts[batch]
            for side in (0, 1):
                found[side, members] = self._lengths[side][batch][rows]
        return found

    def counts(self, column: int, vocab_size: int) -> NDArray[np.int64]:
        """(V) how often each number occurs in the lists of column 0 (source) or 1 (target)."""
        counts = np.zeros(vocab_size, dtype=np.int64)
        for offsets, values in self._ids[column]:
            counts += np.bincount(values[offsets[0] : offsets[-1]], minlength=vocab_size)
        return counts

    def longest(self) -> int:
        """Tokens of the longest side of all pairs."""
        return max((int(part.max(initial=0)) for side in self._lengths for part in side), default=0)

    def strings(self, column: int, indices: NDArray[np.int64]) -> list[str]:
        """The strings of column 2 (source) or 3 (target) at these rows."""
        return [
            self._batches[batch].column(column)[row].as_py() for batch, row in self._places(indices)
        ]

    def _places(self, indices: NDArray[np.int64]) -> list[tuple[int, int]]:
        batches = np.searchsorted(self._starts, indices, side="right") - 1
        rows = indices - self._starts[batches]
        return list(zip(batches.tolist(), rows.tolist(), strict=True))


def _list_views(lists: pa.ListArray) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Offsets and values of a list column, not copied."""
    return lists.offsets.to_numpy(), lists.values.to_numpy()
