"""What a run will look like, from the recipe and a sample of its data; nothing is trained."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from tformer_cli.data.batching import collate, plan_batches
from tformer_cli.data.corpora import SentencePair
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.data.train_tokenizer import train_tokenizer
from tformer_cli.errors import DataError
from tformer_cli.model.config import parameter_count
from tformer_cli.recipe import Recipe
from tformer_cli.workflows.train import make_tokenizer, read_pairs

SAMPLE = 2000
"""Pairs that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a sample of the data says of a run."""

    n_sampled: int
    """Pairs looked at, of each training corpus together."""
    n_parameters: int
    """Trainable parameters, if the vocabulary reaches its full size."""
    vocab_size: int
    """Entries of the vocabulary."""
    source_tokens: float
    """Mean tokens of a source sentence."""
    target_tokens: float
    """Mean tokens of a target sentence."""
    batch_shapes: tuple[tuple[int, int, int], ...]
    """(B, S, T) of some batches."""
    sentences_per_batch: float
    """Mean sentences of a batch."""
    padding: float
    """Share of padding in batches, 0 to 1."""
    example: tuple[SentencePair, list[str], list[str]]
    """A pair and its pieces."""

    def lines(self) -> Iterator[str]:
        """Says it in lines."""
        yield f"parameters: {self.n_parameters:,} with a vocabulary of {self.vocab_size:,}"
        yield (
            f"tokens a sentence, by a tokenizer of the first {self.n_sampled:,} pairs: "
            f"{self.source_tokens:.1f} source, {self.target_tokens:.1f} target"
        )
        shapes = ", ".join(f"{b}×({s}, {t})" for b, s, t in self.batch_shapes)
        yield f"batches, sentences×(source, target) positions: {shapes}"
        yield f"sentences a batch: {self.sentences_per_batch:.0f}; padding: {self.padding:.1%}"
        pair, source, target = self.example
        yield f"source: {pair.source}"
        yield f"  as tokens: {' '.join(source)}"
        yield f"target: {pair.target}"
        yield f"  as tokens: {' '.join(target)}"


def plan_training(recipe: Recipe) -> Plan:
    """Looks at a sample of the data as training would.

    Raises:
        DataError: if a corpus cannot be read or the corpora hold no sentence pairs.
        RecipeError: if the recipe's tokenizer does not fit.
    """
    sample = list(islice(_nonblank(recipe), SAMPLE))
    if not sample:
        raise DataError("data.train: holds no sentence pairs; name another corpus")
    read_pairs(recipe, "valid", limit=1)
    tokenizer = _sample_tokenizer(recipe, sample)
    source_ids = tokenizer.encode_batch([pair.source for pair in sample])
    target_ids = tokenizer.encode_batch([pair.target for pair in sample])
    source_lengths = np.array([len(ids) for ids in source_ids], dtype=np.int32)
    target_lengths = np.array([len(ids) for ids in target_ids], dtype=np.int32)
    batches = [
        collate([source_ids[i] for i in indices], [target_ids[i] for i in indices])
        for indices in plan_batches(
            source_lengths, target_lengths, recipe.training.tokens_per_batch, seed=1, epoch=0
        )
    ]
    n_cells = sum(batch.n_cells for batch in batches)
    n_tokens = sum(batch.n_source_tokens + batch.n_target_tokens for batch in batches)
    vocab_size = tokenizer.vocab_size if recipe.tokenizer.path else _vocab_size(recipe, tokenizer)
    return Plan(
        n_sampled=len(sample),
        n_parameters=parameter_count(recipe.model, vocab_size),
        vocab_size=vocab_size,
        source_tokens=float(source_lengths.mean()),
        target_tokens=float(target_lengths.mean()),
        batch_shapes=tuple((*b.source.shape, b.target_input.shape[1]) for b in batches[:3]),
        sentences_per_batch=len(sample) / len(batches),
        padding=1.0 - n_tokens / n_cells,
        example=(sample[0], tokenizer.pieces(source_ids[0]), tokenizer.pieces(target_ids[0])),
    )


def _nonblank(recipe: Recipe) -> Iterator[SentencePair]:
    pairs = read_pairs(recipe, "train", limit=2 * SAMPLE)
    return (pair for pair in pairs if pair.source.strip() and pair.target.strip())


def _sample_tokenizer(recipe: Recipe, sample: list[SentencePair]) -> Tokenizer:
    """The recipe's tokenizer if it names one, else one trained on the sample alone."""
    if recipe.tokenizer.path:
        return make_tokenizer(recipe)
    lines = (text for pair in sample for text in (pair.source, pair.target))
    return train_tokenizer(lines, replace(recipe.tokenizer, bpe_dropout=0.0))


def _vocab_size(recipe: Recipe, tokenizer: Tokenizer) -> int:
    """The size the recipe asks for; byte vocabularies have their own."""
    if recipe.tokenizer.algorithm == "byte":
        return tokenizer.vocab_size
    return recipe.tokenizer.vocab_size
