"""A step's batches divided between processes.

The step stays what it is for one process: the same sentence pairs, whatever the number of
processes. Each takes a part with about as many tokens as any other's.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tformer_cli.data.batching import Batch
from tformer_cli.data.tokenizer import PAD_ID


def share_of(batches: Sequence[Batch], rank: int, world_size: int) -> list[Batch]:
    """Returns the part of a step's batches that falls to one process.

    Where the batches can be dealt out evenly, each process takes whole ones. Else the pairs of all
    batches are thought of as one row, which is cut where each process has its share of the tokens
    of both sides, to within one pair. Every pair falls to exactly one process; one that gets none
    (there are fewer pairs than processes) has an empty list.

    Args:
        batches: of the step, the same in every process.
        rank: number of the process.
        world_size: number of processes.
    """
    if len(batches) % world_size == 0:
        return list(batches[rank::world_size])
    tokens = [_tokens_of_pairs(batch) for batch in batches]
    n_before = torch.cat(tokens).cumsum(0) - torch.cat(tokens)
    n_tokens = int(sum(int(numbers.sum()) for numbers in tokens))
    # a pair belongs to the process in whose share of the tokens its first one lies
    owners = (n_before * world_size) // max(1, n_tokens)
    parts = owners.split_with_sizes([len(numbers) for numbers in tokens])
    return list(_rows(batches, parts, rank))


def _tokens_of_pairs(batch: Batch) -> Tensor:
    """(B,) tokens of both sides of each pair, padding excluded."""
    return batch.source_mask.sum(1) + (batch.target_output != PAD_ID).sum(1)


def _rows(batches: Sequence[Batch], owners: Sequence[Tensor], rank: int) -> Iterator[Batch]:
    for batch, numbers in zip(batches, owners, strict=True):
        rows = (numbers == rank).nonzero().squeeze(1)
        if len(rows):
            yield _without_empty_columns(batch, rows)


def _without_empty_columns(batch: Batch, rows: Tensor) -> Batch:
    """Takes some pairs of a batch, and no more columns than the longest of them fill."""
    source_mask = batch.source_mask[rows]
    target_output = batch.target_output[rows]
    n_source = int(source_mask.sum(1).max())
    n_target = int((target_output != PAD_ID).sum(1).max())
    return Batch(
        source=batch.source[rows, :n_source],
        source_mask=source_mask[:, :n_source],
        target_input=batch.target_input[rows, :n_target],
        target_output=target_output[:, :n_target],
    )
