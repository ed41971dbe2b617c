"""The task of a masked language model: hidden tokens of texts, by an encoder alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.data.doubts import WITHOUT_VALIDATION
from tformer_cli.data.loading.text_stream import TextStream, joined
from tformer_cli.data.masking import masking_of
from tformer_cli.workflows.training.language_modeling import with_text_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

    from tformer_cli.data.corpora import SentencePair
    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.model.base import Model
    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.validation import ModelValidator


class MaskedModeling:
    """Texts, each the target of an example with an empty source; see `tasks.Task`."""

    def completed(self, recipe: Recipe, progress: Callable[[str, int], None] | None) -> Recipe:  # noqa: ARG002 - nothing is read
        """See `Task`. Fields of texts are named."""
        data = replace(
            recipe.data,
            train=tuple(map(with_text_field, recipe.data.train)),
            valid=tuple(map(with_text_field, recipe.data.valid)),
        )
        return replace(recipe, data=data)

    def texts(self, pair: SentencePair) -> Iterable[str]:
        """See `Task`; line ends are tokens of a stream."""
        return (joined([pair.target]),)

    def sides(self, recipe: Recipe, tokenizer: Tokenizer) -> Tokenizer:  # noqa: ARG002 - has both
        """See `Task`."""
        return tokenizer

    def new_model(self, config: ModelConfig, vocab_size: int) -> Model:
        """See `Task`."""
        from tformer_cli.model.masked import MaskedLanguageModel

        return MaskedLanguageModel(config, vocab_size)

    def validator(
        self,
        recipe: Recipe,
        pairs: Sequence[SentencePair],
        tokenizer: Tokenizer,
        device: torch.device,
        precision: Precision,
    ) -> ModelValidator:
        """See `Task`: loss, perplexity and accuracy of the same hidden tokens every time."""
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

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """See `Task`."""
        return () if recipe.data.valid else (WITHOUT_VALIDATION,)


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
