"""Batches by token budget: groups of pairs, and their tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, ended_source

Item = TypeVar("Item")
Value = TypeVar("Value")
Lengths = NDArray[np.int32]
Indices = NDArray[np.int64]

# On Multi30k at 4,096 tokens: 3.5 % padding without it, 4.0 % with it, 6.8 % unsorted.
BLUR = 2.0


class Divide(Protocol):
    """Computes a value for each item; several processes may share the items."""

    def __call__(
        self, items: Sequence[Item], compute: Callable[[Sequence[Item]], Sequence[Value]]
    ) -> Sequence[Value]:
        """Returns all values, in the order of the items; values are JSON where several share."""


def compute_all(
    items: Sequence[Item], compute: Callable[[Sequence[Item]], Sequence[Value]]
) -> Sequence[Value]:
    """Computes all items in this process; see `Divide`."""
    return compute(items)


@dataclass(frozen=True, slots=True)
class Batch:
    """B pairs of S source and T target positions, padded with `PAD_ID`."""

    source: Tensor
    """(B, S) int64: source ids and `</s>`, which models with `source_eos = false` do not read; of
    images the ids of their pixels, (B, H·W·C)."""
    source_mask: Tensor
    """(B, S) bool: True where there is a token; of images (B, N), for N patches."""
    target_input: Tensor
    """(B, T) int64: `<s>` and target ids."""
    target_output: Tensor
    """(B, T) int64: target ids and `</s>`: the next token at each position of `target_input`."""

    @property
    def n_sentences(self) -> int:
        return self.source.shape[0]

    @property
    def n_source_tokens(self) -> int:
        """Source tokens that are not padding, `</s>` included."""
        return int(self.source_mask.sum())

    @property
    def n_target_tokens(self) -> int:
        """Tokens to be predicted: target tokens that are not padding, `</s>` included."""
        return int((self.target_output != PAD_ID).sum())

    @property
    def n_cells(self) -> int:
        """Positions computed on both sides, B·S + B·T."""
        return self.source_mask.numel() + self.target_output.numel()


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch of texts; each process encodes only the pairs that it computes."""

    source_lengths: Lengths
    """(B) source tokens, `</s>` included if models read it."""
    target_lengths: Lengths
    """(B) tokens to be predicted."""
    make: Callable[[Indices], Batch]
    """Builds the batch of these rows."""

    @classmethod
    def of(
        cls,
        n_source: Lengths,
        n_target: Lengths,
        make: Callable[[Indices], Batch],
        *,
        source_eos: bool,
        target_bos: bool,
        target_eos: bool,
    ) -> "PlannedBatch":
        """Plans `collate`'s batch of (B) ids of both sides; a blank source is `</s>`."""
        sources = np.maximum(n_source + source_eos, 1)
        return cls(sources, n_target + target_bos + target_eos - 1, make)

    @property
    def n_sentences(self) -> int:
        return len(self.source_lengths)

    @property
    def n_source_tokens(self) -> int:
        return int(self.source_lengths.sum())

    @property
    def n_target_tokens(self) -> int:
        return int(self.target_lengths.sum())

    @property
    def n_cells(self) -> int:
        """Positions computed on both sides, B·S + B·T."""
        return self.n_sentences * int(self.source_lengths.max() + self.target_lengths.max())


AnyBatch = Batch | PlannedBatch


def collate(
    source_ids: Sequence[Sequence[int]],
    target_ids: Sequence[Sequence[int]],
    *,
    source_eos: bool = True,
    target_bos: bool = True,
    target_eos: bool = True,
    ids_per_token: int = 1,
) -> Batch:
    # a language model's continuing text has neither
    begin, end = [BOS_ID] * target_bos, [EOS_ID] * target_eos
    targets = [[*begin, *ids, *end] for ids in target_ids]
    source = _pad_rows([ended_source(ids, eos=source_eos) for ids in source_ids])
    return Batch(
        source=source,
        source_mask=source[:, ::ids_per_token] != PAD_ID,
        target_input=_pad_rows([ids[:-1] for ids in targets]),
        target_output=_pad_rows([ids[1:] for ids in targets]),
    )


def _pad_rows(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, longest) int64."""
    cells = np.full((len(rows), max(map(len, rows), default=0)), PAD_ID, dtype=np.int64)
    for place, row in enumerate(rows):
        cells[place, : len(row)] = row
    return torch.from_numpy(cells)


def plan_batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    tokens_per_batch: int,
    seed: int,
    epoch: int,
    window: int = 0,
) -> list[Indices]:
    """Groups pairs of like length and shuffles the groups.

    B · max(longest source, longest target), `</s>` included, is at most `tokens_per_batch`; a pair
    longer than that is the only one of its batch.
    """
    # Zeros at the end do not change the seed: an epoch of one window keeps its earlier order.
    rng = np.random.default_rng([seed, epoch, 0, window])
    batches = _group(source_lengths, target_lengths, tokens_per_batch, rng)
    return [batches[place] for place in rng.permutation(len(batches))]


def count_batches(source_lengths: Lengths, target_lengths: Lengths, tokens_per_batch: int) -> int:
    return len(_ends(np.sort(_widths(source_lengths, target_lengths)), tokens_per_batch))


def regroup(
    source_lengths: Lengths, target_lengths: Lengths, n_batches: int, rng: np.random.Generator
) -> list[Indices]:
    """Groups pairs of like length into exactly `n_batches`, at most as many as there are pairs."""
    # the smallest budget that allows it: lengths have changed, but the plan counts these batches
    longer = np.maximum(source_lengths, target_lengths) + 1
    low, high = int(longer.max()), int(longer.max()) * len(longer)
    # each try must blur alike, or the search would not converge
    blur = rng.integers(2**32)
    while low < high:
        middle = (low + high) // 2
        tried = _group(source_lengths, target_lengths, middle, np.random.default_rng(blur))
        low, high = (low, middle) if len(tried) <= n_batches else (middle + 1, high)
    batches = _group(source_lengths, target_lengths, low, np.random.default_rng(blur))
    while len(batches) < n_batches:
        largest = max(range(len(batches)), key=lambda place: len(batches[place]))
        batches[largest : largest + 1] = np.array_split(batches[largest], 2)
    return [batches[place] for place in rng.permutation(len(batches))]


def _group(
    source_lengths: Lengths,
    target_lengths: Lengths,
    tokens_per_batch: int,
    rng: np.random.Generator,
) -> list[Indices]:
    """Sorts pairs and cuts the row into batches within the budget."""
    longer = _widths(source_lengths, target_lengths)
    order = _order(longer, source_lengths.astype(np.int64) - target_lengths, rng)
    ends = _ends(longer[order], tokens_per_batch)
    return [order[start:end] for start, end in pairwise([0, *ends])]


def _widths(source_lengths: Lengths, target_lengths: Lengths) -> Indices:
    """(N,) positions that each pair takes, `</s>` included."""
    return np.maximum(source_lengths, target_lengths).astype(np.int64) + 1


def _ends(widths: Indices, tokens_per_batch: int) -> list[int]:
    """Ends of batches in a row of pairs sorted by width."""
    ends = [0]
    while ends[-1] < len(widths):
        ends.append(_end_of_batch(widths, ends[-1], tokens_per_batch))
    return ends[1:]


def _order(longer: Indices, excess: Indices, rng: np.random.Generator) -> Indices:
    """Sorts pairs by their longer side, then by the source's excess, up and down in turns."""
    # up and down: the last pair of one length is like the first of the next
    turns = np.where(longer % 2 == 0, 1.0, -1.0)
    # blurred, so that every epoch groups other pairs
    return np.lexsort((turns * (excess + BLUR * rng.random(len(longer))), longer))


def _end_of_batch(widths: Indices, start: int, tokens_per_batch: int) -> int:
    """The end of the longest run from `start` that fits the budget, at least one pair long."""
    # bisection: the cost of a run, its size times the longest so far, never falls
    low, high = start + 1, min(len(widths), start + max(1, tokens_per_batch // int(widths[start])))
    while low < high:
        middle = (low + high + 1) // 2
        if (middle - start) * int(widths[middle - 1]) <= tokens_per_batch:
            low = middle
        else:
            high = middle - 1
    return low
