"""The task of classification: a text to a label, by an encoder alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.data.corpora import SentencePair, corpus_name, read_corpus
from tformer_cli.data.label_tokenizer import LabelTokenizer
from tformer_cli.errors import DataError
from tformer_cli.wording import count_of
from tformer_cli.workflows.training.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from tformer_cli.data.config import CorpusConfig
    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.model.base import Model
    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.validation import ModelValidator
    from tformer_cli.workflows.training.task import Progress

MOST_LABELS = 1000
"""More in the data are texts in the place of labels."""
FEW_LABELS = 20
"""As many may be labels, however few the examples are."""
COLUMN_NAMES = ("label", "labels", "class", "category", "target", "sentiment", "rating", "stars")
"""Names of columns of labels in the first line of a table."""


class Classification(Task):
    """Texts to labels, by an encoder alone."""

    def completed(self, recipe: Recipe, progress: Progress | None) -> Recipe:
        """Names the fields of examples, and finds the labels of the training data, sorted."""
        data = replace(
            recipe.data,
            train=tuple(map(with_fields, recipe.data.train)),
            valid=tuple(map(with_fields, recipe.data.valid)),
        )
        recipe = replace(recipe, data=data)
        labels = tuple(label.strip() for label in recipe.task.labels)
        labels = labels or tuple(sorted(_labels_of(recipe, progress)))
        if len(labels) < 2:
            raise DataError(
                f"data.train: has {count_of(len(labels), 'label')}, and a classifier tells two or "
                "more apart; give examples of others, or name the field: target_field"
            )
        n_labels = recipe.model.n_labels
        if n_labels not in (0, len(labels)):
            raise DataError(
                f"data.train: has {len(labels)} labels, but model.n_labels is {n_labels}; omit "
                "that key, or name all labels in task.labels"
            )
        return replace(
            recipe,
            task=replace(recipe.task, labels=labels),
            model=replace(recipe.model, n_labels=len(labels)),
        )

    def texts(self, pair: SentencePair) -> Iterable[str]:
        """The text alone: labels are no part of its vocabulary."""
        return (pair.source,)

    def sides(self, recipe: Recipe, tokenizer: Tokenizer) -> Tokenizer:
        """Texts on one side, labels on the other."""
        return LabelTokenizer(tokenizer, recipe.task.labels)

    def new_model(self, config: ModelConfig, vocab_size: int) -> Model:
        """An encoder with a row for each label."""
        from tformer_cli.model.encoder_only import Classifier

        return Classifier(config, vocab_size)

    def validator(
        self,
        recipe: Recipe,
        pairs: Sequence[SentencePair],
        tokenizer: Tokenizer,
        device: torch.device,
        precision: Precision,
    ) -> ModelValidator:
        """Accuracy and macro F1 besides the loss."""
        from tformer_cli.training.label_validation import LabelValidator

        sides = LabelTokenizer(tokenizer, recipe.task.labels)
        sides.target.encode_batch([pair.target for pair in pairs])
        return LabelValidator(pairs, sides, device, precision)

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Also doubts about first lines that name columns."""
        yield from super().doubts(recipe)
        yield from self.doubts_of_first_lines(recipe)

    def doubts_of_first_lines(self, recipe: Recipe) -> Iterable[str]:
        """Yields a sentence for each table whose first line looks like names of columns."""
        for corpus in recipe.data.train:
            first = next(read_corpus(corpus, recipe.data.directory), None) if corpus.tsv else None
            if first is not None and first.target.strip().lower() in COLUMN_NAMES:
                yield (
                    f'{corpus_name(corpus)}: its first line ("{first.source}", "{first.target}") '
                    "looks like names of columns and would be trained on; remove it (tail -n +2)"
                )


def with_fields(corpus: CorpusConfig) -> CorpusConfig:
    """Gives a corpus of records the names of fields that examples of this task have."""
    if corpus.format not in ("jsonl", "dataset"):
        return corpus
    return replace(
        corpus,
        source_field=corpus.source_field or "text",
        target_field=corpus.target_field or "label",
    )


def _labels_of(recipe: Recipe, progress: Progress | None) -> set[str]:
    labels: set[str] = set()
    n_read = n_examples = 0
    advice = (
        "so they are texts; name the fields: source_field of the text, target_field of the label, "
        "or all labels in task.labels"
    )
    for corpus in recipe.data.train:
        for pair in read_corpus(corpus, recipe.data.directory):
            if pair.source.strip() and pair.target.strip():
                labels.add(pair.target.strip())
                n_examples += 1
            n_read += 1
            if progress is not None and n_read % 1000 == 0:
                progress("finding labels", n_read)
            if len(labels) > MOST_LABELS:
                raise DataError(
                    f"{corpus_name(corpus)}: has more than {MOST_LABELS:,} labels, {advice}"
                )
    if len(labels) > max(FEW_LABELS, n_examples // 2):
        raise DataError(
            f"data.train: has {len(labels)} labels in {n_examples:,} examples, {advice}"
        )
    return labels
