"""Scores of predicted labels: accuracy, precision, recall and F1."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LabelScores:
    """Scores of one label."""

    label: str
    precision: float
    """Share of its predictions that are right; 0 if there are none."""
    recall: float
    """Share of its examples that are found; 0 if there are none."""
    f1: float
    n_examples: int


@dataclass(frozen=True, kw_only=True)
class ClassificationScores:
    """Scores of predicted labels."""

    labels: tuple[LabelScores, ...]
    confusion: tuple[tuple[int, ...], ...]
    """[i][j]: examples of label i that were given label j."""

    @property
    def n_examples(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def accuracy(self) -> float:
        """Share of examples whose label is right, 0 to 1; 0 without any."""
        n_right = sum(row[i] for i, row in enumerate(self.confusion))
        return n_right / max(1, self.n_examples)

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the labels that occur among the examples or the predictions."""
        # a label of the model that neither text nor prediction has would count as F1 = 0
        there = [
            score.f1
            for number, score in enumerate(self.labels)
            if score.n_examples or any(row[number] for row in self.confusion)
        ]
        return sum(there) / max(1, len(there))


def score_labels(
    predicted: Sequence[str], references: Sequence[str], labels: Sequence[str]
) -> ClassificationScores:
    counts = Counter(zip(references, predicted, strict=True))
    confusion = tuple(tuple(counts[right, other] for other in labels) for right in labels)
    scores = []
    for number, label in enumerate(labels):
        n_right = confusion[number][number]
        n_examples = sum(confusion[number])
        n_predicted = sum(row[number] for row in confusion)
        scores.append(
            LabelScores(
                label=label,
                precision=n_right / max(1, n_predicted),
                recall=n_right / max(1, n_examples),
                f1=2 * n_right / max(1, n_predicted + n_examples),
                n_examples=n_examples,
            )
        )
    return ClassificationScores(labels=tuple(scores), confusion=confusion)
