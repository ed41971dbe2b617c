"""Tokenized pairs in an Arrow IPC file: written batch by batch, read memory-mapped."""

from collections.abc import Sequence
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
Row = tuple[list[int], list[int], str, str]


def record_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Packs (source ids, target ids, source, target) rows with their lengths."""
    source_ids, target_ids, source, target = zip(*rows, strict=True)
    lengths = [[len(ids) for ids in side] for side in (source_ids, target_ids)]
    columns = (source_ids, target_ids, source, target, *lengths)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


class ArrowTable:
    """Random access to the pairs of a file; nothing but lengths is held in memory."""

    def __init__(self, path: Path) -> None:
        """Maps the file.

        Raises:
            pyarrow.ArrowInvalid: if it is not such a file.
        """
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if reader.schema != SCHEMA:
            raise pa.ArrowInvalid(f"not a tokenized corpus: {reader.schema.names}")
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        sizes = [batch.num_rows for batch in self._batches]
        self._starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)
        self._ids = [[_list_views(b.column(i)) for b in self._batches] for i in (0, 1)]
        self.source_lengths = self._numbers(4)
        self.target_lengths = self._numbers(5)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def ids(self, column: int, indices: NDArray[np.int64]) -> list[list[int]]:
        """The lists of column 0 (source) or 1 (target) at these rows."""
        views = self._ids[column]
        return [
            views[batch][1][views[batch][0][row] : views[batch][0][row + 1]].tolist()
            for batch, row in self._places(indices)
        ]

    def strings(self, column: int, indices: NDArray[np.int64]) -> list[str]:
        """The strings of column 2 (source) or 3 (target) at these rows."""
        return [
            self._batches[batch].column(column)[row].as_py() for batch, row in self._places(indices)
        ]

    def _places(self, indices: NDArray[np.int64]) -> list[tuple[int, int]]:
        batches = np.searchsorted(self._starts, indices, side="right") - 1
        rows = indices - self._starts[batches]
        return list(zip(batches.tolist(), rows.tolist(), strict=True))

    def _numbers(self, column: int) -> NDArray[np.int32]:
        parts = [np.asarray(batch.column(column)) for batch in self._batches]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


def _list_views(lists: pa.ListArray) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Offsets and values of a list column, not copied."""
    return lists.offsets.to_numpy(), lists.values.to_numpy()
