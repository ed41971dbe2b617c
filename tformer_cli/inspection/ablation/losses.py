"""Ablation, the loss without a head: ξ_h = 0, the rest of the model as it is.

One at a time this is a forward pass for each head (`sentence_losses` under `gates.heads_off`). All
heads of a batch together are `losses_without_each`: the rows of a batch are repeated once for each
head, each copy with its own gate, and what lies below the head's layer is computed once for all:
the whole encoder, where the head is in the decoder. The target of a language model is its text,
that of a classifier is the label, and those of a masked language model are hidden tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, fields
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.data.batching import Batch, collate
from tformer_cli.data.tokenizer import PAD_ID
from tformer_cli.inspection.ablation.gates import gated, gates_of_each, heads_off
from tformer_cli.inspection.capture.heads import HeadId, Inspected, Kind, attentions
from tformer_cli.inspection.capture.observed import ModuleRecord, record_module
from tformer_cli.model.attention import causal_mask, key_mask, segment_mask
from tformer_cli.model.encoder_only import EncoderOnly

LARGEST_POSITIONS = 1 << 13
"""Most positions, rows times the longer side, of one pass over repeated rows: bounds memory."""
LARGEST_LOGITS = 1 << 22
"""Most logits held at a time."""


Measure = Callable[[Inspected, Tensor, Tensor], Tensor]
"""Measures rows by their last hidden states (R, T, D) and the tokens (R, T) to be predicted: (R),
or (R, M) of several measures."""


def batch_of(
    model: Inspected, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, ends: bool = True
) -> Batch:
    """Pads pairs of ids without specials as a model reads them; see `capture.batches.IdPair`.

    The target of a classifier is the id of its label.

    Args:
        model: the model.
        pairs: the pairs.
        ends: whether the end of sentence is to be predicted behind targets, where a model does.
    """
    config = model.config
    return collate(
        [source for source, _ in pairs],
        [target for _, target in pairs],
        source_eos=config.ends_sources,
        target_bos=config.target_bos,
        target_eos=ends and config.ends_targets,
        ids_per_token=config.ids_per_token,
    )


def batch_of_gaps(source_ids: Sequence[int], fills: Mapping[int, int]) -> Batch:
    """Makes a batch of one text for a masked language model.

    Args:
        source_ids: (S) what the model reads.
        fills: the tokens to be predicted, by their positions.
    """
    source = torch.tensor([list(source_ids)])
    target = torch.full_like(source, PAD_ID)
    for position, token in fills.items():
        target[0, position] = token
    return Batch(source, source != PAD_ID, target_input=source, target_output=target)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Moves a batch."""
    return Batch(*(getattr(batch, one.name).to(device) for one in fields(batch)))


def sentence_losses(model: Inspected, batch: Batch) -> Tensor:
    """Computes -Σ ln p of each sentence's target tokens, the end of sentence included.

    Args:
        model: the model, in evaluation mode.
        batch: B pairs, on its device.

    Returns:
        (B) float64 losses in nats. They have a gradient if it is enabled.
    """
    hidden = model.target_hidden(batch.source, batch.source_mask, batch.target_input)
    return losses_of(model, hidden, batch.target_output)


def losses_of(model: Inspected, hidden: Tensor, target_output: Tensor) -> Tensor:
    """Computes the losses of rows from the decoder's last hidden states.

    Args:
        model: the model.
        hidden: (R, T, D) hidden states.
        target_output: (R, T) tokens to be predicted, padding after them.

    Returns:
        (R) float64 sums over each row's tokens.
    """
    return _sums_over_rows(model, hidden, target_output, _losses)[:, 0]


def losses_and_hits(model: Inspected, hidden: Tensor, target_output: Tensor) -> Tensor:
    """Computes (R, 2) the loss of each row, and how many of its tokens are the most probable."""

    def measured(logits: Tensor, targets: Tensor) -> Tensor:
        is_hit = (logits.argmax(dim=1) == targets).double()
        return torch.cat((_losses(logits, targets), is_hit[:, None]), dim=1)

    return _sums_over_rows(model, hidden, target_output, measured)


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
    # (R, T, D) -> (N, D): the vocabulary is compared with tokens alone, not with padding
    tokens = hidden.flatten(0, 1)[positions]
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
    """Computes each sentence's loss without each head, the rest of the model as it is.

    Args:
        model: the model, in evaluation mode, no gates set.
        batch: B pairs, on its device.
        heads: R heads.
        largest_positions: bounds the rows that are computed together.
        measure: what is measured.

    Returns:
        (B, …) measures with all heads, and (R, B, …) without each head; float64, on the CPU.
    """
    shared = _Shared.of(model, batch)
    whole = measure(model, shared.last, batch.target_output)
    n_heads = {(kind, layer): a.n_heads for kind, layer, a in attentions(model)}
    longest = max(batch.source_mask.shape[1], batch.target_input.shape[1])
    n_together = max(1, largest_positions // (batch.n_sentences * longest))
    without: dict[HeadId, Tensor] = {}
    for place, members in groupby(sorted(heads), key=lambda head: (head.kind, head.layer)):
        for some in _chunks(list(members), n_together):
            gates = gates_of_each(n_heads[place], [h.head for h in some], batch.n_sentences)
            with gated(model, {place: gates.to(batch.source.device)}):
                hidden = shared.rest(model, place, len(some))
            found = measure(model, hidden, batch.target_output.repeat(len(some), 1))
            without |= zip(some, found.view(len(some), *whole.shape), strict=True)
    return whole.cpu(), torch.stack([without[head] for head in heads]).cpu()


@dataclass(frozen=True)
class _Shared:
    """Hidden states below each layer, which all ablations of a batch share."""

    batch: Batch
    below_encoder: tuple[Tensor, ...]
    """Input of each encoder layer, (B, S, D), if the model has any."""
    memory: Tensor
    """(B, S, D); of a language model (B, S, 0)."""
    below_decoder: tuple[Tensor, ...]
    """Input of each decoder layer, (B, T, D), if the model has any."""
    last: Tensor
    """(B, T, D) hidden states with all heads; of a classifier (B, 1, D) the pooled ones."""

    @classmethod
    def of(cls, model: Inspected, batch: Batch) -> "_Shared":
        """Runs the model once, all heads on, and records what enters each layer."""
        with ExitStack() as hooks:

            def recorded(stack: str) -> list[ModuleRecord]:
                layers = getattr(model, stack).layers if hasattr(model, stack) else ()
                return [record_module(hooks, layer) for layer in layers]

            encoder, decoder = recorded("encoder"), recorded("decoder")
            memory = model.encode(batch.source, batch.source_mask)
            if isinstance(model, EncoderOnly):
                last = model.predicting(memory, batch.source_mask)
            else:
                last = model.decode_hidden(batch.target_input, memory, batch.source_mask)
        below_encoder, below_decoder = (
            tuple(layer.inputs[0] for layer in layers) for layers in (encoder, decoder)
        )
        return cls(batch, below_encoder, memory, below_decoder, last)

    def rest(self, model: Inspected, place: tuple[Kind, int], n_copies: int) -> Tensor:
        """Runs copies of the batch from a layer on: (copies·B, T, D) last hidden states."""
        kind, start = place
        source_mask = self.batch.source_mask.repeat(n_copies, 1)
        mask = key_mask(source_mask)
        if isinstance(model, EncoderOnly):
            mask = model.mask_of(source_mask)
        if kind == "enc":
            hidden = self.below_encoder[start].repeat(n_copies, 1, 1)
            memory, start = model.encoder(hidden, mask, first=start), 0
        else:
            memory = self.memory.repeat(n_copies, 1, 1)
        if isinstance(model, EncoderOnly):
            return model.predicting(memory, source_mask)
        hidden = self.below_decoder[start].repeat(n_copies, 1, 1)
        n_targets, device, remembered = hidden.shape[1], hidden.device, model.config.memory
        causal = causal_mask(n_targets, device)
        if remembered:
            causal = segment_mask(0, n_targets, model.max_positions, remembered, device)
        return model.decoder(hidden, causal, memory, mask, first=start)


@torch.inference_mode()
def losses_along(
    model: Inspected, batch: Batch, order: Sequence[HeadId], measure: Measure = losses_of
) -> Tensor:
    """Computes each sentence's loss with more and more heads switched off.

    Args:
        model: the model, in evaluation mode.
        batch: B pairs, on its device.
        order: heads in the order in which they are switched off.
        measure: what is measured.

    Returns:
        (R + 1, B, …) float64 measures on the CPU: without none, the first, the first two, … all
        of them.
    """
    found = []
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
        found.append(measure(model, hidden, batch.target_output).cpu())
    return torch.stack(found)


def _chunks(heads: list[HeadId], size: int) -> Iterator[list[HeadId]]:
    for start in range(0, len(heads), size):
        yield heads[start : start + size]
