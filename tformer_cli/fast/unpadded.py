"""Sentences one after the other, in one row of a batch: nothing is computed for padding.

What is done for each position by itself needs no change for that. Attention is told which rows
belong together (`Spans`), and `Operations` compute it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from tformer_cli.model.attention import FUSED_FROM_KEYS, Mask, MultiHeadAttention
from tformer_cli.model.methods import POOLINGS
from tformer_cli.model.operations import ROW_MULTIPLE, Spans

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.fast.native.attention import NativeAttention
    from tformer_cli.model.base import Model
    from tformer_cli.model.encoder_only import Classifier
    from tformer_cli.model.transformer import Transformer


FUSED_CAUSAL_FROM_KEYS = 2048
"""Below, float32 attention to the past is faster by the kernels than by torch's fused attention."""


class Unpadded(NamedTuple):
    """Token ids of B sentences."""

    tokens: Tensor
    """(1, N) ids; after the last sentence, padding that fills the row."""
    positions: Tensor
    """(N) place of each token in its sentence, from 0."""
    starts: Tensor
    """(B + 1) where each sentence begins, and where the last one ends."""


def remove_padding(tokens: Tensor, mask: Tensor) -> Unpadded:
    """Lays sentences (B, T), whose mask (B, T) is False at trailing padding, out in one row."""
    lengths = mask.sum(dim=1)
    starts = functional.pad(lengths.cumsum(0), (1, 0))
    n_tokens = int(starts[-1])
    positions = torch.arange(n_tokens) - starts[:-1].repeat_interleave(lengths)
    # A library that prepares each product for its sizes then soon has seen most of them
    filling = (0, -n_tokens % ROW_MULTIPLE)
    return Unpadded(
        functional.pad(tokens[mask], filling)[None], functional.pad(positions, filling), starts
    )


def trains_unpadded(model: Model, longest: int) -> bool:
    """Returns whether sentences of a model that trains can be computed without padding."""
    is_causal = not model.config.n_encoder_layers and not torch.is_autocast_enabled("cpu")
    # From that many keys on torch's fused attention is faster
    most_keys = FUSED_CAUSAL_FROM_KEYS if is_causal else FUSED_FROM_KEYS
    return (
        model.operations is not None
        and model.training
        and not model.config.image_size  # all images are equally long
        and longest < most_keys
        and all(m.is_plain for m in model.modules() if isinstance(m, MultiHeadAttention))
    )


def hidden_unpadded(model: Transformer, source: Unpadded, target_input: Unpadded) -> Tensor:
    """Computes the decoder's last hidden states (N, D), as `decode_hidden`, without padding."""
    within_target = Spans(
        target_input.starts, target_input.starts, is_causal=True, positions=target_input.positions
    )
    across = Spans(target_input.starts, source.starts, is_causal=False)
    # A language model has nothing to attend to but itself
    memory = _memory(model, source) if model.config.n_encoder_layers else None
    hidden = model.decoder_input(target_input.tokens, model.target_matrix, target_input.positions)
    hidden = model.decoder(hidden, Mask(spans=within_target), memory, Mask(spans=across))
    return hidden.squeeze(0)


def pooled_unpadded(model: Classifier, source: Unpadded) -> Tensor:
    """Computes the vectors (B, D) that a classifier makes of B texts, without padding."""
    hidden = _memory(model, source).squeeze(0)
    starts, lengths = source.starts[:-1], source.starts.diff()
    if not POOLINGS[model.config.pooling].has_mean:
        return hidden.index_select(0, starts)
    owners = torch.arange(len(lengths)).repeat_interleave(lengths)
    # (N, D) -> (B, D): each row is added to its text's sum
    sums = hidden.new_zeros(len(lengths), hidden.shape[1])
    return sums.index_add(0, owners, hidden[: len(owners)]) / lengths.unsqueeze(1)


def _memory(model: Transformer | Classifier, source: Unpadded) -> Tensor:
    within = Spans(source.starts, source.starts, is_causal=False)
    hidden = model.encoder_input(source.tokens, model.source_embedding.weight, source.positions)
    return model.encoder(hidden, Mask(spans=within))


def attend_within(
    attend: NativeAttention,
    layer: MultiHeadAttention,
    hidden: Tensor,
    memory: Tensor | None,
    spans: Spans,
) -> Tensor:
    """Computes an attention layer in sentences that lie one after the other."""
    turns = None
    if memory is None:
        query, key_value = layer.in_projection(hidden), None
        if layer.positions.turns and layer.n_heads:
            turns = layer.positions.turns_of(int(spans.queries.diff().max()))
    else:
        joined = layer.n_heads * layer.head_width
        query = layer.in_projection.part(hidden, slice(joined))
        key_value = layer.in_projection.part(memory, slice(joined, None))
    context = query  # has width 0 without heads
    if layer.n_heads:
        context = attend(query, key_value, layer.n_heads, spans, turns)
    return layer.out_projection(context)
