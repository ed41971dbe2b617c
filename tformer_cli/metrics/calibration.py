"""Probabilities of being wrong: how they are fitted, and how well they tell and keep their word.

An item has a score that rises with doubt, whether it was wrong, and a weight: how often it stands
for others of its kind.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]
N_BINS = 10
"""Bins of equal width of the calibration error, as in Guo et al. 2017."""
_MOST_STEPS, _CLOSE = 100, 1e-9


def logistic(values: ArrayLike) -> Numbers:
    """Returns 1 / (1 + e^-x)."""
    # Clipped: e^-x of a line far from all others overflows, which numpy warns of
    shares: Numbers = 1.0 / (1.0 + np.exp(-np.clip(np.asarray(values, np.float64), -60.0, 60.0)))
    return shares


def fit_logistic(
    signals: ArrayLike, is_wrong: ArrayLike, weights: ArrayLike | None = None, l2: float = 1.0
) -> Numbers:
    """Fits P(wrong) = 1 / (1 + e^-(w·x + b)) by Newton's method.

    It minimizes Σ weight · cross-entropy + l2/2 · |w|²; the intercept b is free, so that the mean
    probability is the share of what is wrong. Source: Hastie et al. 2009, "The Elements of
    Statistical Learning", section 4.4.1. With one signal it is Platt's scaling (Platt 1999).

    Returns:
        (D + 1) the weights w, and b behind them.
    """
    x, y, own = _items(signals, is_wrong, weights)
    x = np.column_stack([x, np.ones(len(x))])  # (N, D) -> (N, D + 1)
    penalty = np.full(x.shape[1], l2)
    penalty[-1] = 0.0
    coefficients = np.zeros(x.shape[1])

    def loss(at: Numbers) -> float:
        z = x @ at
        return float(own @ (np.logaddexp(0.0, z) - y * z) + penalty @ at**2 / 2)

    for _ in range(_MOST_STEPS):
        p = logistic(x @ coefficients)
        gradient = x.T @ (own * (p - y)) + penalty * coefficients
        curvature = (x.T * (own * np.maximum(p * (1.0 - p), 1e-12))) @ x + np.diag(penalty)
        step, size = np.linalg.lstsq(curvature, gradient, rcond=None)[0], 1.0
        # A full step may overshoot where nearly all probabilities are 0 or 1
        while size > _CLOSE and loss(coefficients - size * step) > loss(coefficients):
            size /= 2
        coefficients = coefficients - size * step
        if np.abs(size * step).max() < _CLOSE:
            break
    return coefficients


def auroc(scores: ArrayLike, is_wrong: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Returns the chance that a wrong item has a higher score than a right one, ties by half.

    The area under the ROC curve is the Mann-Whitney statistic (Hanley & McNeil 1982). NaN without
    an item of either kind.
    """
    values, y, own = _items(scores, is_wrong, weights)
    _, places = np.unique(values[:, 0], return_inverse=True)
    right, wrong = (np.bincount(places, own * side, places.max() + 1) for side in (1 - y, y))
    total = right.sum() * wrong.sum()
    below = np.cumsum(right) - right
    return float(wrong @ (below + right / 2) / total) if total else float("nan")


def calibration_error(
    probabilities: ArrayLike, is_wrong: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Returns the expected calibration error (Naeini et al. 2015; Guo et al. 2017, equation 3).

    The mean over all items of |share that is wrong - mean probability| in the item's bin.
    """
    p, y, own = _items(probabilities, is_wrong, weights)
    bins = np.minimum((p[:, 0] * N_BINS).astype(np.int64), N_BINS - 1)
    gaps = np.bincount(bins, own * (y - p[:, 0]), N_BINS)
    return float(np.abs(gaps).sum() / own.sum())


def error_at(
    coverage: float, scores: ArrayLike, is_wrong: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Returns the share that is wrong of the least doubtful items, `coverage` of all.

    Source: El-Yaniv & Wiener 2010, risk and coverage of selective prediction. The item at the edge
    counts in part.
    """
    values, y, own = _items(scores, is_wrong, weights)
    order = np.argsort(values[:, 0], kind="stable")
    before = np.cumsum(own[order]) - own[order]
    room = coverage * own.sum()
    taken = np.clip(room - before, 0.0, own[order])
    return float(taken @ y[order] / room)


def _items(values: ArrayLike, is_wrong: ArrayLike, weights: ArrayLike | None) -> Any:  # noqa: ANN401
    """(N, D), (N), (N) numbers of items; without weights all count alike."""
    x = np.asarray(values, np.float64)
    y = np.asarray(is_wrong, np.float64)
    own = np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)
    return x.reshape(len(y), -1), y, own
