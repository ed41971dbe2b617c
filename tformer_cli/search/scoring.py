"""Forced decoding: what a model thinks of translations that are given.

All positions of a target are computed at once. Batches hold one padded source length and one padded
target length, so a pair's result does not depend, in float32, on the other pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeGuard

import torch

from tformer_cli.search.engine import SearchedModel
from tformer_cli.search.hypothesis import Hypothesis, scored_hypothesis
from tformer_cli.search.source_batches import LARGEST_LOGITS, padded_length, source_batch
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.model.attention import AttentionTap
    from tformer_cli.model.stacks import DecoderLayer, Stack
    from tformer_cli.search.config import DecodingConfig

LEAST_ATTENTION = 1e-30
"""Stands for attention that has vanished, whose logarithm would be -inf."""


class ForcedModel(SearchedModel, Protocol):
    """A model that can be given whole translations, and whose attention can be tapped."""

    @property
    def decoder(self) -> Stack[DecoderLayer]:
        """Its decoder layers."""

    def __call__(self, source: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """Computes logits (B, T, V); see `Transformer.forward`."""


def takes_targets(model: object) -> TypeGuard[ForcedModel]:
    """Returns whether a model is a `ForcedModel`; its attributes may be a module's parts."""
    return callable(model) and hasattr(model, "decoder")


@torch.inference_mode()
def score_pairs(
    model: ForcedModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    config: DecodingConfig,
    *,
    device: torch.device | str,
) -> list[Hypothesis]:
    """Scores given translations as the search scores its own."""
    max_positions = model.max_positions
    found: dict[int, Hypothesis] = {}
    for batch in _plan(sources, targets, config.torch_batch_tokens, model.vocab_size):
        source, mask = source_batch(
            [sources[i] for i in batch], max_positions, device, eos=model.source_eos
        )
        chosen = [targets[i] for i in batch]
        steps, coverage = _forced(model, source, mask, chosen, config.coverage_penalty)
        for index, values, penalty in zip(batch, steps, coverage, strict=True):
            found[index] = scored_hypothesis(targets[index], values, config, penalty)
    return [found[index] for index in range(len(sources))]


def coverage_penalty(
    weights: Tensor, source_mask: Tensor, target_mask: Tensor, *, eos: bool = True
) -> Tensor:
    """Computes Σ_i log(min(Σ_j p_ij, 1)), 0 where every source token was attended to.

    Source: Wu et al. 2016, equation 14. The source's end of sentence is not counted.

    Args:
        weights: (B, H, T, S) cross-attention; its mean over heads is p.
        source_mask: (B, S) True at source tokens, the last of which is the end of sentence.
        target_mask: (B, T) True at target positions.

    Returns:
        (B) penalties, at most 0.
    """
    attention = weights.float().mean(dim=1).masked_fill(~target_mask.unsqueeze(-1), 0.0)
    covered = attention.sum(dim=1).clamp(min=LEAST_ATTENTION, max=1.0).log()
    is_word = source_mask
    if eos:  # the last token of each row
        is_word = source_mask & source_mask.roll(-1, dims=1)
        is_word[:, -1] = False
    return covered.masked_fill(~is_word, 0.0).sum(dim=1)


def _forced(
    model: ForcedModel,
    source: Tensor,
    source_mask: Tensor,
    targets: Sequence[Sequence[int]],
    beta: float,
) -> tuple[list[list[float]], list[float]]:
    """Returns the log-probabilities of each target's tokens, and β times its coverage penalty."""
    longest = min(padded_length(max(map(len, targets)) + 1), model.max_positions)
    lengths = torch.tensor([len(target) + 1 for target in targets], device=source.device)
    inputs = [[BOS_ID, *t, *[PAD_ID] * (longest - len(t) - 1)] for t in targets]
    outputs = [[*t, EOS_ID, *[PAD_ID] * (longest - len(t) - 1)] for t in targets]
    taps: list[AttentionTap] = []
    handle = model.decoder.layers[-1].cross_attention.tap(taps.append) if beta else None
    try:
        logits = model(source, source_mask, torch.tensor(inputs, device=source.device)).float()
    finally:
        if handle is not None:
            handle.remove()
    wanted = torch.tensor(outputs, device=source.device).unsqueeze(-1)
    steps = logits.gather(-1, wanted).squeeze(-1) - logits.logsumexp(dim=-1)
    values = steps.clamp(max=0.0).tolist()
    rows = [row[: len(target) + 1] for row, target in zip(values, targets, strict=True)]
    if not taps:
        return rows, [0.0] * len(rows)
    target_mask = torch.arange(longest, device=source.device) < lengths.unsqueeze(1)
    weights = taps[0].weights()
    covered = coverage_penalty(weights, source_mask, target_mask, eos=model.source_eos)
    return rows, (beta * covered).tolist()


def _plan(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    batch_tokens: int,
    vocab_size: int,
) -> list[list[int]]:
    """Groups pairs of the same padded lengths."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
        shape = padded_length(len(source) + 1), padded_length(len(target) + 1)
        groups.setdefault(shape, []).append(index)
    batches = []
    for (n_source, n_target), indices in sorted(groups.items()):
        most = min(
            batch_tokens // max(n_source, n_target), LARGEST_LOGITS // (vocab_size * n_target)
        )
        size = max(1, most)
        batches += [indices[start : start + size] for start in range(0, len(indices), size)]
    return batches
