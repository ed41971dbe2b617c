"""Log-probabilities of given texts by a language model in torch, in windows if they are long.

A text is read in windows; see `decoding.text_windows`. A model with a memory reads every token
once, in segments of W tokens, with what it remembers of those before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from tformer_cli.search.source_batches import LARGEST_LOGITS, padded_length
from tformer_cli.search.text_windows import TextWindow, text_windows
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from tformer_cli.model.config import ModelConfig


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
) -> list[list[float]]:
    """Computes log p of every token of each text that has something before it, its end included."""
    config = model.config
    scored: list[list[float]] = [[] for _ in texts]
    windows: list[TextWindow] = []
    for number, ids in enumerate(texts):
        if config.memory and len(ids) >= window:  # shorter ones need no memory
            scored[number] = _scored_on(model, ids, window, device, before_batch or _go_on)
        else:
            windows += text_windows(number, ids, window, stride, config)
    by_length: dict[int, list[int]] = {}
    for place, one in enumerate(windows):
        by_length.setdefault(min(padded_length(len(one.read)), window), []).append(place)
    found: list[list[float]] = [[] for _ in windows]
    for length, places in sorted(by_length.items()):
        most = min(batch_tokens // length, LARGEST_LOGITS // (model.vocab_size * length))
        size = max(1, most)
        for start in range(0, len(places), size):
            if before_batch is not None:
                before_batch()
            chosen = places[start : start + size]
            rows = _scored(model, [windows[place] for place in chosen], length, device)
            for place, row in zip(chosen, rows, strict=True):
                found[place] = row
    for one, row in zip(windows, found, strict=True):
        scored[one.text] += row
    return scored


def _scored_on(
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
    found: list[float] = []
    for start in range(0, len(tokens) - 1, size):
        before_batch()
        read, predicted = tokens[start : start + size], tokens[start + 1 : start + size + 1]
        hidden, earlier = model.read_on(read[: len(predicted)].unsqueeze(0), earlier, segment)
        found += _log_probabilities(model.project(hidden).float(), predicted.unsqueeze(0))[0]
    return found


def _log_probabilities(logits: Tensor, predicted: Tensor) -> list[list[float]]:
    """Takes log p of (B, T) tokens out of their logits (B, T, V)."""
    own = logits.gather(-1, predicted.unsqueeze(-1)).squeeze(-1)
    steps: list[list[float]] = (own - logits.logsumexp(dim=-1)).clamp(max=0.0).tolist()
    return steps


def _go_on() -> None:
    """Ends nothing."""


def _scored(
    model: TextModel, windows: Sequence[TextWindow], length: int, device: torch.device | str
) -> list[list[float]]:
    """Computes log p of the new tokens of windows that are padded to one length."""
    read = _padded([one.read for one in windows], length)
    predicted = _padded([one.predicted for one in windows], length)
    nothing = torch.full((len(windows), 1), EOS_ID, device=device)
    logits = model(nothing, nothing == EOS_ID, read.to(device)).float()
    steps = _log_probabilities(logits, predicted.to(device))
    return [
        row[len(one.predicted) - one.n_new : len(one.predicted)]
        for row, one in zip(steps, windows, strict=True)
    ]


def _padded(rows: Sequence[Sequence[int]], length: int) -> Tensor:
    return torch.tensor([[*row, *[PAD_ID] * (length - len(row))] for row in rows])
