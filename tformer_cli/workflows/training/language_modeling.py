"""The tasks of language models: texts from their beginning, or the hidden tokens of texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.data.config import TEXT_FIELDS
from tformer_cli.data.loading.encoded import TextStream, joined
from tformer_cli.workflows.training.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from tformer_cli.data.config import CorpusConfig
    from tformer_cli.data.corpora import SentencePair
    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.model.base import Model
    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.validation import ModelValidator
    from tformer_cli.workflows.training.task import Progress


def with_text_field(corpus: CorpusConfig) -> CorpusConfig:
    """Names the field of a corpus that has its texts, where the recipe does not."""
    if corpus.is_text or corpus.format not in TEXT_FIELDS:
        return corpus
    return replace(corpus, text_field=TEXT_FIELDS[corpus.format])


class _TextModeling(Task):
    """Texts, each the target of an example with an empty source."""

    def completed(self, recipe: Recipe, progress: Progress | None) -> Recipe:  # noqa: ARG002 - nothing is read
        """Names the fields of texts."""
        data = replace(
            recipe.data,
            train=tuple(map(with_text_field, recipe.data.train)),
            valid=tuple(map(with_text_field, recipe.data.valid)),
        )
        return replace(recipe, data=data)

    def texts(self, pair: SentencePair) -> Iterable[str]:
        """The text; line ends are tokens of a stream."""
        return (joined([pair.target]),)


class LanguageModeling(_TextModeling):
    """Texts from their beginning, by a decoder alone."""

    def completed(self, recipe: Recipe, progress: Progress | None) -> Recipe:
        """Names the fields of texts; blocks of a stream have no end of their own."""
        recipe = super().completed(recipe, progress)
        has_ends = recipe.data.text == "lines"
        return replace(recipe, model=replace(recipe.model, target_eos=has_ends))

    def validator(
        self,
        recipe: Recipe,
        pairs: Sequence[SentencePair],
        tokenizer: Tokenizer,
        device: torch.device,
        precision: Precision,
    ) -> ModelValidator:
        """Loss, perplexity and bits per byte."""
        from tformer_cli.decoding.search.torch_engine import TorchEngine
        from tformer_cli.training.text_validation import TextValidator, stream_or_lines

        lines = [pair.target for pair in pairs]
        return TextValidator(
            stream_or_lines(lines, is_stream=recipe.data.text == "stream"),
            tokenizer,
            recipe.decoding,
            [TorchEngine(device, precision)],
            device,
            precision,
            recipe.data.max_length + recipe.model.target_eos,
        )

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Doubts about the lack of a validation corpus, and about a short training."""
        yield from super().doubts(recipe)
        training = recipe.training
        if 0 < training.max_steps <= training.warmup_steps and not recipe.start.model:
            yield (
                f"training.max_steps: {training.max_steps:,} end within the warm-up of "
                f"{training.warmup_steps:,} steps, so that the model learns little; raise it, or "
                "lower training.warmup_steps"
            )


class MaskedModeling(_TextModeling):
    """Hidden tokens of texts, by an encoder alone."""

    def new_model(self, config: ModelConfig, vocab_size: int) -> Model:
        """An encoder that fills in tokens."""
        from tformer_cli.model.encoder_only import MaskedLanguageModel

        return MaskedLanguageModel(config, vocab_size)

    def validator(
        self,
        recipe: Recipe,
        pairs: Sequence[SentencePair],
        tokenizer: Tokenizer,
        device: torch.device,
        precision: Precision,
    ) -> ModelValidator:
        """Loss, perplexity and accuracy of the same hidden tokens every time."""
        from tformer_cli.data.masking import masking_of
        from tformer_cli.training.masked_validation import MaskedValidator

        lines = [pair.target for pair in pairs]
        is_stream = recipe.data.text == "stream"
        return MaskedValidator(
            texts=lines,
            ids=text_ids(lines, tokenizer, recipe.data.max_length, is_stream=is_stream),
            tokenizer=tokenizer,
            masking=masking_of(tokenizer),
            device=device,
            precision=precision,
        )


def text_ids(
    lines: Sequence[str], tokenizer: Tokenizer, longest: int, *, is_stream: bool
) -> list[Sequence[int]]:
    """The ids of lines, cut off where they are too long, or of blocks of one stream."""
    if is_stream:
        stream = TextStream(tokenizer.target, longest)
        blocks = [*stream.add(lines), stream.rest()]
    else:
        blocks = tokenizer.target.encode_batch([line for line in lines if line.strip()])
    return [ids[:longest] for ids in blocks if ids]
