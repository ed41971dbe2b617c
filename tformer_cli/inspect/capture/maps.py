"""The attention maps of a sentence and its translation, as numbers that have left the model.

Conventions: row i is the query, column j the key. The decoder reads the begin of sentence, then
y₁ … y_T; its row i *predicts* target token i + 1, the last row the end of sentence. Rows sum to 1;
cells that a position may not see are exactly 0.

`forced` and `live` capture maps in torch. The compiled kernels record a pass of their own
(`recorded_maps`): there, too, weights are computed by the plain formula from queries and keys, and
the residual compares them with what the kernels made of the same. Nothing here needs torch: maps
are arrays, whoever captured them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tformer_cli.heads.names import HeadId, Kind
from tformer_cli.search.hypothesis import longest_source
from tformer_cli.settings import dataclass
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, ended_source, without_eos

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tformer_cli.model.config import ModelConfig

N = TypeVar("N", int, NDArray[np.int64])
Weights = NDArray[np.float32]
Place = tuple[Kind, int]  # The kind and the layer of an attention
IdPair: TypeAlias = "tuple[Sequence[int], Sequence[int]]"  # Without specials; one side may be empty


class TappedAttention(NamedTuple):
    """Values computed along with one call of one attention layer."""

    weights: Weights  # (B, H, Q, K)
    errors: Weights  # (B, H, Q) max |A·V − context| of each row


@dataclass(frozen=True, kw_only=True)
class AttentionMaps:
    """Every head's weights for one sentence pair.

    S counts the source tokens and the end of sentence; T counts the decoder's positions: the begin
    of sentence and the target tokens. A classifier has no decoder: T is 0. A language model reads
    no source: S is 0.
    """

    source_ids: tuple[int, ...]
    """(S) source tokens, the end of sentence last if the model reads it; of images the ids of their
    pixels, while S counts the class token, if any, and the patches."""
    target_input_ids: tuple[int, ...]  # (T) input of the decoder, the begin of sentence first
    enc: tuple[Weights, ...]  # For each encoder layer (H, S, S)
    dec: tuple[Weights, ...]  # For each decoder layer (H, T, T)
    cross: tuple[Weights, ...]  # For each decoder layer (H, T, S)
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
    def n_visible(self) -> NDArray[np.int64]:
        """(T) how many positions each row of the decoder sees: those up to itself, or fewer."""
        rows = np.arange(len(self.target_input_ids))
        if not self.segment:
            return rows + 1
        return rows + 1 - np.maximum(rows // self.segment * self.segment - self.memory, 0)

    @property
    def residual(self) -> float:
        return max(self.residuals.values(), default=0.0)

    def layers(self, kind: Kind) -> tuple[Weights, ...]:
        return {"enc": self.enc, "dec": self.dec, "cross": self.cross}[kind]

    def weights(self, head: HeadId) -> Weights:
        weights: Weights = self.layers(head.kind)[head.layer][head.head]
        return weights


@dataclass(frozen=True, kw_only=True)
class HeadVectors:
    """The queries and keys of every head for one sentence pair.

    Of a head they make the scores Q·Kᵀ / √E, or factor·Q·Kᵀ + c + b, and the softmax of a row of
    scores is its weights.
    """

    queries: dict[Place, Weights]  # For each attention layer (H, Q, E)
    keys: dict[Place, Weights]  # For each attention layer (H, K, E)
    factors: dict[Place, float] = field(default_factory=dict)
    """For each layer whose factor is not 1 / √E its factor; 0 if nothing is multiplied."""
    similarity: dict[Place, Weights] = field(default_factory=dict)
    """For each layer whose similarity adds to its products (H, Q, K) or (H, 1, K) c."""
    positions: dict[Place, Weights] = field(default_factory=dict)
    """For each layer where positions add to scores (H, Q, K) b."""
    formulas: tuple[str, ...] = ()  # The similarity of queries and keys, unless it is the paper's


LONGEST_MAP = 1024  # Positions of a text that is read segment by segment, whose maps are kept


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


def n_patches(config: ModelConfig) -> int:
    """Positions of an image; 0: the model reads texts, as many as they have tokens."""
    return config.n_positions if config.reads_images else 0


def ids_read(
    config: ModelConfig, source_ids: Sequence[int], target_ids: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Inputs of the encoder and the decoder for a pair without specials."""
    ended = ended_source(source_ids, eos=config.ends_sources)
    source = () if config.is_decoder_only else ended
    begin = (BOS_ID,) if config.target_bos else ()
    return tuple(source), () if config.is_encoder_only else (*begin, *target_ids)


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


def sizes_of(n_source: N, n_target: N) -> dict[Kind, tuple[N, N]]:
    """Rows and keys of the maps of each kind: a number, or those of many pairs."""
    return {"enc": (n_source, n_source), "dec": (n_target, n_target), "cross": (n_target, n_source)}


@dataclass(frozen=True)
class CapturedBatch:
    """The padded maps of some pairs."""

    sources: Sequence[tuple[int, ...]]  # Each pair's source tokens, as the model reads them
    targets: Sequence[tuple[int, ...]]  # For each pair, the input of the decoder
    next_ids: Sequence[int]  # Predictions of the last rows; see `AttentionMaps`
    tapped: Mapping[Place, TappedAttention]  # Values computed along with each tapped attention
    n_positions: int = 0  # Positions of each source, of images; 0: as many as there are tokens

    @property
    def has_source_eos(self) -> NDArray[np.bool_]:
        """(B) boolean, whether the last source position of a pair is the end of sentence."""
        return np.array([ids[-1:] == (EOS_ID,) for ids in self.sources])

    def lengths(self, kind: Kind) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(B) rows and (B) keys of the pairs' maps of a kind."""
        sources, targets = (
            np.array([len(ids) for ids in side]) for side in (self.sources, self.targets)
        )
        if self.n_positions:
            sources = np.full_like(sources, self.n_positions)
        return sizes_of(sources, targets)[kind]

    def maps(self) -> list[AttentionMaps]:
        return [
            maps_of(self.tapped, row, *ids)
            for row, ids in enumerate(zip(self.sources, self.targets, self.next_ids, strict=True))
        ]


def maps_of(
    tapped: Mapping[Place, TappedAttention],
    row: int,
    source: tuple[int, ...],
    target_input: tuple[int, ...],
    next_id: int = EOS_ID,
) -> AttentionMaps:
    """Extracts one pair from the tapped values of a batch, without padding."""
    sizes = sizes_of(len(source), len(target_input))
    own = {}
    for place, (weights, errors) in tapped.items():
        n_rows, n_keys = sizes[place[0]]
        # copied, so that a pair that is kept does not keep its batch
        own[place] = TappedAttention(
            weights[row, :, :n_rows, :n_keys].copy(), errors[row, :, :n_rows]
        )
    return join_maps(own, source, target_input, next_id)


def join_maps(
    tapped: Mapping[Place, TappedAttention],
    source: tuple[int, ...],
    target_input: tuple[int, ...],
    next_id: int = EOS_ID,
) -> AttentionMaps:
    """Joins the attentions of one pair: weights (H, Q, K) and errors (H, Q) of each."""
    layers: dict[Kind, list[Weights]] = {"enc": [], "dec": [], "cross": []}
    residuals = {}
    for (kind, layer), (weights, errors) in sorted(tapped.items(), key=lambda item: item[0]):
        layers[kind].append(weights)
        for head, error in enumerate(errors.max(axis=-1).tolist()):
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


class RecordedAttention(NamedTuple):
    """One attention of a pair as the kernels computed it."""

    queries: Weights  # (H, Q, E) divided by √E
    keys: Weights  # (H, K, E)
    values: Weights  # (H, K, E)
    context: Weights  # (H, Q, E)


def recorded_attentions(
    config: ModelConfig, recorded: Weights, n_source: int, n_target: int
) -> dict[Place, RecordedAttention]:
    """Splits the kernels' record of a pair of S and T positions; see scoring.h."""
    layers, width = config.layer_heads, config.head_width
    size = config.n_heads // (config.n_key_heads or config.n_heads)
    start = 0

    def take(n_rows: int, *n_heads: int) -> list[Weights]:
        nonlocal start
        stop = start + n_rows * sum(n_heads) * width
        # (Q, H, E) -> (H, Q, E)
        rows = recorded[start:stop].reshape(n_rows, sum(n_heads), width).swapaxes(0, 1)
        start = stop
        parts = np.split(rows, np.cumsum(n_heads)[:-1])
        # heads of keys and values are shared by as many as the paper's formula has for each
        return [np.repeat(part, size if n else 1, axis=0) for n, part in enumerate(parts)]

    def own(n_rows: int, n: int) -> RecordedAttention:
        (queries, keys, values), (context,) = take(n_rows, n, n // size, n // size), take(n_rows, n)
        return RecordedAttention(queries, keys, values, context)

    attention_of: dict[Place, RecordedAttention] = {
        ("enc", layer): own(n_source, n) for layer, n in enumerate(layers.encoder)
    }
    # with no query before them, which no head shares
    memories = [take(n_source, 0, n // size, n // size) for n in layers.cross]
    for layer, n in enumerate(layers.cross):
        if layers.decoder:
            attention_of["dec", layer] = own(n_target, layers.decoder[layer])
        (queries,), (context,), (_, *memory) = take(n_target, n), take(n_target, n), memories[layer]
        attention_of["cross", layer] = RecordedAttention(queries, memory[0], memory[1], context)
    return attention_of


def recorded_maps(
    config: ModelConfig, recorded: Weights, source_ids: Sequence[int], target_ids: Sequence[int]
) -> AttentionMaps:
    """Computes the maps of a pair, without specials, from the kernels' record."""
    source, target = ids_read(config, source_ids, target_ids)
    attentions = recorded_attentions(config, recorded, len(source), len(target))
    tapped = {place: _weigh_keys(attention, place[0]) for place, attention in attentions.items()}
    return join_maps(tapped, source, target)


def _weigh_keys(attention: RecordedAttention, kind: Kind) -> TappedAttention:
    scores = attention.queries @ attention.keys.swapaxes(1, 2)
    if kind == "dec":
        scores[:, np.tri(*scores.shape[1:]) == 0] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    errors = np.abs(weights @ attention.values - attention.context).max(axis=-1)
    return TappedAttention(weights, errors)


def recorded_vectors(config: ModelConfig, recorded: Weights, maps: AttentionMaps) -> HeadVectors:
    n_source, n_target = len(maps.source_ids), len(maps.target_input_ids)
    attentions = recorded_attentions(config, recorded, n_source, n_target)
    root = np.float32(config.head_width**0.5)  # the kernels have divided by it
    return HeadVectors(
        queries={place: root * attention.queries for place, attention in attentions.items()},
        keys={place: attention.keys for place, attention in attentions.items()},
    )
