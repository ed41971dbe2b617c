"""Tasks by the kinds that recipes name, translation among them."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from tformer_cli.data.doubts import doubts
from tformer_cli.workflows.training.classification import Classification
from tformer_cli.workflows.training.image_classification import ImageClassification
from tformer_cli.workflows.training.language_modeling import LanguageModeling, MaskedModeling
from tformer_cli.workflows.training.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.data.corpora import SentencePair
    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.model.config import Precision
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.validation import ModelValidator


class Translation(Task):
    """Sentences to sentences, by an encoder-decoder model."""

    def texts(self, pair: SentencePair) -> Iterable[str]:
        """Both sentences: a vocabulary is joint."""
        return pair

    def validator(
        self,
        recipe: Recipe,
        pairs: Sequence[SentencePair],
        tokenizer: Tokenizer,
        device: torch.device,
        precision: Precision,
    ) -> ModelValidator:
        """Scores of translations besides the loss."""
        from tformer_cli.training.validation import Validator
        from tformer_cli.workflows.opening.engines import search_engines

        decoding = replace(recipe.decoding, beam_size=recipe.validation.beam_size, n_best=1)
        engines = search_engines("tformer", device, precision)
        return Validator(pairs, tokenizer, decoding, engines, device, precision)

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Doubts about the corpora, languages and lengths."""
        return doubts(recipe.data)


TASKS: Mapping[TaskKind, Task] = MappingProxyType(
    {
        "translate": Translation(),
        "classify": Classification(),
        "language-model": LanguageModeling(),
        "masked": MaskedModeling(),
        "image": ImageClassification(),
    }
)


def task_of(recipe: Recipe) -> Task:
    return TASKS[recipe.task.kind]
