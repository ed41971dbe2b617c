"""Validation of a classifier: loss, accuracy and macro F1 on the references."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tformer_cli.data.corpora import SentencePair
from tformer_cli.data.label_tokenizer import LabelTokenizer
from tformer_cli.decoding.encoding import label_probabilities
from tformer_cli.evaluation.labels import score_labels
from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.runtime import autocast
from tformer_cli.training.compiling import uncompiled
from tformer_cli.training.validation import Validation, go_on, mean_loss


@dataclass
class LabelValidator:
    """Validates classifiers on the same examples again and again; see `ModelValidator`."""

    pairs: Sequence[SentencePair]
    tokenizer: LabelTokenizer
    device: torch.device
    precision: Precision

    def validate(
        self, model: Model, sample: int, before_batch: Callable[[], None] | None = None
    ) -> Validation:
        if not isinstance(model, Classifier):
            raise TypeError("model: must be a Classifier")
        was_training = model.training
        model.eval()
        try:
            return self._validate(model, sample, before_batch or go_on)
        finally:
            model.train(was_training)

    def _validate(
        self, model: Classifier, sample: int, before_batch: Callable[[], None]
    ) -> Validation:
        start = time.monotonic()
        longest = model.config.longest_source
        with torch.inference_mode(), autocast(self.device, self.precision), uncompiled(model):
            loss = mean_loss(model, self.pairs, self.tokenizer, self.precision, before_batch)
            ids = self.tokenizer.source.encode_batch([pair.source for pair in self.pairs])
            rows = label_probabilities(
                model, [one[:longest] for one in ids], self.precision, before_batch=before_batch
            )
        names = self.tokenizer.target.names
        predicted = [names[row.index(max(row))] for row in rows]
        scores = score_labels(predicted, [pair.target.strip() for pair in self.pairs], names)
        index = sample % len(self.pairs)
        return Validation(
            scores={
                "loss": loss,
                "accuracy": 100.0 * scores.accuracy,
                "macro_f1": 100.0 * scores.macro_f1,
            },
            signatures={},
            sample=(self.pairs[index].source, predicted[index], self.pairs[index].target),
            seconds=time.monotonic() - start,
        )
