"""Keeping a row's bits the same when it is the last one left.

On a CPU the products of two or more rows give each row the same bits whatever their number; those
of a single row may take another kernel and round differently. So a lone row is computed twice.
"""

from torch import Tensor


def never_alone(rows: Tensor) -> Tensor:
    """Repeats the only row of (1, …); leaves more rows as they are."""
    return rows.repeat(2, *[1] * (rows.dim() - 1)) if rows.shape[0] == 1 else rows
