"""Fits and scores of doubt, against the plainest computation of each."""

from math import log

import numpy as np
import pytest

from tformer_cli.metrics.calibration import (
    auroc,
    calibration_error,
    error_at,
    fit_logistic,
    logistic,
)

RANDOM = np.random.default_rng(3)
SCORES = RANDOM.integers(0, 5, 60) / 4  # with ties, and exact in binary
WRONG = RANDOM.random(60) < 0.2 + 0.6 * SCORES
WEIGHTS = RANDOM.integers(1, 4, 60)


def repeat_items(*columns):
    """Repeats items as often as their weights say."""
    return [np.repeat(column, WEIGHTS) for column in columns]


def test_auroc_counts_the_pairs_that_are_in_order():
    pairs = [
        (a > b) + (a == b) / 2
        for a in SCORES[WRONG]
        for b in SCORES[~WRONG]
    ]  # fmt: skip
    assert auroc(SCORES, WRONG) == pytest.approx(np.mean(pairs))
    assert auroc([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1]) == pytest.approx(2 / 3)
    # Mann & Whitney 1947: U from the sum of the ranks of the wrong ones, ties with their mean rank
    ranks = [(score > SCORES).sum() + ((score == SCORES).sum() + 1) / 2 for score in SCORES]
    n_wrong, n_right = WRONG.sum(), (~WRONG).sum()
    u = np.array(ranks)[WRONG].sum() - n_wrong * (n_wrong + 1) / 2
    assert auroc(SCORES, WRONG) == pytest.approx(u / (n_wrong * n_right))
    assert np.isnan(auroc([1.0, 2.0], [0, 0]))


def test_weights_are_repetitions():
    for measure in (auroc, calibration_error, lambda p, y, w=None: error_at(0.5, p, y, w)):
        assert measure(SCORES, WRONG, WEIGHTS) == pytest.approx(
            measure(*repeat_items(SCORES, WRONG))
        )
    x = np.column_stack([SCORES, RANDOM.random(60)])
    many = np.column_stack(repeat_items(*x.T)), repeat_items(WRONG)[0]
    assert fit_logistic(x, WRONG, WEIGHTS) == pytest.approx(fit_logistic(*many), abs=1e-7)


def test_calibration_error_by_bins():
    bins = np.minimum(np.floor(SCORES * 10), 9)  # 1 belongs to the last
    expected = sum(
        (bins == number).sum() * abs(WRONG[bins == number].mean() - SCORES[bins == number].mean())
        for number in set(bins.tolist())
    )
    assert calibration_error(SCORES, WRONG) == pytest.approx(expected / 60)
    assert calibration_error([0.25] * 4, [1, 0, 0, 0]) == 0


def test_error_at_coverage_leaves_out_the_most_doubtful():
    scores, wrong = [0.1, 0.9, 0.2, 0.8], [0, 1, 1, 0]
    assert [error_at(share, scores, wrong) for share in (0.25, 0.5, 0.75, 1)] == [
        0,
        1 / 2,
        1 / 3,
        1 / 2,
    ]
    assert error_at(0.375, scores, wrong) == pytest.approx(0.5 / 1.5)


def test_a_fit_to_a_table_has_its_log_odds():
    # 3 of 4 wrong where the signal is 1, 1 of 5 where it is 0
    x, y = [[1.0]] * 4 + [[0.0]] * 5, [1, 1, 1, 0, 1, 0, 0, 0, 0]
    weight, intercept = fit_logistic(x, y, l2=0.0)
    assert intercept == pytest.approx(log(1 / 4))
    assert weight == pytest.approx(log(3) - log(1 / 4))


@pytest.mark.parametrize("l2", [0.1, 1.0, 30.0])
def test_a_fit_is_where_the_gradient_is_zero(l2):
    x = np.column_stack([RANDOM.normal(size=(60, 3)), SCORES])
    fit = fit_logistic(x, WRONG, WEIGHTS, l2)
    left = WEIGHTS * (logistic(x @ fit[:-1] + fit[-1]) - WRONG)
    assert x.T @ left + l2 * fit[:-1] == pytest.approx(np.zeros(4), abs=1e-6)
    assert left.sum() == pytest.approx(0, abs=1e-6)


def test_what_can_be_told_for_certain_has_a_finite_fit():
    fit = fit_logistic([[-9.0], [-8.0], [8.0], [9.0]], [0, 0, 1, 1])
    assert np.isfinite(fit).all()
    assert fit[0] > 0
