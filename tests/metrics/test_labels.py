"""Scores of labels, against their definitions example by example."""

import random

import pytest

from tformer_cli.metrics.labels import score_labels

LABELS = ("a", "b", "c", "never")


def examples():
    dice = random.Random(4)
    references = [dice.choice("aaabbc") for _ in range(200)]
    predicted = [right if dice.random() < 0.6 else dice.choice("abc") for right in references]
    return predicted, references


def test_scores_are_those_of_their_definitions():
    predicted, references = examples()
    scores = score_labels(predicted, references, LABELS)
    pairs = list(zip(predicted, references, strict=True))
    assert scores.n_examples == 200
    assert scores.accuracy == sum(p == r for p, r in pairs) / 200
    for number, label in enumerate("abc"):
        one = scores.labels[number]
        given = [r == label for p, r in pairs if p == label]
        there = [p == label for p, r in pairs if r == label]
        assert one.precision == pytest.approx(sum(given) / len(given))
        assert one.recall == pytest.approx(sum(there) / len(there))
        harmonic = 2 / (1 / one.precision + 1 / one.recall)
        assert one.f1 == pytest.approx(harmonic)
        assert sum(scores.confusion[number]) == one.n_examples == len(there)
    # a label that neither occurs nor is predicted does not count
    assert scores.macro_f1 == pytest.approx(sum(one.f1 for one in scores.labels[:3]) / 3)
    assert scores.labels[3].f1 == 0.0


def test_a_label_that_is_only_predicted_counts():
    scores = score_labels(["a", "b"], ["a", "a"], ("a", "b"))
    assert scores.macro_f1 == pytest.approx((2 / 3 + 0.0) / 2)
    assert scores.confusion == ((1, 1), (0, 0))


def test_nothing_scores_nothing():
    scores = score_labels([], [], ("a", "b"))
    assert (scores.accuracy, scores.macro_f1) == (0.0, 0.0)


def test_different_numbers_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        score_labels(["a"], [], ("a",))
