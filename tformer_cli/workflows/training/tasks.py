"""Tasks: the parts of training in which they differ. All else, from loader to report, is common.

An example is a pair of token sequences for every task, so that one cache, loader and loss serve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from tformer_cli.data.doubts import doubts
from tformer_cli.workflows.training.classification import Classification
from tformer_cli.workflows.training.image_classification import ImageClassification
from tformer_cli.workflows.training.language_modeling import LanguageModeling
from tformer_cli.workflows.training.masked_modeling import MaskedModeling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.data.corpora import SentencePair
    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.model.base import Model
    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.validation import ModelValidator


Progress = Callable[[str, int], None]
"""Called with the name of the data in preparation, and the number of its pairs that are done."""


class Task(Protocol):
    """A task that models can be trained for."""

    def completed(self, recipe: Recipe, progress: Progress | None) -> Recipe:
        """Adds to a recipe what the task and its training data decide.

        Everything else of the run is made of the result; the run's own recipe stays as it is given.

        Args:
            recipe: what decides the run.
            progress: called with the name of the data that are read, and the number of examples.

        Raises:
            DataError: if the data do not fit the task.
        """

    def texts(self, pair: SentencePair) -> Iterable[str]:
        """The texts of an example that a tokenizer is trained on."""

    def sides(self, recipe: Recipe, tokenizer: Tokenizer) -> Tokenizer:
        """What turns both sides of examples into ids, given the tokenizer of the run."""

    def new_model(self, config: ModelConfig, vocab_size: int) -> Model:
        """Makes a model with random weights, drawn from torch's global generator."""

    def validator(
        self,
        recipe: Recipe,
        pairs: Sequence[SentencePair],
        tokenizer: Tokenizer,
        device: torch.device,
        precision: Precision,
    ) -> ModelValidator:
        """Makes what scores the model while it trains.

        Args:
            recipe: completed.
            pairs: the validation examples.
            tokenizer: of the run.
            device: of the model.
            precision: of its products.
        """

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Doubts about the training data, a sentence each."""


class Translation:
    """Sentences to sentences, by an encoder-decoder model."""

    def completed(self, recipe: Recipe, progress: Progress | None) -> Recipe:  # noqa: ARG002 - nothing is read
        """See `Task`."""
        return recipe

    def texts(self, pair: SentencePair) -> Iterable[str]:
        """See `Task`."""
        return pair

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
        from tformer_cli.training.validation import Validator
        from tformer_cli.workflows.opening.engines import search_engines

        decoding = replace(recipe.decoding, beam_size=recipe.validation.beam_size, n_best=1)
        engines = search_engines("tformer", device, precision)
        return Validator(pairs, tokenizer, decoding, engines, device, precision)

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """See `Task`."""
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
"""Tasks by `task.kind`."""


def task_of(recipe: Recipe) -> Task:
    """Returns the task of a recipe."""
    return TASKS[recipe.task.kind]
