"""Validation of a language model: loss of whole texts, and a look at how it continues one."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from tformer_cli.data.loading.encoded import joined
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.decoding.engine import DecodingModel, SearchEngine
from tformer_cli.decoding.generator import Generator
from tformer_cli.decoding.search.text_scoring import TextModel, score_texts
from tformer_cli.decoding.text_windows import text_scores
from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.model.transformer import Transformer
from tformer_cli.runtime import autocast
from tformer_cli.training.compiling import uncompiled
from tformer_cli.training.validation import Validation

BATCH_TOKENS = 4096
LONGEST_PROMPT, LONGEST_SAMPLE = 40, 100
"""Characters of the prompt that is continued, and tokens that may follow it."""


@dataclass
class TextValidator:
    """Validates language models on the same texts again and again.

    Windows do not overlap: each token is read once, as in training. `tformer evaluate` takes other
    windows and strides.
    """

    texts: Sequence[str]
    tokenizer: Tokenizer
    decoding: DecodingConfig
    engines: Sequence[SearchEngine]
    device: torch.device
    precision: Precision
    window: int
    """Positions that are read at once."""

    def validate(
        self, model: Model, sample: int, before_batch: Callable[[], None] | None = None
    ) -> Validation:
        if not isinstance(model, Transformer):
            raise TypeError("a language model is a Transformer without an encoder")
        was_training = model.training
        model.eval()
        try:
            with (
                torch.inference_mode(),
                autocast(self.device, self.precision),
                uncompiled(model),
            ):
                return self._validate(model, model, sample, before_batch)
        finally:
            model.train(was_training)

    def _validate(
        self,
        model: TextModel,
        decoded: DecodingModel,
        sample: int,
        before_batch: Callable[[], None] | None,
    ) -> Validation:
        start = time.monotonic()
        ids = self.tokenizer.target.encode_phrases(list(self.texts))
        found = score_texts(
            model,
            ids,
            window=self.window,
            stride=self.window,
            batch_tokens=BATCH_TOKENS,
            device=self.device,
            before_batch=before_batch,
        )
        n_ends = len(ids) if model.config.target_eos else 0
        scores = text_scores(found, sum(len(text.encode()) for text in self.texts) + n_ends)
        return Validation(
            scores={
                "loss": scores.loss,
                "perplexity": scores.perplexity,
                "bits_per_byte": scores.bits_per_byte,
            },
            signatures={},
            sample=self._sample(decoded, model.config.target_bos, sample, before_batch),
            seconds=time.monotonic() - start,
        )

    def _sample(
        self,
        model: DecodingModel,
        target_bos: bool,
        number: int,
        before_batch: Callable[[], None] | None,
    ) -> tuple[str, str, str]:
        """The beginning of a line, how the model continues it, and how it goes on."""
        lines = [line for text in self.texts for line in text.split("\n") if line.strip()]
        line = lines[number % len(lines)]
        length = min(LONGEST_PROMPT, -(-len(line) // 2))
        most = min(LONGEST_SAMPLE, self.window // 2)
        generator = Generator(
            model,
            self.tokenizer,
            replace(self.decoding, n_best=1, min_length=0, max_length=most),
            engines=self.engines,
            target_bos=target_bos,
            before_batch=before_batch,
        )
        (found,) = generator.generate([line[:length]], [number])
        return line[:length], found.texts[0].text, line[length:]


def stream_or_lines(lines: Sequence[str], *, is_stream: bool) -> list[str]:
    """The texts of a validation corpus: one of all lines, or the lines that are not blank."""
    return [joined(lines)] if is_stream else [line for line in lines if line.strip()]
