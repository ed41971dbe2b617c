"""The attention maps of a sentence and its translation, with the proof that they are the model's.

One teacher-forced pass over the source and the chosen target, on the model's untouched path. Beside
it, from the very queries and keys of that pass, the weights are computed by the plain formula
softmax(Q·Kᵀ / √E) in float32. That these are the weights the model used is measured: the residual
max |A·V − context| compares what they give with what the model's own path returned.

Conventions: row i is the query, column j the key. The decoder reads the begin of sentence, then
y₁ … y_T; its row i *predicts* target token i + 1, the last row the end of sentence. Rows sum to 1;
cells that a position may not see are exactly 0.

Many pairs are captured in padded batches (`capture_batches`). `capture_maps`, which takes one pair
at a time, is their oracle: maps agree to rounding, and each carries its own residual. Padding is
cut off again before anything is measured, so no map and no residual knows of it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, overload

import torch
from torch import Tensor

from tformer_cli.heads.names import KINDS, HeadId, Inspected, Kind, attentions
from tformer_cli.model.attention import AttentionTap
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.search.hypothesis import longest_source
from tformer_cli.search.source_batches import padded_length, source_batch
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, ended_source, without_eos

T = TypeVar("T")
Place = tuple[Kind, int]  # The kind and the layer of an attention


class TappedAttention(NamedTuple):
    """Values computed beside one call of one attention layer."""

    weights: Tensor  # (B, H, Q, K) float32
    errors: Tensor  # (B, H, Q) max |A·V − context| of each row


def recomputed(tap: AttentionTap) -> TappedAttention:
    """Computes the weights of a tapped call by the plain formula, and how far they are off."""
    weights = tap.weights(torch.float32)
    difference = torch.matmul(weights, tap.value.float()) - tap.context.float()
    return TappedAttention(weights.cpu(), difference.abs().amax(dim=-1).cpu())


@overload
def tapped_attentions(
    model: Inspected, kinds: Collection[Kind] = KINDS
) -> AbstractContextManager[dict[Place, TappedAttention]]: ...
@overload
def tapped_attentions(
    model: Inspected, kinds: Collection[Kind] = KINDS, *, recompute: Callable[[AttentionTap], T]
) -> AbstractContextManager[dict[Place, T]]: ...
@contextmanager
def tapped_attentions(
    model: Inspected,
    kinds: Collection[Kind] = KINDS,
    *,
    recompute: Callable[[AttentionTap], Any] = recomputed,
) -> Iterator[dict[Place, Any]]:
    """Keeps what every attention of some kinds does last, until the end of the block."""
    tapped: dict[Place, Any] = {}

    def tap_of(place: Place) -> Callable[[AttentionTap], None]:
        def keep(tap: AttentionTap) -> None:
            tapped[place] = recompute(tap)

        return keep

    with ExitStack() as hooks:
        for kind, layer, attention in attentions(model):
            if kind in kinds:
                hooks.callback(attention.tap(tap_of((kind, layer))).remove)
        yield tapped


LONGEST_MAP = 1024  # Positions of a text that is read segment by segment, whose maps are kept


@dataclass(frozen=True, kw_only=True)
class AttentionMaps:
    """Every head's weights for one sentence pair: float32, on the CPU.

    S counts the source tokens and the end of sentence; T counts the decoder's positions: the begin
    of sentence and the target tokens. A classifier has no decoder: T is 0. A language model reads
    no source: S is 0.
    """

    source_ids: tuple[int, ...]
    """(S) source tokens, the end of sentence last if the model reads it; of images the ids of their
    pixels, while S counts the class token, if any, and the patches."""
    target_input_ids: tuple[int, ...]  # (T) what the decoder reads, the begin of sentence first
    enc: tuple[Tensor, ...]  # For each encoder layer (H, S, S)
    dec: tuple[Tensor, ...]  # For each decoder layer (H, T, T)
    cross: tuple[Tensor, ...]  # For each decoder layer (H, T, S)
    residuals: dict[HeadId, float]  # max |A·V − context|: how far they are from the model's own
    next_id: int = EOS_ID
    """Token that the decoder's last row predicts: the end of sentence; of a language model whose
    texts have no end the one that it finds most probable."""
    segment: int = 0  # Positions of a segment, of a model with a memory; 0: there is none
    memory: int = 0  # Positions before its segment that a row sees

    @property
    def source_tokens(self) -> Sequence[int]:
        return without_eos(self.source_ids)

    @property
    def has_source_eos(self) -> bool:
        return self.source_ids[-1:] == (EOS_ID,)

    @property
    def target_ids(self) -> tuple[int, ...]:
        """(T) the tokens that the decoder's rows predict: the target, then `next_id`."""
        return (*self.target_input_ids[1:], self.next_id) if self.target_input_ids else ()

    @property
    def n_visible(self) -> Tensor:
        """(T) how many positions each row of the decoder sees: those up to itself, or fewer."""
        rows = torch.arange(len(self.target_input_ids))
        if not self.segment:
            return rows + 1
        return rows + 1 - (rows // self.segment * self.segment - self.memory).clamp(min=0)

    @property
    def residual(self) -> float:
        return max(self.residuals.values(), default=0.0)

    def layers(self, kind: Kind) -> tuple[Tensor, ...]:
        return {"enc": self.enc, "dec": self.dec, "cross": self.cross}[kind]

    def weights(self, head: HeadId) -> Tensor:
        return self.layers(head.kind)[head.layer][head.head]


@dataclass(frozen=True, kw_only=True)
class HeadVectors:
    """The queries and keys of every head for one sentence pair: float32, on the CPU.

    Of a head they make the scores Q·Kᵀ / √E, or factor·Q·Kᵀ + c + b, and the softmax of a row of
    scores is its weights.
    """

    queries: dict[tuple[Kind, int], Tensor]  # For each attention layer (H, Q, E)
    keys: dict[tuple[Kind, int], Tensor]  # For each attention layer (H, K, E)
    factors: dict[tuple[Kind, int], float] = field(default_factory=dict)
    """For each layer whose factor is not 1 / √E its factor; 0 if nothing is multiplied."""
    similarity: dict[tuple[Kind, int], Tensor] = field(default_factory=dict)
    """For each layer whose similarity adds to its products (H, Q, K) or (H, 1, K) c."""
    positions: dict[tuple[Kind, int], Tensor] = field(default_factory=dict)
    """For each layer where positions add to scores (H, Q, K) b."""
    formulas: tuple[str, ...] = ()  # What makes scores of queries and keys, unless the paper's


@torch.inference_mode()
def capture_maps(
    model: Inspected, source_ids: Sequence[int], target_ids: Sequence[int]
) -> AttentionMaps:
    source, target_input = ids_read(model, source_ids, target_ids)
    check_lengths(longest_read(model.config), [source], [target_input])
    with tapped_attentions(model) as tapped:
        hidden = forced_pass(model, source, target_input)
    (next_id,) = next_ids(model, hidden[:, -1])
    maps = maps_of(tapped, 0, source, target_input, next_id)
    memory = model.config.memory
    return replace(maps, segment=model.config.max_positions, memory=memory) if memory else maps


def longest_read(config: ModelConfig) -> int:
    """Most positions of a sentence that is looked at; a text with a memory would have no end."""
    if config.reads_images:
        return config.longest_source
    return min(config.longest_text, max(config.max_positions, LONGEST_MAP))


def longest_side(config: ModelConfig) -> int:
    """Most tokens without specials of a sentence that a model reads, or of a text."""
    if config.reads_images:
        return config.longest_source
    if config.is_decoder_only:
        return longest_read(config) - config.target_bos
    return longest_source(config.max_positions)


def ids_read(
    model: Inspected, source_ids: Sequence[int], target_ids: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Gives what the encoder and the decoder of a model read of a pair without specials."""
    config = model.config
    source = () if config.is_decoder_only else ended_source(source_ids, eos=model.source_eos)
    begin = (BOS_ID,) if config.target_bos else ()
    return tuple(source), () if config.is_encoder_only else (*begin, *target_ids)


def next_ids(model: Inspected, hidden: Tensor) -> list[int]:
    """Chooses what the decoder's last rows, of hidden states (B, D), predict; see `next_id`."""
    if model.config.target_eos or isinstance(model, EncoderOnly):
        return [EOS_ID] * len(hidden)
    found: list[int] = model.project(hidden).argmax(dim=-1).tolist()
    return found


def check_lengths(
    limit: int, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> None:
    for side, rows in (("source", sources), ("target", targets)):
        longest = max(rows, key=len)
        if len(longest) > limit:
            n_special = 1 if side == "target" else len(longest) - len(without_eos(longest))
            raise ValueError(
                f"the {side} has {len(longest) - n_special} tokens, but the model takes "
                f"{limit - n_special}"
            )


@torch.inference_mode()
def capture_vectors(model: Inspected, maps: AttentionMaps) -> HeadVectors:
    with tapped_attentions(model, recompute=lambda tap: tap) as tapped:
        forced_pass(model, maps.source_ids, maps.target_input_ids)
    found = HeadVectors(queries={}, keys={})
    formulas: dict[str, None] = {}
    for kind, layer, attention in attentions(model):
        place, tap = (kind, layer), tapped[kind, layer]
        found.queries[place], found.keys[place] = _of_pair(tap.query), _of_pair(tap.key)
        if tap.scale != tap.query.shape[-1] ** -0.5:
            found.factors[place] = tap.scale
        own = attention.similarity.bias(tap.query, tap.key)
        if own is not None:
            found.similarity[place] = _of_pair(own)
        if tap.bias is not None and (attention.relative or attention.positions.biases):
            added = tap.bias if own is None else tap.bias - own
            shape = (1, *tap.query.shape[1:3], tap.key.shape[2])
            found.positions[place] = _of_pair(added.expand(shape))
        formulas |= dict.fromkeys((*attention.similarity.formulas, *attention.positions.formulas))
        if attention.relative is not None:
            formulas[attention.relative.formula] = None
    return replace(found, formulas=tuple(formulas))


def forced_pass(
    model: Inspected, source_ids: Sequence[int], target_input_ids: Sequence[int]
) -> Tensor:
    """Runs the ids that a model reads, (S) and (T), through it: teacher-forced, without padding."""
    device = next(model.parameters()).device
    source = torch.tensor([source_ids], dtype=torch.long, device=device)
    mask = torch.ones_like(source, dtype=torch.bool)
    target = torch.tensor([target_input_ids], dtype=torch.long, device=device)
    return model.target_hidden(source, mask, target)


def _of_pair(tensor: Tensor) -> Tensor:
    return tensor[0].float().cpu()


def maps_of(
    tapped: Mapping[Place, TappedAttention],
    row: int,
    source: tuple[int, ...],
    target_input: tuple[int, ...],
    next_id: int = EOS_ID,
) -> AttentionMaps:
    """Takes one pair out of what was tapped of a batch, without its padding."""
    n_source, n_target = len(source), len(target_input)
    sizes: dict[Kind, tuple[int, int]] = {
        "enc": (n_source, n_source),
        "dec": (n_target, n_target),
        "cross": (n_target, n_source),
    }
    own = {}
    for place, (weights, errors) in tapped.items():
        n_rows, n_keys = sizes[place[0]]
        # copied, so that a pair that is kept does not keep its batch
        own[place] = TappedAttention(
            weights[row, :, :n_rows, :n_keys].clone(), errors[row, :, :n_rows]
        )
    return joined(own, source, target_input, next_id)


def joined(
    tapped: Mapping[Place, TappedAttention],
    source: tuple[int, ...],
    target_input: tuple[int, ...],
    next_id: int = EOS_ID,
) -> AttentionMaps:
    """Joins the attentions of one pair: weights (H, Q, K) and errors (H, Q) of each."""
    layers: dict[Kind, list[Tensor]] = {"enc": [], "dec": [], "cross": []}
    residuals = {}
    for (kind, layer), (weights, errors) in sorted(tapped.items(), key=lambda item: item[0]):
        layers[kind].append(weights)
        for head, error in enumerate(errors.amax(dim=-1).tolist()):
            residuals[HeadId(kind, layer, head)] = error
    return AttentionMaps(
        source_ids=source,
        target_input_ids=target_input,
        enc=tuple(layers["enc"]),
        dec=tuple(layers["dec"]),
        cross=tuple(layers["cross"]),
        residuals=residuals,
        next_id=next_id,
    )


IdPair = tuple[Sequence[int], Sequence[int]]  # Without specials; one side may be empty
MOST_CELLS = 1 << 15
"""Most cells, B·max(S, T)², of a batch, unless one pair has more: of one head in float32 128 KiB.

A layer then fits a processor's cache: eight times as many cells took as long, and 150 MiB more of a
model with four heads in each of nine layers.
"""


@dataclass(frozen=True)
class CapturedBatch:
    """The padded maps of some pairs."""

    sources: Sequence[tuple[int, ...]]  # Each pair's source tokens, as the model reads them
    targets: Sequence[tuple[int, ...]]  # For each pair what the decoder reads
    next_ids: Sequence[int]  # What the last rows predict; see `AttentionMaps`
    tapped: Mapping[Place, TappedAttention]  # Values computed beside each tapped attention
    n_positions: int = 0  # Positions of each source, of images; 0: as many as there are tokens

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
