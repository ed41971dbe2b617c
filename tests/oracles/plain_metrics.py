"""Metrics of the heads of one sentence by the plain formulas, the oracle of `heads.metrics`.

A line or two a metric, without a batch and without padding; formulas and sources stand in
`heads.metrics`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, special

from tformer_cli.heads.names import Kind
from tformer_cli.inspect.heads.metrics import NO_VARIANCE, OFFSETS


class RowSum(NamedTuple):
    """(H) a metric summed over rows, and the number of rows where it is defined."""

    total: Tensor
    n_rows: int


def metric_sums(
    weights: Tensor, kind: Kind, rare: Sequence[int] = (), *, has_eos: bool = True
) -> dict[str, RowSum]:
    """Sums every metric over rows, so that means over many sentences can be taken.

    A diagonality is of a whole sentence; it counts for each of its rows.
    """
    exact = weights.double()
    n_rows = exact.shape[1]
    sums: dict[str, RowSum | None] = {
        "entropy": RowSum(entropies(exact).sum(dim=-1), n_rows),
        "entropy_norm": _normalized_entropy(exact, kind),
        "confidence": _confidence(exact, kind, has_eos),
        **_masses(exact, kind),
        **_largest(exact, kind),
        "rare_argmax": _rare(exact, rare) if kind == "enc" else None,
        "distance": _distance(exact, kind),
        "diagonality": _diagonality(exact) if kind == "cross" else None,
        "monotonicity": _monotonicity(exact) if kind == "cross" else None,
        "sink_eos": None
        if kind == "dec"
        else RowSum(exact[:, :, -1].sum(dim=-1) * has_eos, n_rows),
        "sink_bos": RowSum(exact[:, :, 0].sum(dim=-1), n_rows) if kind == "dec" else None,
    }
    return {name: found for name, found in sums.items() if found is not None}


def entropies(weights: Tensor) -> Tensor:
    return -special.xlogy(weights, weights).sum(dim=-1)


def _normalized_entropy(weights: Tensor, kind: Kind) -> RowSum | None:
    n_rows, n_keys = weights.shape[1:]
    visible = torch.arange(1, n_rows + 1) if kind == "dec" else torch.full((n_rows,), n_keys)
    several = visible > 1
    if not several.any():
        return None
    shares = entropies(weights)[:, several] / visible[several].double().log()
    return RowSum(shares.sum(dim=-1), int(several.sum()))


def _confidence(weights: Tensor, kind: Kind, has_eos: bool) -> RowSum | None:
    without_eos = weights[:, :, :-1] if has_eos and kind != "dec" else weights
    if without_eos.shape[-1] == 0:
        return None
    return RowSum(without_eos.amax(dim=-1).sum(dim=-1), weights.shape[1])


def _masses(weights: Tensor, kind: Kind) -> dict[str, RowSum | None]:
    """The weight on each relative position, over the rows where it exists."""
    if kind == "cross":
        return {}
    n_rows = weights.shape[1]
    return {
        name: RowSum(weights.diagonal(offset, dim1=1, dim2=2).sum(dim=-1), n_rows - abs(offset))
        for name, offset in OFFSETS.items()
        if n_rows > abs(offset)
    }


def _largest(weights: Tensor, kind: Kind) -> dict[str, RowSum | None]:
    """Number of rows with their largest weight at each relative position."""
    if kind == "cross":
        return {}
    n_rows = weights.shape[1]
    offsets = weights.argmax(dim=-1) - torch.arange(n_rows)
    return {
        f"{name}_argmax": RowSum((offsets == offset).double().sum(dim=-1), n_rows - abs(offset))
        for name, offset in OFFSETS.items()
        if n_rows > abs(offset)
    }


def _rare(weights: Tensor, rare: Sequence[int]) -> RowSum | None:
    """Number of rows with their largest weight on a rare token."""
    if not rare:
        return None
    is_rare = torch.zeros(weights.shape[-1], dtype=torch.bool)
    is_rare[list(rare)] = True
    return RowSum(is_rare[weights.argmax(dim=-1)].double().sum(dim=-1), weights.shape[1])


def _distance(weights: Tensor, kind: Kind) -> RowSum:
    n_rows, n_keys = weights.shape[1:]
    rows, keys = torch.arange(n_rows).double(), torch.arange(n_keys).double()
    if kind == "cross":
        rows, keys = rows / max(n_rows - 1, 1), keys / max(n_keys - 1, 1)
    distances = (rows[:, None] - keys[None, :]).abs()
    return RowSum((weights * distances).sum(dim=(-2, -1)), n_rows)


def _diagonality(weights: Tensor) -> RowSum | None:
    n_rows, n_keys = weights.shape[1:]
    if n_rows == 1 or n_keys == 1:
        return None
    rows = torch.arange(n_rows).double() - (n_rows - 1) / 2
    keys = torch.arange(n_keys).double() - (n_keys - 1) / 2
    expected = weights @ keys
    variance = (weights @ keys**2).mean(dim=-1) - expected.mean(dim=-1) ** 2
    covariance = (expected * rows).mean(dim=-1)
    # A head with all its weight on one key has no variance but for rounding.
    scale = (variance.clamp(min=NO_VARIANCE) * (rows**2).mean()).sqrt()
    return RowSum(n_rows * torch.where(variance > NO_VARIANCE, covariance / scale, 0.0), n_rows)


def _monotonicity(weights: Tensor) -> RowSum | None:
    n_rows = weights.shape[1]
    if n_rows == 1:
        return None
    steps = weights.argmax(dim=-1).diff(dim=-1)
    return RowSum((steps >= 0).double().sum(dim=-1), n_rows - 1)
