"""The attention maps of a sentence and its translation, with the proof that they are the model's.

One teacher-forced pass over the source and the chosen target, on the model's untouched path. Beside
it, from the very queries and keys of that pass, the weights are computed by the plain formula
softmax(Q·Kᵀ / √E) in float32. That these are the weights the model used is measured: the residual
max |A·V − context| compares what they give with what the model's own path returned.

Conventions: row i is the query, column j the key. The decoder reads the begin of sentence, then
y₁ … y_T; its row i *predicts* target token i + 1, the last row the end of sentence. Rows sum to 1;
cells that a position may not see are exactly 0.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tformer_cli.data.tokenizer import BOS_ID, EOS_ID
from tformer_cli.inspection.capture.heads import HeadId, Kind, attentions
from tformer_cli.model.attention import AttentionTap, attention_weights
from tformer_cli.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class AttentionMaps:
    """Every head's weights for one sentence pair: float32, on the CPU.

    S counts the source tokens and the end of sentence; T counts the decoder's positions: the begin
    of sentence and the target tokens.
    """

    source_ids: tuple[int, ...]
    """(S) source tokens, the end of sentence last."""
    target_input_ids: tuple[int, ...]
    """(T) what the decoder reads: the begin of sentence, then the target tokens."""
    enc: tuple[Tensor, ...]
    """For each encoder layer (H, S, S)."""
    dec: tuple[Tensor, ...]
    """For each decoder layer (H, T, T)."""
    cross: tuple[Tensor, ...]
    """For each decoder layer (H, T, S)."""
    residuals: dict[HeadId, float]
    """For each head max |A·V − context|, by how much these weights miss what the model used."""

    @property
    def target_ids(self) -> tuple[int, ...]:
        """(T) the tokens that the decoder's rows predict: the target, then the end of sentence."""
        return (*self.target_input_ids[1:], EOS_ID)

    @property
    def residual(self) -> float:
        """The largest residual of all heads."""
        return max(self.residuals.values(), default=0.0)

    def layers(self, kind: Kind) -> tuple[Tensor, ...]:
        """The maps of a kind, one tensor a layer."""
        return {"enc": self.enc, "dec": self.dec, "cross": self.cross}[kind]

    def weights(self, head: HeadId) -> Tensor:
        """(Q, K) weights of one head."""
        return self.layers(head.kind)[head.layer][head.head]


@dataclass(frozen=True, kw_only=True)
class HeadVectors:
    """The queries and keys of every head for one sentence pair: float32, on the CPU.

    Of a head they make the scores Q·Kᵀ / √E, and the softmax of a row of scores is its weights.
    """

    queries: dict[tuple[Kind, int], Tensor]
    """For each attention layer (H, Q, E)."""
    keys: dict[tuple[Kind, int], Tensor]
    """For each attention layer (H, K, E)."""


@torch.inference_mode()
def capture_maps(
    model: Transformer, source_ids: Sequence[int], target_ids: Sequence[int]
) -> AttentionMaps:
    """Captures every attention map of one sentence pair.

    Args:
        model: the model, in evaluation mode.
        source_ids: source tokens without specials.
        target_ids: target tokens without specials.

    Raises:
        ValueError: if a side is longer than the model takes.
    """
    source, target_input = (*source_ids, EOS_ID), (BOS_ID, *target_ids)
    limit = model.config.max_positions
    for side, ids in (("source", source), ("target", target_input)):
        if len(ids) > limit:
            raise ValueError(
                f"the {side} has {len(ids) - 1} tokens, but the model takes {limit - 1}"
            )
    heard = _one_pass(model, source, target_input)
    return AttentionMaps(
        source_ids=source,
        target_input_ids=target_input,
        enc=_weights_of(heard, "enc"),
        dec=_weights_of(heard, "dec"),
        cross=_weights_of(heard, "cross"),
        residuals=_residuals_of(heard),
    )


@torch.inference_mode()
def capture_vectors(model: Transformer, maps: AttentionMaps) -> HeadVectors:
    """Captures the queries and keys of a sentence pair in one forced pass.

    Args:
        model: the model, in evaluation mode.
        maps: the pair, captured in any mode.
    """
    heard = _one_pass(model, maps.source_ids, maps.target_input_ids)
    return HeadVectors(
        queries={place: one.query for place, one in heard.items()},
        keys={place: one.key for place, one in heard.items()},
    )


def _one_pass(model: Transformer, source: Sequence[int], target_input: Sequence[int]) -> "Heard":
    """Runs one sentence pair through a model and listens to every attention."""
    device = next(model.parameters()).device
    source_batch = torch.tensor([source], device=device)
    mask = torch.ones_like(source_batch, dtype=torch.bool)
    with listening(model) as heard:
        model.decode_hidden(
            torch.tensor([target_input], device=device), model.encode(source_batch, mask), mask
        )
    return heard


@dataclass(frozen=True)
class HeardAttention:
    """Values computed beside one call of one attention layer."""

    weights: Tensor
    """(H, Q, K) float32."""
    residuals: Tensor
    """(H) max |A·V − context| of each head."""
    query: Tensor
    """(H, Q, E) float32."""
    key: Tensor
    """(H, K, E) float32."""


Heard = dict[tuple[Kind, int], HeardAttention]


@contextmanager
def listening(model: Transformer) -> Iterator[Heard]:
    """Listens to every attention of a model; whatever happens, the listeners are removed.

    Yields:
        A dictionary that fills while the model runs: (kind, layer) to what was last heard there.
        Only the first sentence of a batch is kept.
    """
    heard: Heard = {}

    def listener_of(place: tuple[Kind, int]) -> Callable[[AttentionTap], None]:
        def listen(tap: AttentionTap) -> None:
            heard[place] = recompute(tap)

        return listen

    handles = []
    try:
        for kind, layer, attention in attentions(model):
            handles.append(attention.tap(listener_of((kind, layer))))
        yield heard
    finally:
        for handle in handles:
            handle.remove()


def recompute(tap: AttentionTap) -> HeardAttention:
    """Computes the weights of a tapped call by the plain formula, and their residual."""
    query, key, value = (part[:1].float() for part in (tap.query, tap.key, tap.value))
    mask = tap.mask if tap.mask is None or tap.mask.dim() < 4 else tap.mask[:1]
    weights = attention_weights(query, key, mask)
    difference = torch.matmul(weights, value) - tap.context[:1].float()
    return HeardAttention(
        weights[0].cpu(),
        difference[0].abs().amax(dim=(-2, -1)).cpu(),
        query[0].cpu(),
        key[0].cpu(),
    )


def _weights_of(heard: Heard, kind: Kind) -> tuple[Tensor, ...]:
    return tuple(heard[place].weights for place in sorted(heard) if place[0] == kind)


def _residuals_of(heard: Heard) -> dict[HeadId, float]:
    return {
        HeadId(kind, layer, head): residual
        for (kind, layer), attention in heard.items()
        for head, residual in enumerate(attention.residuals.tolist())
    }
