from itertools import permutations

import numpy as np
import pytest

from tformer_cli.inspect.comparison.matching import minimal_assignment


def cost_of(costs, pairs):
    return sum(costs[pair] for pair in pairs)


def least_of_all(costs):
    """The least cost of all assignments, one after the other."""
    if costs.shape[0] > costs.shape[1]:
        costs = costs.T
    rows = range(costs.shape[0])
    columns = permutations(range(costs.shape[1]), len(rows))
    return min(
        sum(costs[row, column] for row, column in zip(rows, p, strict=True)) for p in columns
    )


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (6, 6), (3, 6), (6, 3), (1, 5), (5, 1)])
@pytest.mark.parametrize("values", ["real", "few", "negative"])
def test_no_other_assignment_costs_less(shape, values):
    generator = np.random.default_rng([*shape, len(values)])
    for _ in range(20):
        costs = generator.random(shape)
        if values == "few":  # many ties
            costs = np.floor(3 * costs)
        elif values == "negative":
            costs = 1e3 * (costs - 0.5)
        pairs = minimal_assignment(costs)
        assert len(pairs) == min(shape)
        assert pairs == sorted(pairs)
        for side in zip(*pairs, strict=True):
            assert len(set(side)) == len(pairs)
        assert cost_of(costs, pairs) == pytest.approx(least_of_all(costs), abs=1e-9)


@pytest.mark.parametrize("shape", [(96, 96), (48, 96), (96, 48)])
def test_a_planted_optimum_is_found_where_not_all_can_be_tried(shape):
    generator = np.random.default_rng(7)
    n_pairs = min(shape)
    rows, columns = (generator.permutation(n)[:n_pairs] for n in shape)
    # Reduced costs are at least 0, and 0 for the planted pairs alone: by duality these are best.
    reduced = 0.01 + generator.random(shape)
    reduced[rows, columns] = 0.0
    offsets = generator.random(shape[0])[:, None] if shape[0] <= shape[1] else 0.0
    offsets = offsets + (generator.random(shape[1])[None] if shape[1] <= shape[0] else 0.0)
    expected = sorted(zip(rows.tolist(), columns.tolist(), strict=True))
    assert minimal_assignment(reduced + offsets) == expected


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_nobody_is_paired_with_nobody(shape):
    assert minimal_assignment(np.zeros(shape)) == []


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_costs_must_be_finite(wrong):
    with pytest.raises(ValueError, match="every cost must be finite"):
        minimal_assignment(np.array([[1.0, wrong], [0.0, 1.0]]))
