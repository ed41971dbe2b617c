"""A task: the parts of training in which tasks differ. All else, from loader to report, is common.

An example is a pair of token sequences for every task, so that one cache, loader and loss serve.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from tformer_cli.data.doubts import WITHOUT_VALIDATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from tformer_cli.data.corpora import SentencePair
    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.model.base import Model
    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.validation import ModelValidator


Progress = Callable[[str, int], None]
"""Called with the name of the data in preparation, and the number of its pairs that are done."""


class Task(ABC):
    """A task that models can be trained for; what is not abstract suits most."""

    def completed(self, recipe: Recipe, progress: Progress | None) -> Recipe:  # noqa: ARG002 - nothing is read
        """Adds to a recipe what the task and its training data decide."""
        # Everything else of the run is made of the result; the run's own recipe stays as it is
        # given.
        return recipe

    @abstractmethod
    def texts(self, pair: SentencePair) -> Iterable[str]:
        """The texts of an example that a tokenizer is trained on."""

    def sides(self, recipe: Recipe, tokenizer: Tokenizer) -> Tokenizer:  # noqa: ARG002 - has both
        """What turns both sides of examples into ids, given the tokenizer of the run."""
        return tokenizer

    def new_model(self, config: ModelConfig, vocab_size: int) -> Model:
        """Makes a model with random weights, drawn from torch's global generator."""
        from tformer_cli.model.transformer import Transformer

        return Transformer(config, vocab_size)

    @abstractmethod
    def validator(
        self,
        recipe: Recipe,
        pairs: Sequence[SentencePair],
        tokenizer: Tokenizer,
        device: torch.device,
        precision: Precision,
    ) -> ModelValidator:
        """Makes what scores the model while it trains."""

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Doubts about the training data, a sentence each."""
        return () if recipe.data.valid else (WITHOUT_VALIDATION,)
