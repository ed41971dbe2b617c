"""The attention maps of many sentence pairs, captured in padded batches.

What `forced.capture_maps` finds for one pair at a time, which is the oracle of this module: the
maps agree to rounding, and each carries its own residual. Padding is cut off again before anything
is measured, so no map and no residual knows of it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tformer_cli.heads.names import KINDS, Inspected, Kind
from tformer_cli.inspect.capture.forced import (
    AttentionMaps,
    Place,
    TappedAttention,
    check_lengths,
    ids_read,
    longest_read,
    maps_of,
    next_ids,
    tapped_attentions,
)
from tformer_cli.search.source_batches import padded_length, source_batch
from tformer_cli.text.tokenizer import EOS_ID, PAD_ID

IdPair = tuple[Sequence[int], Sequence[int]]
"""Source and target tokens of a pair, without specials; a language model reads no source, and a
classifier no target."""
MOST_CELLS = 1 << 15
"""Most cells, B·max(S, T)², of a batch, unless one pair has more: of one head in float32 128 KiB.

A layer then fits a processor's cache: eight times as many cells took as long, and 150 MiB more of a
model with four heads in each of nine layers.
"""


@dataclass(frozen=True)
class CapturedBatch:
    """The padded maps of some pairs."""

    sources: Sequence[tuple[int, ...]]
    """For each pair its source tokens, the end of sentence last if the model reads it."""
    targets: Sequence[tuple[int, ...]]
    """For each pair what the decoder reads: the begin of sentence, then the target tokens."""
    next_ids: Sequence[int]
    """For each pair what the decoder's last row predicts; see `AttentionMaps`."""
    tapped: Mapping[Place, TappedAttention]
    """Values computed beside each tapped attention."""
    n_positions: int = 0
    """Positions of each source, of images; 0: as many as there are tokens."""

    @property
    def has_source_eos(self) -> Tensor:
        """(B) boolean, whether the last source position of a pair is the end of sentence."""
        return torch.tensor([ids[-1:] == (EOS_ID,) for ids in self.sources])

    def lengths(self, kind: Kind) -> tuple[Tensor, Tensor]:
        """(B) rows and (B) keys of the pairs' maps of a kind."""
        sources, targets = (
            torch.tensor([len(ids) for ids in side]) for side in (self.sources, self.targets)
        )
        if self.n_positions:
            sources = torch.full_like(sources, self.n_positions)
        rows, keys = targets, sources
        if kind == "enc":
            rows = sources
        if kind == "dec":
            keys = targets
        return rows, keys

    def maps(self) -> list[AttentionMaps]:
        return [
            maps_of(self.tapped, row, *ids)
            for row, ids in enumerate(zip(self.sources, self.targets, self.next_ids, strict=True))
        ]


def capture_pairs(
    model: Inspected, pairs: Sequence[IdPair], kinds: Collection[Kind] = KINDS
) -> Iterator[tuple[int, AttentionMaps]]:
    """Captures the maps of any number of pairs, a batch at a time; see `capture_batches`."""
    for indices, batch in capture_batches(model, pairs, kinds):
        maps = batch.maps()
        del batch  # not to be held beside the next one
        yield from zip(indices, maps, strict=True)
        del maps


def capture_batches(
    model: Inspected, pairs: Sequence[IdPair], kinds: Collection[Kind] = KINDS
) -> Iterator[tuple[list[int], CapturedBatch]]:
    """Captures any number of pairs, a batch at a time.

    Pairs of one padded shape are captured together, so the shapes a pair is computed in follow
    from its own lengths and not from its neighbors.
    """
    by_shape: dict[tuple[int, int], list[int]] = {}
    n_patches = model.config.n_positions if model.config.reads_images else 0
    for index, (source, target) in enumerate(pairs):
        shape = n_patches or padded_length(len(source) + 1), padded_length(len(target) + 1)
        by_shape.setdefault(shape, []).append(index)
    for (n_source, n_target), indices in sorted(by_shape.items()):
        widest = max(n_source, n_target)
        start = 0
        for size in _batch_sizes(len(indices), max(1, MOST_CELLS // widest**2)):
            batch = indices[start : start + size]
            yield batch, capture_batch(model, [pairs[i] for i in batch], kinds)
            start += size


def _batch_sizes(n_pairs: int, largest: int) -> Iterator[int]:
    """Splits a number of pairs into powers of two, the largest first.

    Libraries keep what they prepared for every shape they have met, some tens of kilobytes each;
    with batches of any size a long corpus would meet ever new ones.
    """
    while n_pairs:
        size = 1 << (min(n_pairs, largest).bit_length() - 1)
        yield size
        n_pairs -= size


@torch.inference_mode()
def capture_batch(
    model: Inspected, pairs: Sequence[IdPair], kinds: Collection[Kind] = KINDS
) -> CapturedBatch:
    """Captures the maps of pairs in one teacher-forced pass over all of them."""
    read = [ids_read(model, *pair) for pair in pairs]
    sources, targets = [source for source, _ in read], [target for _, target in read]
    limit = longest_read(model.config)
    check_lengths(limit, sources, targets)
    device = next(model.parameters()).device
    source, source_mask = source_batch(
        [source for source, _ in pairs], limit, device, eos=model.source_eos
    )
    with tapped_attentions(model, kinds) as tapped:
        hidden = model.target_hidden(source, source_mask, _target_batch(targets, limit).to(device))
    # (B, T, D) -> (B, D): the last row of each; the pooled one of a classifier, which is not used
    last = torch.tensor([max(len(target), 1) - 1 for target in targets], device=device)
    rows = hidden[torch.arange(len(targets), device=device), last]
    n_positions = model.config.n_positions if model.config.reads_images else 0
    return CapturedBatch(sources, targets, next_ids(model, rows), tapped, n_positions)


def _target_batch(targets: Sequence[Sequence[int]], limit: int) -> Tensor:
    """Pads what the decoder reads to (B, T), within the positions of the model."""
    longest = min(padded_length(max(map(len, targets))), limit)
    rows = [[*ids, *[PAD_ID] * (longest - len(ids))] for ids in targets]
    return torch.tensor(rows, dtype=torch.long)
