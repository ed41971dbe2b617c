"""Worth of heads: the loss without each of them, and its gradient.

A head is switched off by its factor, ξ_h = 0 (`MultiHeadAttention.gate`); no weight is touched.

One at a time this is a forward pass for each head (`sentence_losses` under `heads_off`). All
heads of a batch together are `losses_without_each`: the rows of a batch are repeated once for each
head, each copy with its own gate, and the layers below the head's are computed once for all:
the whole encoder, where the head is in the decoder. The target of a language model is its text,
that of a classifier is the label, and those of a masked language model are hidden tokens.

Gradient importance: I_h = E |∂L/∂ξ_h| (Michel et al. 2019, equation 2).

ξ_h is the factor on head h's weighted values, so that ∂L/∂ξ_h is Att_h(x)ᵀ · ∂L/∂Att_h(x).
One backward pass gives all heads. The absolute value is taken

- of each sentence's derivative (`"sentence"`, the paper's formula), or
- of each query position's part of it (`"token"`, as the paper's own program does),

and the sum is divided by the number of target tokens, for every kind: I_h is in nats a target
token, to be compared with Δ loss, of which it is the first-order estimate.

Pruning removes heads from the weights; the smaller, ordinary model computes the same. A head that
is switched off (ξ_h = 0) adds nothing to its layer's sum; so its rows of W_Q, W_K and W_V and its
columns of W_O can go. A layer without heads keeps only the bias of W_O.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.artifacts.tensors import shapes_alone
from tformer_cli.heads.gates import Place, heads_off, set_gates
from tformer_cli.heads.names import HeadId, Inspected, Kind, attentions, head_layout
from tformer_cli.model.attention import causal_mask, key_mask, segment_mask
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.observed import ModuleRecord, record_module
from tformer_cli.text.batching import Batch, collate
from tformer_cli.text.tokenizer import PAD_ID


def gates_of_each(n_heads: int, heads: Iterable[int], n_sentences: int) -> Tensor:
    """Makes gates (R·B, H, 1, 1) that switch one head off in every row, the first head first."""
    gates = 1.0 - torch.eye(n_heads)[list(heads)]
    # (R, H) -> (R·B, H) -> (R·B, H, 1, 1)
    return gates.repeat_interleave(n_sentences, dim=0)[:, :, None, None]


LARGEST_POSITIONS = 1 << 13  # Rows times the longer side, of one pass over repeated rows
LARGEST_LOGITS = 1 << 22  # Most logits held at a time


Measure = Callable[[Inspected, Tensor, Tensor], Tensor]
"""Measures rows by their last hidden states (R, T, D) and the tokens (R, T) to be predicted: (R),
or (R, M) of several measures."""


def batch_of(
    model: Inspected,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    ends: bool | None = None,
) -> Batch:
    """Pads pairs of ids as a model reads them; a classifier has the id of its label as target.

    Targets end if `ends` says so; by default where the model has learned that they end.
    """
    config = model.config
    return collate(
        [source for source, _ in pairs],
        [target for _, target in pairs],
        source_eos=config.ends_sources,
        target_bos=config.target_bos,
        target_eos=config.ends_targets if ends is None else ends,
        ids_per_token=config.ids_per_token,
    )


def batch_of_gaps(source_ids: Sequence[int], fills: Mapping[int, int]) -> Batch:
    """Makes a batch of one text (S) with the tokens that fill its gaps, by their positions."""
    source = torch.tensor([list(source_ids)])
    target = torch.full_like(source, PAD_ID)
    for position, token in fills.items():
        target[0, position] = token
    return Batch(source, source != PAD_ID, target_input=source, target_output=target)


def to_device(batch: Batch, device: torch.device) -> Batch:
    return Batch(*(getattr(batch, field.name).to(device) for field in fields(batch)))


def sentence_losses(model: Inspected, batch: Batch) -> Tensor:
    """Computes (B) -Σ ln p of target tokens, float64; they have a gradient if it is enabled."""
    hidden = model.target_hidden(batch.source, batch.source_mask, batch.target_input)
    return losses_of(model, hidden, batch.target_output)


def losses_of(model: Inspected, hidden: Tensor, target_output: Tensor) -> Tensor:
    """Computes (R) float64 losses of tokens (R, T) from the last hidden states (R, T, D)."""
    return _sums_over_rows(model, hidden, target_output, _losses)[:, 0]


def losses_and_hits(model: Inspected, hidden: Tensor, target_output: Tensor) -> Tensor:
    """Computes (R, 2) the loss of each row, and how many of its tokens are the most probable."""

    def measure(logits: Tensor, targets: Tensor) -> Tensor:
        is_hit = (logits.argmax(dim=1) == targets).double()
        return torch.cat((_losses(logits, targets), is_hit[:, None]), dim=1)

    return _sums_over_rows(model, hidden, target_output, measure)


def _losses(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits, targets, reduction="none").double()[:, None]


def _sums_over_rows(
    model: Inspected,
    hidden: Tensor,
    target_output: Tensor,
    measured: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Sums measures (N, M) of tokens, by their logits and ids, over the tokens of rows: (R, M)."""
    positions = (target_output.flatten() != PAD_ID).nonzero().squeeze(1)
    targets = target_output.flatten()[positions] - model.first_target
    # (R, T, D) -> (N, D): the vocabulary is compared only with tokens, not with padding. Where
    # targets label source tokens, states continue after the last target.
    tokens = hidden[:, : target_output.shape[1]].flatten(0, 1)[positions]
    n_together = max(1, LARGEST_LOGITS // len(model.output_matrix))
    parts = torch.cat(
        [
            measured(
                model.project(tokens[start : start + n_together]),
                targets[start : start + n_together],
            )
            for start in range(0, len(targets), n_together)
        ]
    )
    rows = positions // target_output.shape[1]
    return parts.new_zeros(len(target_output), parts.shape[1]).index_add(0, rows, parts)


@torch.inference_mode()
def losses_without_each(
    model: Inspected,
    batch: Batch,
    heads: Sequence[HeadId],
    largest_positions: int = LARGEST_POSITIONS,
    measure: Measure = losses_of,
) -> tuple[Tensor, Tensor]:
    """Computes each sentence's loss without each head; the rest of the model is unchanged."""
    shared = SharedStates.of(model, batch)
    whole = measure(model, shared.last, batch.target_output)
    n_heads = {(kind, layer): a.n_heads for kind, layer, a in attentions(model)}
    longest = max(batch.source_mask.shape[1], batch.target_input.shape[1])
    n_together = max(1, largest_positions // (batch.n_sentences * longest))
    without: dict[HeadId, Tensor] = {}
    for place, members in groupby(sorted(heads), key=lambda head: (head.kind, head.layer)):
        for chunk in _chunks(list(members), n_together):
            gates = gates_of_each(n_heads[place], [h.head for h in chunk], batch.n_sentences)
            with set_gates(model, {place: gates.to(batch.source.device)}):
                below = shared.entering(*place).repeat(len(chunk), 1, 1)
                hidden = shared.rest(model, *place, below)
            losses = measure(model, hidden, batch.target_output.repeat(len(chunk), 1))
            without |= zip(chunk, losses.view(len(chunk), *whole.shape), strict=True)
    return whole.cpu(), torch.stack([without[head] for head in heads]).cpu()


@dataclass(frozen=True)
class SharedStates:
    """Hidden states below each layer, which all ablations of a batch share."""

    batch: Batch
    below_encoder: tuple[Tensor, ...]
    """Input (B, S, D) of each encoder layer, then the output of the last one."""
    memory: Tensor  # (B, S, D); of a language model (B, S, 0)
    below_decoder: tuple[Tensor, ...]  # Likewise (B, T, D) of the decoder
    last: Tensor  # (B, T, D) with all heads; of a classifier (B, 1, D), the pooled ones

    @classmethod
    def of(cls, model: Inspected, batch: Batch) -> "SharedStates":
        """Runs the model once, all heads on, and records what enters each layer."""
        with ExitStack() as hooks:

            def record_layers(stack: str) -> list[ModuleRecord]:
                layers = getattr(model, stack).layers if hasattr(model, stack) else ()
                return [record_module(hooks, layer) for layer in layers]

            encoder, decoder = record_layers("encoder"), record_layers("decoder")
            memory = model.encode(batch.source, batch.source_mask)
            if isinstance(model, EncoderOnly):
                last = model.predicting(memory, batch.source_mask)
            else:
                last = model.decode_hidden(batch.target_input, memory, batch.source_mask)

        def states(layers: list[ModuleRecord]) -> tuple[Tensor, ...]:
            after = [layer.output for layer in layers[-1:] if layer.output is not None]
            return (*(layer.inputs[0] for layer in layers), *after)

        return cls(batch, states(encoder), memory, states(decoder), last)

    def entering(self, kind: Kind, layer: int) -> Tensor:
        """Input of a layer; for index n_layers, the output of the last."""
        return (self.below_encoder if kind == "enc" else self.below_decoder)[layer]

    def rest(
        self,
        model: Inspected,
        kind: Kind,
        first: int,
        hidden: Tensor,
        below_decoder: Tensor | None = None,
    ) -> Tensor:
        """Runs rows (R·B, …, D), copies of the batch, from what enters a layer of a stack on.

        Returns the last hidden states (R·B, T, D). The decoder reads the batch's target, or what
        `below_decoder` has in place of its embeddings.
        """
        n_copies = len(hidden) // self.batch.n_sentences
        source_mask = self.batch.source_mask.repeat(n_copies, 1)
        mask = key_mask(source_mask)
        if isinstance(model, EncoderOnly):
            mask = model.mask_of(source_mask)
        if kind == "enc":
            memory = model.encoder(hidden, mask, first=first)
            if isinstance(model, EncoderOnly):
                return model.predicting(memory, source_mask)
            first, hidden = 0, self.below_decoder[0].repeat(n_copies, 1, 1)
            hidden = hidden if below_decoder is None else below_decoder
        else:  # With a single sentence, keys and values are computed once for all copies
            memory = self.memory.repeat(n_copies if self.batch.n_sentences > 1 else 1, 1, 1)
        if isinstance(model, EncoderOnly):
            raise TypeError(f"{kind}: an encoder has no decoder")
        n_targets, device, remembered = hidden.shape[1], hidden.device, model.config.memory
        causal = causal_mask(n_targets, device)
        if remembered:
            causal = segment_mask(0, n_targets, model.max_positions, remembered, device)
        return model.decoder(hidden, causal, memory, mask, first=first)


@torch.inference_mode()
def losses_along(
    model: Inspected, batch: Batch, order: Sequence[HeadId], measure: Measure = losses_of
) -> Tensor:
    losses = []
    memory = None
    for n_off in range(len(order) + 1):
        is_memory_new = memory is None or order[n_off - 1].kind == "enc"
        with heads_off(model, order[:n_off]) if n_off else nullcontext():
            if is_memory_new:
                memory = model.encode(batch.source, batch.source_mask)
            assert memory is not None  # noqa: S101
            if isinstance(model, EncoderOnly):
                hidden = model.predicting(memory, batch.source_mask)
            else:
                hidden = model.decode_hidden(batch.target_input, memory, batch.source_mask)
        losses.append(measure(model, hidden, batch.target_output).cpu())
    return torch.stack(losses)


def _chunks(heads: list[HeadId], size: int) -> Iterator[list[HeadId]]:
    for start in range(0, len(heads), size):
        yield heads[start : start + size]


Granularity = Literal["sentence", "token"]


@torch.enable_grad()
def importance_sums(
    model: Inspected, batch: Batch, granularity: Granularity
) -> dict[HeadId, float]:
    """Computes Σ |∂L/∂ξ_h| of a batch, L a sentence's loss summed over its tokens."""
    gates = _open_gates(model, batch)
    with set_gates(model, gates):
        loss = sentence_losses(model, batch).sum()
    gradients = torch.autograd.grad(loss, list(gates.values()))
    sums = {}
    for place, gradient in zip(gates, gradients, strict=True):
        # (B, H, Q, 1) -> (B, H, Q) or (B, H)
        parts = gradient.squeeze(3) if granularity == "token" else gradient.sum(dim=(2, 3))
        sums[place] = parts.double().abs().transpose(0, 1).flatten(1).sum(dim=1).tolist()
    return {head: sums[head.kind, head.layer][head.head] for head in head_layout(model)}


def layer_normalized(importance: dict[HeadId, float]) -> dict[HeadId, float]:
    """Divides by the ℓ₂ norm of the layer, as Michel et al. do before they rank (section 4.2)."""
    norms: dict[Place, float] = {}
    for head, value in importance.items():
        norms[head.kind, head.layer] = norms.get((head.kind, head.layer), 0.0) + value**2
    return {
        head: value / norms[head.kind, head.layer] ** 0.5 if value else 0.0
        for head, value in importance.items()
    }


def _open_gates(model: Inspected, batch: Batch) -> dict[Place, Tensor]:
    """Gates of 1 for each sentence, head and query position, (B, H, Q, 1), that have a gradient."""
    like = next(model.parameters())
    n_positions = {"enc": batch.source_mask.shape[1] + model.config.class_token}
    n_targets = batch.target_input.shape[1]
    return {
        (kind, layer): like.new_ones(
            batch.n_sentences, attention.n_heads, n_positions.get(kind, n_targets), 1
        ).requires_grad_()
        for kind, layer, attention in attentions(model)
        if attention.n_heads
    }


_NAMES: dict[Kind, str] = {
    "enc": "encoder.layers.{}.self_attention",
    "dec": "decoder.layers.{}.self_attention",
    "cross": "decoder.layers.{}.cross_attention",
}


def prune_heads(model: Transformer, heads: Iterable[HeadId]) -> Transformer:
    if not model.config.projections:
        raise ValueError("heads without projections cannot be removed: they have no weights")
    kept = _kept_heads(model, set(heads))
    weights = dict(model.state_dict())
    for (kind, layer), numbers in kept.items():
        name = _NAMES[kind].format(layer)
        weights |= _remove_heads(weights, name, numbers, model.config)
    with shapes_alone():
        pruned = Transformer(_pruned_config(model, kept), model.vocab_size)
    pruned.load_state_dict(weights, assign=True)
    return pruned.eval().requires_grad_(requires_grad=False)


def _kept_heads(model: Transformer, removed: set[HeadId]) -> dict[tuple[Kind, int], list[int]]:
    return {
        (kind, layer): [
            head for head in range(attention.n_heads) if HeadId(kind, layer, head) not in removed
        ]
        for kind, layer, attention in attentions(model)
    }


def _pruned_config(model: Transformer, kept: dict[tuple[Kind, int], list[int]]) -> ModelConfig:
    def of(kind: Kind) -> tuple[int, ...]:
        return tuple(len(heads) for (its_kind, _), heads in kept.items() if its_kind == kind)

    return replace(
        model.config,
        n_key_heads=0,
        encoder_heads=of("enc"),
        decoder_heads=of("dec"),
        cross_heads=of("cross"),
        bias_heads=_bias_heads(model, kept),
    )


def _bias_heads(model: Transformer, kept: dict[tuple[Kind, int], list[int]]) -> tuple[int, ...]:
    """Finds the biases of positions that the remaining heads have; their table stays whole."""
    return tuple(
        (attention.bias_heads or range(model.config.n_heads))[head]
        for kind, layer, attention in attentions(model)
        if attention.positions.biases
        for head in kept[kind, layer]
    )


def _remove_heads(
    weights: dict[str, Tensor], name: str, heads: list[int], config: ModelConfig
) -> dict[str, Tensor]:
    """Keeps the rows and columns of some heads; those that shared keys and values get their own."""
    width, joined = config.head_width, weights[f"{name}.out_projection.weight"].shape[1]
    n_sharing = config.n_heads // (config.n_key_heads or config.n_heads)

    def places(first: int, n_sharing: int = 1) -> Tensor:
        starts = [first + head // n_sharing * width for head in heads]
        return torch.tensor([start + e for start in starts for e in range(width)]).long()

    # which of the H·E columns of W_O stay, and which rows of W_Q, W_K and W_V below each other
    columns, keys = places(0), joined // n_sharing
    rows = torch.cat((columns, places(joined, n_sharing), places(joined + keys, n_sharing)))
    output = f"{name}.out_projection.weight"
    kept = {output: weights[output][:, columns]}
    for part in (f"{name}.in_projection.weight", f"{name}.in_projection.bias"):
        if part in weights:
            kept[part] = weights[part][rows]
    if f"{name}.relative.projection" in weights:
        kept[f"{name}.relative.projection"] = weights[f"{name}.relative.projection"][columns]
    own = (f"{name}.similarity.", f"{name}.relative.content", f"{name}.relative.position")
    return kept | {part: weights[part][heads] for part in weights if part.startswith(own)}
