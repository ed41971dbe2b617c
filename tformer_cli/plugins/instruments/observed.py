"""Values that a model itself computed around one of its attentions, recorded in one forced pass.

The model's own path does not change: hooks and a tap only record. A recomputed step is compared
with these values.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tformer_cli.heads.names import Inspected, Kind
from tformer_cli.inspect.capture.forced import forced_pass
from tformer_cli.model.attention import AttentionTap, MultiHeadAttention
from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.model.norms import Norm
from tformer_cli.model.stacks import Layer, Stack


@dataclass(frozen=True, kw_only=True)
class ObservedFeedForward:
    """The numbers of a feed-forward layer for one sentence."""

    stream: Tensor  # (Q, D) the residual stream that its output is added to
    entering: Tensor  # (Q, D) its input: in a pre-norm model the norm of the stream
    inner: Tensor  # (Q, F) what enters W₂
    output: Tensor  # (Q, D) its output
    result: Tensor  # (Q, D) what leaves the layer: the sum, after its norm in a post-norm model


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The numbers of one attention layer for one sentence pair, and the model's logits."""

    tap: AttentionTap  # The attention's own queries, keys, values and mask, before they are float64
    stream: Tensor  # (Q, D) the residual stream that the attention's output is added to
    entering: Tensor  # (Q, D) what queries are projected from: in a pre-norm model LN(stream)
    memory: Tensor  # (K, D) what keys and values are projected from
    query: Tensor  # (H, Q, E) queries
    key: Tensor  # (H, K, E) keys
    value: Tensor  # (H, K, E) values
    visible: Tensor  # (Q, K) boolean, True where a query may attend
    context: Tensor  # (H, Q, E) the weighted sums of values
    joined: Tensor  # (Q, D) what enters W_O
    attended: Tensor  # (Q, D) what leaves W_O
    summed: Tensor  # (Q, D) the stream plus the attention's output
    normed: Tensor | None  # (Q, D) that sum after its norm; None in a pre-norm model
    embedded: Tensor  # (Q, D) the input of the stack: embeddings with their positions
    feed_forward: ObservedFeedForward  # That of the attention's layer
    states: Tensor  # (S, D) the last hidden states of an encoder without decoder; else `hidden`
    hidden: Tensor
    """(T, D) what is compared with the rows of tokens: the decoder's last hidden states, or those
    of a masked language model after its transformation; (1, D) the vector of other encoders."""
    logits: Tensor  # (T, V) the logits of the tokens at each position, or (1, L) of the labels


def stacks_of(model: Inspected) -> dict[Kind, Stack[Any]]:
    """The stacks that a model has, by the kind of their self-attention."""
    stacks: dict[Kind, Stack[Any]] = {}
    if model.config.n_encoder_layers:
        stacks["enc"] = model.encoder
    if not isinstance(model, EncoderOnly):
        stacks["dec"] = model.decoder
    return stacks


class Place(NamedTuple):
    """The modules around one attention."""

    attention: MultiHeadAttention
    own_norm: Norm  # Before the attention (pre-norm), or after its residual sum (post-norm)
    next_norm: Norm  # The layer norm of the sub-layer after it
    embedding: nn.Module  # The input of its stack
    layer: Layer  # The layer that it is in


def place_of(model: Inspected, kind: Kind, layer: int) -> Place:
    if kind == "enc":
        encoder = model.encoder.layers[layer]
        norms = encoder.self_attention_norm, encoder.feed_forward_norm
        return Place(encoder.self_attention, *norms, model.encoder_input, encoder)
    if isinstance(model, EncoderOnly):
        raise TypeError(f"{kind}: a classifier has no decoder")
    decoder = model.decoder.layers[layer]
    if kind == "dec":
        # a language model has no cross-attention
        has_source = model.config.n_encoder_layers
        after = decoder.cross_attention_norm if has_source else decoder.feed_forward_norm
        norms = decoder.self_attention_norm, after
        return Place(decoder.self_attention, *norms, model.decoder_input, decoder)
    norms = decoder.cross_attention_norm, decoder.feed_forward_norm
    return Place(decoder.cross_attention, *norms, model.decoder_input, decoder)


@torch.inference_mode()
def observe(
    model: Inspected,
    source_ids: Sequence[int],
    target_input_ids: Sequence[int],
    layers: Sequence[tuple[Kind, int]],
) -> list[Observed]:
    """Runs a pair as `forced_pass` does and records the values around some attentions."""
    with ExitStack() as hooks:
        recorders = [_Recorder(hooks, model, *layer) for layer in layers]
        encoder = record_module(hooks, model.encoder) if isinstance(model, EncoderOnly) else None
        hidden = forced_pass(model, source_ids, target_input_ids)
        has_rows = model.config.head != "none"  # to be compared with
        logits = first_of(model.project(hidden) if has_rows else hidden)
    states = first_of(hidden if encoder is None else encoder.output)
    return [recorder.collect_states(states, first_of(hidden), logits) for recorder in recorders]


class _Recorder:
    """Records an attention and the modules around it during one pass."""

    def __init__(self, hooks: ExitStack, model: Inspected, kind: Kind, layer: int) -> None:
        place = place_of(model, kind, layer)
        self._is_pre_norm, self._is_cross = model.config.is_pre_norm, kind == "cross"
        self._attention = record_module(hooks, place.attention)
        self._projection = record_module(hooks, place.attention.out_projection)
        self._own_norm = record_module(hooks, place.own_norm)
        self._next_norm = record_module(hooks, place.next_norm)
        self._embedding = record_module(hooks, place.embedding)
        feed_forward = place.layer.feed_forward
        self._layer, self._feed_forward, self._outer, self._feed_forward_norm = (
            record_module(hooks, module)
            for module in (
                *(place.layer, feed_forward, feed_forward.outer),
                place.layer.feed_forward_norm,
            )
        )
        self._taps: list[AttentionTap] = []
        hooks.callback(place.attention.tap(self._taps.append).remove)

    def collect_states(self, states: Tensor, hidden: Tensor, logits: Tensor) -> Observed:
        is_pre_norm, tap, inputs = self._is_pre_norm, self._taps[-1], self._attention.inputs
        n_queries, n_keys = tap.query.shape[-2], tap.key.shape[-2]
        visible = torch.ones(1, dtype=torch.bool) if tap.mask is None else tap.mask.cpu()
        return Observed(
            tap=tap,
            stream=first_of(self._own_norm.inputs[0] if is_pre_norm else inputs[0]),
            entering=first_of(inputs[0]),
            memory=first_of(inputs[1] if self._is_cross else inputs[0]),
            query=first_of(tap.query),
            key=first_of(tap.key),
            value=first_of(tap.value),
            visible=visible.expand(1, 1, n_queries, n_keys)[0, 0],
            context=first_of(tap.context),
            joined=first_of(self._projection.inputs[0]),
            attended=first_of(self._projection.output),
            summed=first_of((self._next_norm if is_pre_norm else self._own_norm).inputs[0]),
            normed=None if is_pre_norm else first_of(self._own_norm.output),
            embedded=first_of(self._embedding.output),
            feed_forward=self._collect_feed_forward(n_queries),
            states=states,
            hidden=hidden,
            logits=logits,
        )

    def _collect_feed_forward(self, n_queries: int) -> ObservedFeedForward:
        of_layer, entering = self._feed_forward, self._feed_forward.inputs[0]
        # the products of a few rows are filled up with others
        inner = self._outer.inputs[0].flatten(0, -2)[:n_queries]
        return ObservedFeedForward(
            stream=first_of(self._feed_forward_norm.inputs[0] if self._is_pre_norm else entering),
            entering=first_of(entering),
            inner=first_of(inner[None]),
            output=first_of(of_layer.output),
            result=first_of(self._layer.output),
        )


@dataclass
class ModuleRecord:
    """The last input and output of a module."""

    inputs: tuple[Tensor, ...] = ()
    output: Tensor | None = None  # Its result; None before the first call


def record_module(hooks: ExitStack, module: nn.Module) -> ModuleRecord:
    """Records the inputs and outputs of a module until `hooks` are closed."""
    record = ModuleRecord()

    def note(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401 - torch's
        record.inputs, record.output = inputs, output

    hooks.callback(module.register_forward_hook(note).remove)
    return record


def first_of(batch: Tensor | None) -> Tensor:
    """Takes the only sentence of a batch, in float64 on the CPU."""
    if batch is None:
        raise ValueError("a module of the forward pass was not called")
    return batch[0].cpu().double()


def exact(tensor: Tensor) -> Tensor:
    """A parameter in float64 on the CPU."""
    return tensor.detach().cpu().double()
