"""Forced decoding: what a model thinks of translations that are given.

All positions of a target are computed at once. Batches hold one padded source length and one padded
target length, so a pair's result does not depend, in float32, on the other pairs.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeGuard

import torch

from tformer_cli.search.engine import SearchedModel
from tformer_cli.search.hypothesis import Hypothesis, never_interrupt, scored_hypothesis
from tformer_cli.search.source_batches import LARGEST_LOGITS, padded_length, source_batch
from tformer_cli.search.text_windows import TextWindow, text_windows
from tformer_cli.text.batching import compute_all
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.model.attention import AttentionTap
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.stacks import DecoderLayer, Stack
    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.hypothesis import CrossHead
    from tformer_cli.text.batching import Divide

LEAST_ATTENTION = 1e-30
"""Replaces attention that has vanished, whose logarithm would be -inf."""


class ForcedModel(SearchedModel, Protocol):
    """A model that scores whole translations and whose attention can be tapped."""

    @property
    def decoder(self) -> Stack[DecoderLayer]:
        """Its decoder layers."""

    def __call__(self, source: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """Computes logits (B, T, V); see `Transformer.forward`."""

    def target_hidden(self, source: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """Computes the decoder's last hidden states (B, T, D)."""


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
    hypotheses: dict[int, Hypothesis] = {}
    for batch in _plan(sources, targets, config.torch_batch_tokens, model.vocab_size):
        source, mask = source_batch(
            [sources[i] for i in batch], max_positions, device, eos=model.source_eos
        )
        chosen = [targets[i] for i in batch]
        steps, coverage = _force_targets(model, source, mask, chosen, config.coverage_penalty)
        for index, values, penalty in zip(batch, steps, coverage, strict=True):
            hypotheses[index] = scored_hypothesis(targets[index], values, config, penalty)
    return [hypotheses[index] for index in range(len(sources))]


@torch.inference_mode()
def attended_pairs(
    model: ForcedModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    heads: Sequence[CrossHead],
    *,
    batch_tokens: int,
    device: torch.device | str,
) -> list[NDArray[np.float32]]:
    """Finds what heads attend to in given translations; see `SourceAttention.weights`."""
    attentions: dict[int, NDArray[np.float32]] = {}
    for batch in _plan(sources, targets, batch_tokens, model.vocab_size):
        chosen = [targets[i] for i in batch]
        source, mask = source_batch(
            [sources[i] for i in batch], model.max_positions, device, eos=model.source_eos
        )
        taps: dict[int, AttentionTap] = {}
        with ExitStack() as taken:
            # Taps are removed even after errors: a leftover tap would record every later pass
            for layer in {layer for layer, _ in heads}:
                attention = model.decoder.layers[layer].cross_attention
                taken.callback(attention.tap(partial(taps.__setitem__, layer)).remove)
            model.target_hidden(source, mask, _inputs(chosen, model, source.device))
        weights = {layer: tap.weights(torch.float32) for layer, tap in taps.items()}
        # (heads, B, T, S) -> (B, T, S)
        mean = torch.stack([weights[layer][:, head] for layer, head in heads]).double().mean(dim=0)
        rows, lengths = mean.float().cpu().numpy(), mask.sum(dim=1).tolist()
        for row, index in enumerate(batch):
            # A copy, so that a pair that is kept does not keep its batch
            attentions[index] = rows[row, : len(chosen[row]) + 1, : lengths[row]].copy()
    return [attentions[index] for index in range(len(sources))]


def _inputs(targets: Sequence[Sequence[int]], model: ForcedModel, device: torch.device) -> Tensor:
    """Pads what the decoder reads of targets to (B, T)."""
    longest = min(padded_length(max(map(len, targets)) + 1), model.max_positions)
    rows = [[BOS_ID, *t, *[PAD_ID] * (longest - len(t) - 1)] for t in targets]
    return torch.tensor(rows, device=device)


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
    # The log of a token without any attention would be -inf
    covered = attention.sum(dim=1).clamp(min=LEAST_ATTENTION, max=1.0).log()
    is_word = source_mask
    if eos:  # the last token of each row
        # A token is a word if another follows; the roll wraps around in the last column
        is_word = source_mask & source_mask.roll(-1, dims=1)
        is_word[:, -1] = False
    return covered.masked_fill(~is_word, 0.0).sum(dim=1)


def _force_targets(
    model: ForcedModel,
    source: Tensor,
    source_mask: Tensor,
    targets: Sequence[Sequence[int]],
    beta: float,
) -> tuple[list[list[float]], list[float]]:
    """Returns the log-probabilities of each target's tokens, and β times its coverage penalty."""
    inputs = _inputs(targets, model, source.device)
    longest = inputs.shape[1]
    lengths = torch.tensor([len(target) + 1 for target in targets], device=source.device)
    outputs = [[*t, EOS_ID, *[PAD_ID] * (longest - len(t) - 1)] for t in targets]
    taps: list[AttentionTap] = []
    handle = model.decoder.layers[-1].cross_attention.tap(taps.append) if beta else None
    try:
        logits = model(source, source_mask, inputs).float()
    finally:
        if handle is not None:
            # Even after errors: a leftover tap would record every later pass
            handle.remove()
    wanted = torch.tensor(outputs, device=source.device).unsqueeze(-1)
    # Only those wanted: log_softmax would need another (B, T, V)
    steps = logits.gather(-1, wanted).squeeze(-1) - logits.logsumexp(dim=-1)
    # Rounding may put the certain event a hair above 0
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


READ_ON_AT_ONCE = 1024
"""Tokens of a pass with a memory; of more, most would be hidden from each other."""


class TextModel(Protocol):
    """A language model that can be given whole texts."""

    @property
    def config(self) -> ModelConfig:
        """Its settings."""

    @property
    def vocab_size(self) -> int:
        """V."""

    def __call__(self, source: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """Computes logits (B, T, V); see `Transformer.forward`."""

    def read_on(
        self, tokens: Tensor, earlier: Sequence[Tensor] = (), segment: int = 0
    ) -> tuple[Tensor, list[Tensor]]:
        """Computes hidden states (B, T, D); see `Transformer.read_on`."""

    def project(self, hidden: Tensor) -> Tensor:
        """Turns hidden states (…, D) into logits (…, V)."""


@torch.inference_mode()
def score_texts(
    model: TextModel,
    texts: Sequence[Sequence[int]],
    *,
    window: int,
    stride: int,
    batch_tokens: int,
    device: torch.device | str,
    before_batch: Callable[[], None] | None = None,
    divide: Divide = compute_all,
) -> list[list[float]]:
    """Computes log p of every token of each text that has something before it, its end included."""
    config = model.config
    scored: list[list[float]] = [[] for _ in texts]
    windows: list[TextWindow] = []
    for number, ids in enumerate(texts):
        if config.memory and len(ids) >= window:  # shorter ones need no memory
            scored[number] = _score_segments(
                model, ids, window, device, before_batch or never_interrupt
            )
        else:
            windows += text_windows(number, ids, window, stride, config)
    by_length: dict[int, list[int]] = {}
    for place, chunk in enumerate(windows):
        by_length.setdefault(min(padded_length(len(chunk.read)), window), []).append(place)
    batches: list[tuple[int, list[int]]] = []
    for length, places in sorted(by_length.items()):
        most = min(batch_tokens // length, LARGEST_LOGITS // (model.vocab_size * length))
        size = max(1, most)
        batches += [(length, places[start : start + size]) for start in range(0, len(places), size)]

    def compute(batch: tuple[int, list[int]]) -> list[list[float]]:
        if before_batch is not None:
            before_batch()
        length, chosen = batch
        return _score_windows(model, [windows[place] for place in chosen], length, device)

    chunk_rows: list[list[float]] = [[] for _ in windows]
    computed = divide(batches, lambda share: list(map(compute, share)))
    for (_, chosen), rows in zip(batches, computed, strict=True):
        for place, row in zip(chosen, rows, strict=True):
            chunk_rows[place] = row
    for chunk, row in zip(windows, chunk_rows, strict=True):
        scored[chunk.text] += row
    return scored


def _score_segments(
    model: TextModel,
    ids: Sequence[int],
    segment: int,
    device: torch.device | str,
    before_batch: Callable[[], None],
) -> list[float]:
    """Computes log p of a text's tokens, some segments at once."""
    most = min(READ_ON_AT_ONCE, LARGEST_LOGITS // model.vocab_size)
    size = max(1, most // segment) * segment
    ended = [*ids, EOS_ID] if model.config.target_eos else list(ids)
    tokens = torch.tensor([BOS_ID, *ended] if model.config.target_bos else ended, device=device)
    earlier: Sequence[Tensor] = ()
    steps: list[float] = []
    for start in range(0, len(tokens) - 1, size):
        before_batch()
        read, predicted = tokens[start : start + size], tokens[start + 1 : start + size + 1]
        hidden, earlier = model.read_on(read[: len(predicted)].unsqueeze(0), earlier, segment)
        steps += _log_probabilities(model.project(hidden).float(), predicted.unsqueeze(0))[0]
    return steps


def _log_probabilities(logits: Tensor, predicted: Tensor) -> list[list[float]]:
    """Takes log p of (B, T) tokens out of their logits (B, T, V)."""
    own = logits.gather(-1, predicted.unsqueeze(-1)).squeeze(-1)
    steps: list[list[float]] = (own - logits.logsumexp(dim=-1)).clamp(max=0.0).tolist()
    return steps


def _score_windows(
    model: TextModel, windows: Sequence[TextWindow], length: int, device: torch.device | str
) -> list[list[float]]:
    """Computes log p of the new tokens of windows that are padded to one length."""
    read = _pad_rows([window.read for window in windows], length)
    predicted = _pad_rows([window.predicted for window in windows], length)
    nothing = torch.full((len(windows), 1), EOS_ID, device=device)
    logits = model(nothing, nothing == EOS_ID, read.to(device)).float()
    steps = _log_probabilities(logits, predicted.to(device))
    return [
        row[len(window.predicted) - window.n_new : len(window.predicted)]
        for row, window in zip(steps, windows, strict=True)
    ]


def _pad_rows(rows: Sequence[Sequence[int]], length: int) -> Tensor:
    return torch.tensor([[*row, *[PAD_ID] * (length - len(row))] for row in rows])
