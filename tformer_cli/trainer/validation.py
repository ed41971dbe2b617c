"""Validation of a model while it trains: loss, scores and a sample of the same examples."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.runtime import autocast
from tformer_cli.text.batching import Divide, Indices, collate, compute_all, plan_batches
from tformer_cli.text.corpora import SentencePair
from tformer_cli.text.tokenizer import Tokenizer
from tformer_cli.trainer.events import ValidationReport
from tformer_cli.trainer.gradients import batch_loss
from tformer_cli.trainer.hardware import disable_compiling
from tformer_cli.wording import is_blank

_TOKENS_PER_BATCH = 4096
LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Scores of a model on the validation examples, and a look at one of them."""

    scores: Mapping[str, float]
    """Loss per token without smoothing first, then what the kind of model is measured by."""
    sample: tuple[str, str, str]
    """The input, the output of the model, and the reference."""
    signatures: Mapping[str, str] = field(default_factory=dict)
    """Describes how scores were computed, where there are several ways."""


Scorer = Callable[[Model, int, Callable[[], None], Divide], Scored]
"""Scores a model on fixed examples, given the one to show, a hook before each batch, and what
divides the work among processes. The hook may end the work, so only divided work calls it."""


@dataclass(frozen=True, kw_only=True)
class Validation(Scored):
    """A validation that was made."""

    seconds: float

    def report(
        self, step: int, *, is_best: bool = False, weights: str = "current"
    ) -> ValidationReport:
        source, translation, reference = self.sample
        return ValidationReport(
            step=step,
            scores=self.scores,
            signatures=self.signatures,
            is_best=is_best,
            seconds=self.seconds,
            sample_source=source,
            sample_translation=translation,
            sample_reference=reference,
            weights=weights,
        )


@dataclass(frozen=True)
class Validator:
    """Validates models of one kind on the same examples again and again."""

    score: Scorer
    device: torch.device
    precision: Precision
    divide: Divide = compute_all

    def validate(
        self, model: Model, sample: int, before_batch: Callable[[], None] | None = None
    ) -> Validation:
        """Scores a model, which is left in the mode it was in."""
        start, was_training = time.monotonic(), model.training
        model.eval()
        try:
            with (
                torch.inference_mode(),
                autocast(self.device, self.precision),
                disable_compiling(model),
            ):
                scored = self.score(model, sample, before_batch or (lambda: None), self.divide)
        finally:
            model.train(was_training)
        return Validation(**vars(scored), seconds=time.monotonic() - start)


def perplexity(loss: float) -> float:
    """Returns e to the loss, as far as numbers go."""
    return math.exp(min(loss, LARGEST_EXPONENT))


def mean_loss(
    model: Model,
    pairs: Sequence[SentencePair],
    tokenizer: Tokenizer,
    precision: Precision,
    before_batch: Callable[[], None],
    divide: Divide,
) -> float:
    """Computes the mean -ln p of the targets' tokens, the end of the sentence included."""
    config = model.config
    per_token = config.ids_per_token
    # Blank pairs have no tokens, as in `tformer evaluate`
    written = [pair for pair in pairs if not all(map(is_blank, pair))]
    # What is longer than the model takes is cut off
    source_ids, target_ids = tokenizer.encode_pairs(
        [pair.source for pair in written], [pair.target for pair in written]
    )
    source_ids = [ids[: config.longest_source] for ids in source_ids]
    target_ids = [ids[: config.max_positions - 1] for ids in target_ids]
    source_lengths = np.array([len(ids) // per_token for ids in source_ids], dtype=np.int32)
    target_lengths = np.array([len(ids) for ids in target_ids], dtype=np.int32)
    plan = plan_batches(source_lengths, target_lengths, _TOKENS_PER_BATCH, seed=0, epoch=0)

    def compute(indices: Indices) -> tuple[float, int]:
        before_batch()
        batch = collate(
            [source_ids[i] for i in indices],
            [target_ids[i] for i in indices],
            source_eos=model.source_eos,
            target_eos=config.ends_targets,
            ids_per_token=per_token,
        )
        loss = batch_loss(model, batch, label_smoothing=0.0, precision=precision)
        return loss.negative_log_likelihood.item(), batch.n_target_tokens

    # Whole batches, summed in their order: the bits do not depend on the number of processes
    sums = divide(plan, lambda batches: list(map(compute, batches)))
    return math.fsum(loss for loss, _ in sums) / max(1, sum(n_tokens for _, n_tokens in sums))
