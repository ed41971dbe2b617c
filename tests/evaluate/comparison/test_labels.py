"""Classifiers beside each other: the numbers are those of `evaluate`, the counts those by hand."""

import pytest

from tformer_cli.errors import DataError
from tformer_cli.evaluate.comparison.labels import compare_labelings
from tformer_cli.metrics.labels import score_labels
from tformer_cli.metrics.significance import compare_labels

RIGHT = list("aabbccabca") * 4
OLD = [*"abbbccabcb"] * 4
NEW = [*"aabbcaabcc"] * 4


def test_scores_changes_and_wins():
    found = compare_labelings([("old", OLD), ("new", [f" {x} " for x in NEW])], RIGHT, seed=3)
    baseline, new = found.systems
    for one, labels in ((baseline, OLD), (new, NEW)):
        scores = score_labels(labels, RIGHT, sorted(set(RIGHT)))
        values = [measure.value for measure in one.measures]
        assert values == pytest.approx([100 * scores.accuracy, 100 * scores.macro_f1])
    assert list(new.measures) == compare_labels(OLD, NEW, RIGHT, seed=3)
    better = sum(n == r != o for n, o, r in zip(NEW, OLD, RIGHT, strict=True))
    worse = sum(o == r != n for n, o, r in zip(NEW, OLD, RIGHT, strict=True))
    assert (new.wins.better, new.wins.worse, new.wins.equal) == (better, worse, 40 - better - worse)
    assert (baseline.wins.better, baseline.wins.worse) == (0, 0)
    record = found.record()
    assert record["systems"][0]["wins"] is None
    assert record["systems"][0]["measures"][0]["p_value"] is None
    assert record["systems"][1]["measures"][1]["measure"] == "macro_f1"


def test_an_example_without_a_right_label_is_named():
    with pytest.raises(DataError, match="line 2 of the reference: has no label"):
        compare_labelings([("a", ["x", "y"]), ("b", ["x", "y"])], ["x", " "])
    with pytest.raises(DataError, match="the reference: has no label"):
        compare_labelings([("a", []), ("b", [])], [])
