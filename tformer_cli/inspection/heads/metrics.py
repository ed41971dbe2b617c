"""Metrics of a head's map, computed from the weights alone, in float64.

A_ij is the weight of key j for query i, n_i the number of keys that row i may see, Q the number of
rows. Means run over rows. A metric that is not defined for a kind, or for a sentence this short, is
omitted.

============== ============================ ==================================================
name           formula                      source
============== ============================ ==================================================
entropy        mean −Σ_j A_ij ln A_ij       Raganato & Tiedemann 2018; in nats
entropy_norm   mean H_i / ln n_i, n_i > 1   0: one key; 1: all visible keys alike
confidence     mean max_{j≠EOS} A_ij        Voita et al. 2019, section 4
prev self next mean A_{i,i+k}, k = −1 0 1   Clark et al. 2019; over rows where i+k exists;
                                            not of cross-attention
*_argmax       share of argmax_j A_ij = i+k Voita et al. 2019, section 5; the same rows
rare_argmax    share of argmax_j A_ij in R  Voita et al. 2019, section 5.3; R: the sentence's
                                            rarest tokens (`rare_tokens`); of the encoder
distance       mean Σ_j A_ij |i − j|        Vig & Belinkov 2019; in cross-attention
                                            |j/(S−1) − i/(Q−1)|
diagonality    correlation of i and j, the  ours; of cross-attention: 1 along the diagonal, 0
               cells weighted by A_ij       where rows do not differ or all look at one key
monotonicity   share of i with argmax_j A_ij share of rows, but for the first, that do not go back;
               ≥ argmax_j A_{i−1,j}         of cross-attention
sink_eos       mean A_{i,EOS}               weight on the source's end of sentence (enc, cross)
sink_bos       mean A_{i,0}                 weight on the target's begin of sentence (dec)
============== ============================ ==================================================

Diagonality is not a rank correlation: where rows are nearly alike, ranks are decided by rounding.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tformer_cli.inspection.capture.forced import AttentionMaps
from tformer_cli.inspection.capture.heads import HeadId, Kind


class Measure(NamedTuple):
    """Plain name of a number, and its meaning."""

    label: str
    """Its name in plain words, as a heading of a table."""
    meaning: str
    """Meaning, in a sentence without a period."""


METRICS: dict[str, Measure] = {
    "entropy": Measure(
        "spread, in nats", "How widely a row spreads over the keys: 0 is one single key"
    ),
    "entropy_norm": Measure(
        "spread",
        "How widely a row spreads over the keys: 0 is one single key, 1 is all visible keys alike",
    ),
    "confidence": Measure(
        "largest weight", "The largest weight of a row, on average; the end of sentence not counted"
    ),
    "prev": Measure("on the token before", "Average weight on the token just before"),
    "self": Measure("on the token itself", "Average weight on the token itself"),
    "next": Measure("on the token after", "Average weight on the token just after"),
    "prev_argmax": Measure(
        "points to the token before", "Share of rows whose largest weight is on the token before"
    ),
    "self_argmax": Measure(
        "points to itself", "Share of rows whose largest weight is on the token itself"
    ),
    "next_argmax": Measure(
        "points to the token after", "Share of rows whose largest weight is on the token after"
    ),
    "rare_argmax": Measure(
        "points to a rare word",
        "Share of rows whose largest weight is on one of the sentence's two rarest tokens",
    ),
    "distance": Measure(
        "distance",
        "How far away it looks on average: in tokens, in cross-attention as a share of the whole",
    ),
    "diagonality": Measure(
        "follows word order",
        "How closely later target words look at later source words: 1 is along the diagonal",
    ),
    "monotonicity": Measure(
        "never goes back",
        "Share of rows whose largest weight is not further left than that of the row before",
    ),
    "sink_eos": Measure(
        "on the end of sentence", "Average weight on the source's end of sentence, a place to rest"
    ),
    "sink_bos": Measure(
        "on the start of sentence",
        "Average weight on the target's start of sentence, a place to rest",
    ),
}
"""Every metric with its plain name and what it says, in the order of the output."""
OFFSETS = {"prev": -1, "self": 0, "next": 1}
"""Positions relative to the query that are measured."""
NO_VARIANCE = 1e-9
"""Below it the keys attended to do not differ, in squared positions."""


class RowSum(NamedTuple):
    """A metric of the heads of a layer before the mean is taken over its rows."""

    total: Tensor
    """(H) float64, summed over rows."""
    n_rows: int
    """Rows where it is defined, at least one."""


def metrics_of(
    maps: AttentionMaps,
    heads: list[HeadId],
    *,
    scales_rows: bool = False,
    rare: Sequence[int] = (),
) -> dict[HeadId, dict[str, float]]:
    """Computes the metrics of heads of a sentence.

    Args:
        maps: the maps of all heads.
        heads: those that are measured.
        scales_rows: whether rows are scaled to sum 1 first, of maps whose rows do not.
        rare: positions of the sentence's rarest source tokens, if that is known.
    """
    computed = {}
    for kind, layer in {(head.kind, head.layer) for head in heads}:
        weights = maps.layers(kind)[layer]
        if scales_rows:
            total = weights.sum(dim=-1, keepdim=True)
            weights = weights / total.where(total > 0.0, 1.0)  # a row of 0 stays
        computed[kind, layer] = head_metrics(weights, kind, rare)
    return {head: computed[head.kind, head.layer][head.head] for head in heads}


def head_metrics(weights: Tensor, kind: Kind, rare: Sequence[int] = ()) -> list[dict[str, float]]:
    """Computes every metric of every head of a layer.

    Args:
        weights: (H, Q, K) attention weights.
        kind: which attention they are of.
        rare: positions of the rarest source tokens, if that is known.

    Returns:
        For each head the metrics that are defined, in the order of `METRICS`.
    """
    sums = metric_sums(weights, kind, rare)
    columns = {name: (total / n_rows).tolist() for name, (total, n_rows) in sums.items()}
    return [
        {name: column[head] for name, column in columns.items()} for head in range(len(weights))
    ]


def metric_sums(weights: Tensor, kind: Kind, rare: Sequence[int] = ()) -> dict[str, RowSum]:
    """Sums every metric over rows, so that means over many sentences can be taken.

    A diagonality is of a whole sentence; it counts for each of its rows.

    Args:
        weights: (H, Q, K) attention weights, of one layer or of several.
        kind: which attention they are of.
        rare: positions of the rarest source tokens, if that is known.

    Returns:
        The metrics that are defined, in the order of `METRICS`.
    """
    exact = weights.double()
    n_rows = exact.shape[1]
    sums: dict[str, RowSum | None] = {
        "entropy": RowSum(entropies(exact).sum(dim=-1), n_rows),
        "entropy_norm": _normalized_entropy(exact, kind),
        "confidence": _confidence(exact, kind),
        **_masses(exact, kind),
        **_largest(exact, kind),
        "rare_argmax": _rare(exact, rare) if kind == "enc" else None,
        "distance": _distance(exact, kind),
        "diagonality": _diagonality(exact) if kind == "cross" else None,
        "monotonicity": _monotonicity(exact) if kind == "cross" else None,
        "sink_eos": None if kind == "dec" else RowSum(exact[:, :, -1].sum(dim=-1), n_rows),
        "sink_bos": RowSum(exact[:, :, 0].sum(dim=-1), n_rows) if kind == "dec" else None,
    }
    return {name: found for name, found in sums.items() if found is not None}


def entropies(weights: Tensor) -> Tensor:
    """Computes −Σ_j A_ij ln A_ij, with 0 ln 0 = 0: (…, Q, K) to (…, Q), in nats."""
    # Adding 0 turns the -0 of a one-hot row into 0.
    entropy: Tensor = -torch.special.xlogy(weights, weights).sum(dim=-1) + 0.0
    return entropy


def _normalized_entropy(weights: Tensor, kind: Kind) -> RowSum | None:
    n_rows, n_keys = weights.shape[1:]
    visible = torch.arange(1, n_rows + 1) if kind == "dec" else torch.full((n_rows,), n_keys)
    several = visible > 1
    if not several.any():
        return None
    shares = entropies(weights)[:, several] / visible[several].double().log()
    return RowSum(shares.sum(dim=-1), int(several.sum()))


def _confidence(weights: Tensor, kind: Kind) -> RowSum | None:
    without_eos = weights if kind == "dec" else weights[:, :, :-1]
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
