"""Pairing at the least cost: the linear assignment problem.

Solved by shortest augmenting paths with potentials (the Hungarian method; Kuhn 1955, Jonker &
Volgenant 1987), in O(n³) steps of which the innermost is one over arrays.
"""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_FREE = -1


def minimal_assignment(costs: Numbers) -> list[tuple[int, int]]:
    """Pairs rows with columns so that the sum of their costs is the least.

    Args:
        costs: (N, M) finite costs.

    Returns:
        min(N, M) pairs of a row and a column, each in one pair at most, by row. The same costs
        give the same pairs, also where several are as good.

    Raises:
        ValueError: if a cost is not finite.
    """
    if not np.isfinite(costs).all():
        raise ValueError("every cost must be finite")
    n_rows, n_columns = costs.shape
    if n_rows > n_columns:
        return sorted((row, column) for column, row in minimal_assignment(costs.T))
    row_of = np.full(n_columns, _FREE)
    row_potentials, column_potentials = np.zeros(n_rows), np.zeros(n_columns)
    for row in range(n_rows):
        _augment(costs, row, row_of, row_potentials, column_potentials)
    found = [(int(row), column) for column, row in enumerate(row_of) if row != _FREE]
    return sorted(found)


def _augment(
    costs: Numbers,
    row: int,
    row_of: NDArray[np.int_],
    row_potentials: Numbers,
    column_potentials: Numbers,
) -> None:
    """Pairs one more row, by Dijkstra's search for the shortest path to a free column.

    All arrays but the costs are brought up to date: along the path pairs are exchanged, and the
    potentials keep every reduced cost at least 0 and that of every pair at 0.
    """
    n_columns = costs.shape[1]
    distances = np.full(n_columns, np.inf)
    came_from = np.full(n_columns, _FREE)
    is_done = np.zeros(n_columns, dtype=bool)
    current, column, length = row, _FREE, 0.0
    while True:
        reached = length + costs[current] - row_potentials[current] - column_potentials
        is_nearer = ~is_done & (reached < distances)
        distances[is_nearer] = reached[is_nearer]
        came_from[is_nearer] = column
        column = int(np.argmin(np.where(is_done, np.inf, distances)))
        length = float(distances[column])
        if row_of[column] == _FREE:
            break
        is_done[column] = True
        current = int(row_of[column])
    row_potentials[row] += length
    row_potentials[row_of[is_done]] += length - distances[is_done]
    column_potentials[is_done] -= length - distances[is_done]
    while column != _FREE:
        before = int(came_from[column])
        row_of[column] = row if before == _FREE else row_of[before]
        column = before
