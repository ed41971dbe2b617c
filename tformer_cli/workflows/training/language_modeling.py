"""The task of a language model: texts from their beginning, by a decoder alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.data.config import TEXT_FIELDS
from tformer_cli.data.doubts import WITHOUT_VALIDATION
from tformer_cli.data.loading.text_stream import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

    from tformer_cli.data.config import CorpusConfig
    from tformer_cli.data.corpora import SentencePair
    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.model.base import Model
    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.validation import ModelValidator


def with_text_field(corpus: CorpusConfig) -> CorpusConfig:
    """Names the field of a corpus that has its texts, where the recipe does not."""
    if corpus.is_text or corpus.format not in TEXT_FIELDS:
        return corpus
    return replace(corpus, text_field=TEXT_FIELDS[corpus.format])


class LanguageModeling:
    """Texts, each the target of an example with an empty source; see `tasks.Task`."""

    def completed(self, recipe: Recipe, progress: Callable[[str, int], None] | None) -> Recipe:  # noqa: ARG002 - nothing is read
        """See `Task`. Fields of texts are named; blocks of a stream have no end of their own."""
        data = replace(
            recipe.data,
            train=tuple(map(with_text_field, recipe.data.train)),
            valid=tuple(map(with_text_field, recipe.data.valid)),
        )
        has_ends = data.text == "lines"
        return replace(recipe, data=data, model=replace(recipe.model, target_eos=has_ends))

    def texts(self, pair: SentencePair) -> Iterable[str]:
        """See `Task`; line ends are tokens of a stream."""
        return (joined([pair.target]),)

    def sides(self, recipe: Recipe, tokenizer: Tokenizer) -> Tokenizer:  # noqa: ARG002 - has both
        """See `Task`."""
        return tokenizer

    def new_model(self, config: ModelConfig, vocab_size: int) -> Model:
        """See `Task`."""
        from tformer_cli.model.transformer import Transformer

        return Transformer(config, vocab_size)

    def validator(
        self,
        recipe: Recipe,
        pairs: Sequence[SentencePair],
        tokenizer: Tokenizer,
        device: torch.device,
        precision: Precision,
    ) -> ModelValidator:
        """See `Task`."""
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
        """See `Task`."""
        if not recipe.data.valid:
            yield WITHOUT_VALIDATION
        training = recipe.training
        if 0 < training.max_steps <= training.warmup_steps and not recipe.start.model:
            yield (
                f"training.max_steps: {training.max_steps:,} end within the warm-up of "
                f"{training.warmup_steps:,} steps, so that the model learns little; raise it, or "
                "lower training.warmup_steps"
            )
