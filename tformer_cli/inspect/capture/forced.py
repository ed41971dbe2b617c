"""Attention maps of sentences and their translations, with the proof that they are the model's.

One teacher-forced pass over the source and the chosen target, on the model's untouched path. From
the very queries and keys of that pass, the weights are also computed by the plain formula
softmax(Q·Kᵀ / √E) in float32. That these are the weights the model used is measured: the residual
max |A·V − context| compares what they give with what the model's own path returned.

Many pairs are captured in padded batches (`capture_batches`). `capture_maps`, which takes one pair
at a time, is their oracle: maps agree to rounding, and each carries its own residual. Padding is
cut off again before anything is measured, so no map and no residual knows of it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from tformer_cli.heads.names import KINDS, Inspected, Kind, attentions
from tformer_cli.inspect.capture.maps import (
    AttentionMaps,
    CapturedBatch,
    HeadVectors,
    IdPair,
    Place,
    TappedAttention,
    Weights,
    check_lengths,
    ids_read,
    longest_read,
    maps_of,
    n_patches,
)
from tformer_cli.model.attention import AttentionTap
from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.search.source_batches import padded_length, source_batch
from tformer_cli.text.tokenizer import EOS_ID, PAD_ID

T = TypeVar("T")


def recompute_weights(tap: AttentionTap) -> TappedAttention:
    """Computes the weights of a tapped call by the plain formula, and how far they are off."""
    weights = tap.weights(torch.float32)
    difference = torch.matmul(weights, tap.value.float()) - tap.context.float()
    errors = difference.abs().amax(dim=-1)
    arrays = (tensor.detach().cpu().numpy() for tensor in (weights, errors))
    return TappedAttention(*arrays)


@contextmanager
def tapped_attentions(
    model: Inspected, recompute: Callable[[AttentionTap], T], kinds: Collection[Kind] = KINDS
) -> Iterator[dict[Place, T]]:
    """Keeps what every attention of some kinds does last, until the end of the block."""
    tapped: dict[Place, T] = {}

    def tap_of(place: Place) -> Callable[[AttentionTap], None]:
        def keep(tap: AttentionTap) -> None:
            tapped[place] = recompute(tap)

        return keep

    with ExitStack() as hooks:
        for kind, layer, attention in attentions(model):
            if kind in kinds:
                hooks.callback(attention.tap(tap_of((kind, layer))).remove)
        yield tapped


@torch.inference_mode()
def capture_maps(
    model: Inspected, source_ids: Sequence[int], target_ids: Sequence[int]
) -> AttentionMaps:
    source, target_input = ids_read(model.config, source_ids, target_ids)
    check_lengths(longest_read(model.config), [source], [target_input])
    with tapped_attentions(model, recompute_weights) as tapped:
        hidden = forced_pass(model, source, target_input)
    (next_id,) = next_ids(model, hidden[:, -1])
    maps = maps_of(tapped, 0, source, target_input, next_id)
    memory = model.config.memory
    return replace(maps, segment=model.config.max_positions, memory=memory) if memory else maps


def next_ids(model: Inspected, hidden: Tensor) -> list[int]:
    """Chooses the predictions of the decoder's last rows, from states (B, D); see `next_id`."""
    if model.config.target_eos or isinstance(model, EncoderOnly):
        return [EOS_ID] * len(hidden)
    ids: list[int] = model.project(hidden).argmax(dim=-1).tolist()
    return ids


@torch.inference_mode()
def capture_vectors(model: Inspected, maps: AttentionMaps) -> HeadVectors:
    with tapped_attentions(model, lambda tap: tap) as tapped:
        forced_pass(model, maps.source_ids, maps.target_input_ids)
    vectors = HeadVectors(queries={}, keys={})
    formulas: dict[str, None] = {}
    for kind, layer, attention in attentions(model):
        place, tap = (kind, layer), tapped[kind, layer]
        vectors.queries[place], vectors.keys[place] = _of_pair(tap.query), _of_pair(tap.key)
        if tap.scale != tap.query.shape[-1] ** -0.5:
            vectors.factors[place] = tap.scale
        own = attention.similarity.bias(tap.query, tap.key)
        if own is not None:
            vectors.similarity[place] = _of_pair(own)
        if tap.bias is not None and (attention.relative or attention.positions.biases):
            added = tap.bias if own is None else tap.bias - own
            shape = (1, *tap.query.shape[1:3], tap.key.shape[2])
            vectors.positions[place] = _of_pair(added.expand(shape))
        formulas |= dict.fromkeys((*attention.similarity.formulas, *attention.positions.formulas))
        if attention.relative is not None:
            formulas[attention.relative.formula] = None
    return replace(vectors, formulas=tuple(formulas))


def forced_pass(
    model: Inspected, source_ids: Sequence[int], target_input_ids: Sequence[int]
) -> Tensor:
    """Runs the ids that a model reads, (S) and (T), through it: teacher-forced, without padding."""
    device = next(model.parameters()).device
    source = torch.tensor([source_ids], dtype=torch.long, device=device)
    mask = torch.ones_like(source, dtype=torch.bool)
    target = torch.tensor([target_input_ids], dtype=torch.long, device=device)
    return model.target_hidden(source, mask, target)


def _of_pair(tensor: Tensor) -> Weights:
    values: Weights = tensor[0].float().cpu().numpy()
    return values


MOST_CELLS = 1 << 15
"""Most cells, B·max(S, T)², of a batch, unless one pair has more: of one head in float32 128 KiB.

A layer then fits a processor's cache: eight times as many cells took as long, and 150 MiB more of a
model with four heads in each of nine layers.
"""


def capture_pairs(
    model: Inspected, pairs: Sequence[IdPair], kinds: Collection[Kind] = KINDS
) -> Iterator[tuple[int, AttentionMaps]]:
    for indices, batch in capture_batches(model, pairs, kinds):
        maps = batch.maps()
        del batch  # frees it before the next one
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
    patches = n_patches(model.config)
    for index, (source, target) in enumerate(pairs):
        shape = patches or padded_length(len(source) + 1), padded_length(len(target) + 1)
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
    read = [ids_read(model.config, *pair) for pair in pairs]
    sources, targets = [source for source, _ in read], [target for _, target in read]
    limit = longest_read(model.config)
    check_lengths(limit, sources, targets)
    device = next(model.parameters()).device
    source, source_mask = source_batch(
        [source for source, _ in pairs], limit, device, eos=model.source_eos
    )
    with tapped_attentions(model, recompute_weights, kinds) as tapped:
        hidden = model.target_hidden(source, source_mask, _target_batch(targets, limit).to(device))
    # (B, T, D) -> (B, D): the last row of each; the pooled one of a classifier, which is not used
    last = torch.tensor([max(len(target), 1) - 1 for target in targets], device=device)
    rows = hidden[torch.arange(len(targets), device=device), last]
    ids = next_ids(model, rows)
    return CapturedBatch(sources, targets, ids, tapped, n_patches(model.config))


def _target_batch(targets: Sequence[Sequence[int]], limit: int) -> Tensor:
    """Pads the decoder's input to (B, T), within the positions of the model."""
    longest = min(padded_length(max(map(len, targets))), limit)
    rows = [[*ids, *[PAD_ID] * (longest - len(ids))] for ids in targets]
    return torch.tensor(rows, dtype=torch.long)
