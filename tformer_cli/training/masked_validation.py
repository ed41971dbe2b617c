"""Validation of a masked language model: the same tokens are hidden every time."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tformer_cli.data.batching import Batch, plan_batches
from tformer_cli.data.masking import Masking
from tformer_cli.data.tokenizer import PAD_ID, Tokenizer
from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.model.encoder_only import MaskedLanguageModel
from tformer_cli.runtime import autocast
from tformer_cli.training.compiling import uncompiled
from tformer_cli.training.validation import Validation, go_on

_TOKENS_PER_BATCH = 4096
_SEED = 0
"""Of what is hidden: one text's does not depend on the others."""


@dataclass(frozen=True, kw_only=True)
class MaskedScores:
    """Scores of hidden tokens."""

    loss: float
    accuracy: float
    """Share of the tokens that are the most probable ones, in percent."""
    n_tokens: int

    @property
    def perplexity(self) -> float:
        """E to the loss."""
        return math.exp(min(self.loss, 700.0))


def masked_scores(
    model: MaskedLanguageModel,
    texts: Sequence[Sequence[int]],
    masking: Masking,
    device: torch.device,
    before_batch: Callable[[], None] = go_on,
) -> MaskedScores:
    """Predicts hidden tokens of texts, the same ones whenever it is called."""
    lengths = np.array([len(ids) for ids in texts], np.int32)
    plan = plan_batches(lengths, lengths, _TOKENS_PER_BATCH, seed=0, epoch=0)
    total, n_right, n_tokens = 0.0, 0, 0
    for indices in plan:
        before_batch()
        batch = hidden_alike([texts[i] for i in indices], indices.tolist(), masking)
        hidden = model.encode(batch.source.to(device), batch.source_mask.to(device))
        is_target = (batch.target_output != PAD_ID).to(device)
        targets = batch.target_output.to(device)[is_target]
        logits = model.project(model.transformed(hidden[is_target])).float()
        total += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        n_right += int((logits.argmax(dim=1) == targets).sum())
        n_tokens += len(targets)
    share = 100.0 * n_right / max(1, n_tokens)
    return MaskedScores(loss=total / max(1, n_tokens), accuracy=share, n_tokens=n_tokens)


def hidden_alike(texts: list[Sequence[int]], numbers: list[int], masking: Masking) -> Batch:
    """Masks each text by a generator of its own, which its number seeds."""
    parts = [
        masking.batch([text], np.random.default_rng([_SEED, number]))
        for text, number in zip(texts, numbers, strict=True)
    ]
    source, target = (
        torch.nn.utils.rnn.pad_sequence([side[0] for side in sides], batch_first=True)
        for sides in ([one.source for one in parts], [one.target_output for one in parts])
    )
    return Batch(
        source=source, source_mask=source != PAD_ID, target_input=source, target_output=target
    )


@dataclass
class MaskedValidator:
    """Validates masked language models on the same texts again and again; see `ModelValidator`."""

    texts: Sequence[str]
    ids: Sequence[Sequence[int]]
    tokenizer: Tokenizer
    masking: Masking
    device: torch.device
    precision: Precision

    def validate(
        self, model: Model, sample: int, before_batch: Callable[[], None] | None = None
    ) -> Validation:
        if not isinstance(model, MaskedLanguageModel):
            raise TypeError("model: must be a MaskedLanguageModel")
        was_training, start = model.training, time.monotonic()
        model.eval()
        try:
            with torch.inference_mode(), autocast(self.device, self.precision), uncompiled(model):
                scores = masked_scores(
                    model, self.ids, self.masking, self.device, before_batch or go_on
                )
                shown = self._sample(model, sample % len(self.ids))
        finally:
            model.train(was_training)
        return Validation(
            scores={
                "loss": scores.loss,
                "perplexity": scores.perplexity,
                "accuracy": scores.accuracy,
            },
            signatures={},
            sample=shown,
            seconds=time.monotonic() - start,
        )

    def _sample(self, model: MaskedLanguageModel, number: int) -> tuple[str, str, str]:
        """A text with its hidden tokens, with the most probable ones in their places, and whole."""
        batch = hidden_alike([self.ids[number]], [number], self.masking)
        logits = model(batch.source.to(self.device), batch.source_mask.to(self.device))
        best = logits[0].float().argmax(dim=1).cpu()
        is_target = batch.target_output[0] != PAD_ID
        filled = torch.where(is_target, best, batch.source[0])
        side = self.tokenizer.source
        pieces = side.pieces(batch.source[0, :-1].tolist())
        return " ".join(pieces), side.decode(filled[:-1].tolist()), side.decode(self.ids[number])
