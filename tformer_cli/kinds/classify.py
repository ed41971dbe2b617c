"""Classifiers: a text in, the probabilities of labels out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from tformer_cli.errors import DataError
from tformer_cli.kinds.embed import Embed
from tformer_cli.kinds.kind import Examples, LineComputation, Training, with_fields
from tformer_cli.text.fields import with_label_fields
from tformer_cli.wording import count_of, is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from tformer_cli.artifacts.config_file import TaskKind, Verb
    from tformer_cli.kinds.kind import HeldOut, Progress
    from tformer_cli.kinds.lines.classify import ScoredLabel
    from tformer_cli.kinds.lines.job import Damaged
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.model.config import Head
    from tformer_cli.recipe import Recipe
    from tformer_cli.text.batching import Divide
    from tformer_cli.text.corpora import SentencePair
    from tformer_cli.text.tokenizer import Tokenizer
    from tformer_cli.trainer.validation import Scored, Scorer

MOST_LABELS = 1000
"""More in the data are texts in the place of labels."""
FEW_LABELS = 20
"""As many may be labels, however few the examples are."""
COLUMN_NAMES = ("label", "labels", "class", "category", "target", "sentiment", "rating", "stars")
"""Names of columns of labels in the first line of a table."""


class Classification(Training):
    """Texts to labels, by an encoder with a row for each label."""

    examples = Examples("example", "text", "prediction", "label")
    head: ClassVar[Head | None] = "labels"

    def complete_recipe(self, recipe: Recipe, progress: Progress | None) -> Recipe:
        """Names the fields of examples, and finds the labels of the training data, sorted."""
        recipe = with_fields(recipe, with_label_fields)
        labels = tuple(label.strip() for label in recipe.task.labels)  # as those of examples are
        # Sorted, for the order of examples must leave no trace
        labels = labels or tuple(sorted(self._labels_of(recipe, progress)))
        if len(labels) < 2:
            raise DataError(
                f"data.train: has {count_of(len(labels), 'label')}, but a classifier needs two or "
                "more; add examples of others, or name the field: target_field"
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

    def labels(self, target: str) -> list[str]:
        """Returns the labels of an example that is not blank."""
        return [target.strip()]

    def predict_labels(
        self,
        model: Any,  # noqa: ANN401 - a Classifier
        held: HeldOut,
        before_batch: Callable[[], None],
        divide: Divide,
    ) -> Sequence[list[str]]:
        """Predicts the labels of each of the validation examples."""
        from tformer_cli.search.encoding import label_probabilities

        longest, names = model.config.longest_source, held.recipe.task.labels
        ids = held.tokenizer.source.encode_batch([pair.source for pair in held.pairs])

        def compute(texts: Sequence[list[int]]) -> list[list[str]]:
            rows = label_probabilities(model, texts, held.precision, before_batch=before_batch)
            return [[names[row.index(max(row))]] for row in rows]

        # Cut off as by `tformer classify`
        return divide([tokens[:longest] for tokens in ids], compute)

    def _labels_of(self, recipe: Recipe, progress: Progress | None) -> set[str]:
        from tformer_cli.text.corpora import corpus_name, read_corpus

        labels: set[str] = set()
        n_read = n_examples = 0
        advice = (
            "so they are texts; name the fields: source_field of the text, target_field of the "
            "label, or all labels in task.labels"
        )
        for corpus in recipe.data.train:
            for pair in read_corpus(corpus, recipe.data.directory):
                if not (is_blank(pair.source) or is_blank(pair.target)):
                    names = self.labels(pair.target)
                    labels.update(names)
                    n_examples += len(names)
                n_read += 1
                if progress is not None and n_read % 1000 == 0:
                    progress("finding labels", n_read)
                # At once: a whole corpus of texts would be held otherwise
                if len(labels) > MOST_LABELS:
                    raise DataError(
                        f"{corpus_name(corpus)}: has more than {MOST_LABELS:,} labels, {advice}"
                    )
        # Labels come again and again; texts hardly do
        if len(labels) > max(FEW_LABELS, n_examples // 2):
            raise DataError(
                f"data.train: has {len(labels)} labels in {n_examples:,} examples, {advice}"
            )
        return labels

    def texts(self, pair: SentencePair) -> Iterable[str]:
        return (pair.source,)  # a vocabulary has no labels

    def sides(self, tokenizer: Tokenizer, labels: Sequence[str]) -> Tokenizer:
        from tformer_cli.text.label_tokenizer import LabelTokenizer

        return LabelTokenizer(tokenizer, labels)

    def scorer(self, held: HeldOut) -> Scorer:
        """Returns the scorer of accuracy and macro F1, in addition to the loss."""
        from tformer_cli.metrics.labels import score_labels
        from tformer_cli.trainer.validation import Scored, mean_loss

        pairs, names = held.pairs, held.recipe.task.labels
        sides = self.sides(held.tokenizer, names)
        sides.encode_pairs(*zip(*pairs, strict=True))  # refuses unknown labels before training
        right = [label for pair in pairs for label in self.labels(pair.target)]

        def score(
            model: Any,  # noqa: ANN401 - a Classifier
            sample: int,
            before_batch: Callable[[], None],
            divide: Divide,
        ) -> Scored:
            loss = mean_loss(model, pairs, sides, held.precision, before_batch, divide)
            predicted = self.predict_labels(model, held, before_batch, divide)
            scores = score_labels([label for row in predicted for label in row], right, names)
            number = sample % len(pairs)
            return Scored(
                scores={
                    "loss": loss,
                    "accuracy": 100.0 * scores.accuracy,
                    "macro_f1": 100.0 * scores.macro_f1,
                },
                sample=(pairs[number].source, " ".join(predicted[number]), pairs[number].target),
            )

        return score

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Also doubts first lines that name columns: they would be trained on."""
        from tformer_cli.text.corpora import corpus_name, read_corpus

        yield from super().doubts(recipe)
        # The columns of a table of pixels are known by their names, and ignored
        tables = [corpus for corpus in recipe.data.train if corpus.tsv and self.examples.are_texts]
        for corpus in tables:
            first = next(read_corpus(corpus, recipe.data.directory), None)
            if first is not None and first.target.strip().lower() in COLUMN_NAMES:
                yield (
                    f'{corpus_name(corpus)}: its first line ("{first.source}", '
                    f'"{first.target}") looks like a header and would be trained on; remove it '
                    "(tail -n +2)"
                )


class Classify(Embed):
    """An encoder with a row for each label."""

    name: ClassVar[TaskKind] = "classify"
    verbs = ("classify", "embed", "score")
    measured_by = "labels"
    training: ClassVar[Training] = Classification()

    def scored_labels(
        self, opened: Opened, pairs: Sequence[tuple[str, str]], damaged: Damaged
    ) -> Iterator[list[ScoredLabel]]:
        from tformer_cli.kinds.lines.classify import check_labels, score_labels
        from tformer_cli.kinds.lines.job import results_of

        check_labels(opened, [(text, label.strip()) for text, label in pairs], takes_blank=False)
        score = partial(score_labels, opened, damaged=damaged)
        return ([label] for label in results_of(opened.directory, pairs, score))

    def line_computation(self, opened: Opened, verb: Verb) -> LineComputation:
        if verb != "classify":
            return super().line_computation(opened, verb)
        from tformer_cli.kinds.lines.classify import label_texts

        return LineComputation(partial(label_texts, opened))


KIND = Classify()
