"""Validation of a model: loss on the references, and scores of real translations.

Translations are compared as text with the untouched references, by the same functions as
`tformer evaluate` uses, so that a run's scores are those that users will measure.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from tformer_cli.data.batching import collate, plan_batches
from tformer_cli.data.corpora import SentencePair
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.decoding.engine import SearchEngine
from tformer_cli.decoding.translator import Translator
from tformer_cli.evaluation.scores import bleu, chrf
from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.runtime import autocast
from tformer_cli.training.compiling import uncompiled
from tformer_cli.training.events import ValidationReport
from tformer_cli.training.gradients import batch_loss

_TOKENS_PER_BATCH = 4096


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Scores of a model on the validation pairs, and a look at one of them."""

    scores: dict[str, float]
    """loss and perplexity per token, without smoothing; bleu and chrf."""
    signatures: dict[str, str]
    sample: tuple[str, str, str]
    """A source sentence, its translation and its reference."""
    seconds: float

    def report(
        self, step: int, *, is_best: bool = False, weights: str = "current"
    ) -> ValidationReport:
        """Makes the event that tells of it."""
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


class ModelValidator(Protocol):
    """Validates models of a task on the same examples again and again."""

    def validate(
        self, model: Model, sample: int, before_batch: Callable[[], None] | None = None
    ) -> Validation:
        """Computes loss and scores; the model is left in the mode it was in."""


@dataclass
class Validator:
    """Validates translation models on the same sentence pairs again and again."""

    pairs: Sequence[SentencePair]
    tokenizer: Tokenizer
    decoding: DecodingConfig
    engines: Sequence[SearchEngine]
    device: torch.device
    precision: Precision

    def validate(
        self, model: Model, sample: int, before_batch: Callable[[], None] | None = None
    ) -> Validation:
        """Computes loss and scores; the model is left in the mode it was in."""
        was_training = model.training
        model.eval()
        try:
            return self._validate(model, sample, before_batch or go_on)
        finally:
            model.train(was_training)

    def _validate(self, model: Model, sample: int, before_batch: Callable[[], None]) -> Validation:
        start = time.monotonic()
        with (
            torch.inference_mode(),
            autocast(self.device, self.precision),
            uncompiled(model),
        ):
            loss = self._loss(model, before_batch)
            translator = Translator(
                model,
                self.tokenizer,
                self.decoding,
                engines=self.engines,
                before_batch=before_batch,
            )
            translations = translator.translate([pair.source for pair in self.pairs])
        texts = [translation.hypotheses[0].text for translation in translations]
        references = [[pair.target for pair in self.pairs]]
        by_name = {"bleu": bleu(texts, references), "chrf": chrf(texts, references)}
        index = sample % len(self.pairs)
        return Validation(
            scores={
                "loss": loss,
                "perplexity": math.exp(min(loss, 700.0)),
                **{name: score.value for name, score in by_name.items()},
            },
            signatures={name: score.signature for name, score in by_name.items()},
            sample=(self.pairs[index].source, texts[index], self.pairs[index].target),
            seconds=time.monotonic() - start,
        )

    def _loss(self, model: Model, before_batch: Callable[[], None]) -> float:
        return mean_loss(model, self.pairs, self.tokenizer, self.precision, before_batch)


def mean_loss(
    model: Model,
    pairs: Sequence[SentencePair],
    tokenizer: Tokenizer,
    precision: Precision,
    before_batch: Callable[[], None],
) -> float:
    """Computes the mean -ln p of the targets' tokens, the end of the sentence included."""
    config = model.config
    per_token = config.ids_per_token
    sources, targets = zip(*((pair.source, pair.target) for pair in pairs), strict=True)
    source_ids = [ids[: config.longest_source] for ids in tokenizer.source.encode_batch(sources)]
    longest = config.max_positions - 1
    target_ids = [ids[:longest] for ids in tokenizer.target.encode_batch(targets)]
    source_lengths = np.array([len(ids) // per_token for ids in source_ids], dtype=np.int32)
    target_lengths = np.array([len(ids) for ids in target_ids], dtype=np.int32)
    plan = plan_batches(source_lengths, target_lengths, _TOKENS_PER_BATCH, seed=0, epoch=0)
    total, n_tokens = 0.0, 0
    for indices in plan:
        before_batch()
        batch = collate(
            [source_ids[i] for i in indices],
            [target_ids[i] for i in indices],
            source_eos=model.source_eos,
            target_eos=config.ends_targets,
            ids_per_token=per_token,
        )
        loss = batch_loss(model, batch, label_smoothing=0.0, precision=precision)
        total += loss.negative_log_likelihood.item()
        n_tokens += batch.n_target_tokens
    return total / max(1, n_tokens)


def go_on() -> None:
    """Ends nothing."""
