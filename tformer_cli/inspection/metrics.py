"""What a head's map is summed up in, computed from the weights alone, in float64.

A_ij is the weight of key j for query i, n_i the number of keys that row i may see, Q the number of
rows. Means run over rows. A metric that is not defined for a kind, or for a sentence this short, is
left out.

============== ============================ ==================================================
name           formula                      source
============== ============================ ==================================================
entropy        mean −Σ_j A_ij ln A_ij       Raganato & Tiedemann 2018; in nats
entropy_norm   mean H_i / ln n_i, n_i > 1   0: one key; 1: all visible keys alike
confidence     mean max_{j≠EOS} A_ij        Voita et al. 2019, section 4
prev self next mean A_{i,i+k}, k = −1 0 1   Clark et al. 2019; over rows where i+k exists;
                                            not of cross-attention
distance       mean Σ_j A_ij |i − j|        Vig & Belinkov 2019; in cross-attention
                                            |j/(S−1) − i/(Q−1)|
sink_eos       mean A_{i,EOS}               weight on the source's end of sentence (enc, cross)
sink_bos       mean A_{i,0}                 weight on the target's begin of sentence (dec)
============== ============================ ==================================================
"""

import torch
from torch import Tensor

from tformer_cli.inspection.capture import AttentionMaps
from tformer_cli.inspection.heads import HeadId, Kind

METRIC_MEANINGS: dict[str, str] = {
    "entropy": "spread over the keys, in nats; 0: a single key",
    "entropy_norm": "spread as a share of the largest possible; 1: all visible keys alike",
    "confidence": "mean of each row's largest weight, the end of sentence left out",
    "prev": "mean weight on the position before",
    "self": "mean weight on the same position",
    "next": "mean weight on the position after",
    "distance": "mean distance of what is attended to (cross: as a share of the sentences)",
    "sink_eos": "mean weight on the end of the source sentence",
    "sink_bos": "mean weight on the begin of the target sentence",
}
"""Every metric with its meaning, in the order of the output."""
PATTERNS = ("prev", "self", "next", "sink_eos", "sink_bos")
"""Metrics that are the mass on one place; above a half it is what the head does."""
PATTERN_MASS = 0.5
"""From this mass on a pattern names a head (Clark et al. 2019)."""


def metrics_of(maps: AttentionMaps, heads: list[HeadId]) -> dict[HeadId, dict[str, float]]:
    """Computes the metrics of heads of a sentence."""
    layers = {(head.kind, head.layer) for head in heads}
    computed = {
        (kind, layer): head_metrics(maps.layers(kind)[layer], kind) for kind, layer in layers
    }
    return {head: computed[head.kind, head.layer][head.head] for head in heads}


def head_metrics(weights: Tensor, kind: Kind) -> list[dict[str, float]]:
    """Computes every metric of every head of a layer.

    Args:
        weights: (H, Q, K) attention weights.
        kind: which attention they are of.

    Returns:
        For each head the metrics that are defined, in the order of `METRIC_MEANINGS`.
    """
    exact = weights.double()
    values: dict[str, Tensor | None] = {
        "entropy": entropies(exact).mean(dim=-1),
        "entropy_norm": _normalised_entropy(exact, kind),
        "confidence": _confidence(exact, kind),
        "prev": _mass_at(exact, -1, kind),
        "self": _mass_at(exact, 0, kind),
        "next": _mass_at(exact, 1, kind),
        "distance": _distance(exact, kind),
        "sink_eos": None if kind == "dec" else exact[:, :, -1].mean(dim=-1),
        "sink_bos": exact[:, :, 0].mean(dim=-1) if kind == "dec" else None,
    }
    columns = {name: value.tolist() for name, value in values.items() if value is not None}
    return [
        {name: column[head] for name, column in columns.items()} for head in range(len(weights))
    ]


def entropies(weights: Tensor) -> Tensor:
    """Computes −Σ_j A_ij ln A_ij, with 0 ln 0 = 0: (…, Q, K) to (…, Q), in nats."""
    # Adding 0 turns the -0 of a one-hot row into 0.
    entropy: Tensor = -torch.special.xlogy(weights, weights).sum(dim=-1) + 0.0
    return entropy


def pattern_of(metrics: dict[str, float]) -> str | None:
    """Names the place that a head spends more than half its weight on, if there is one."""
    best = max(PATTERNS, key=lambda name: metrics.get(name, 0.0))
    return best if metrics.get(best, 0.0) > PATTERN_MASS else None


def _normalised_entropy(weights: Tensor, kind: Kind) -> Tensor | None:
    n_rows, n_keys = weights.shape[1:]
    visible = torch.arange(1, n_rows + 1) if kind == "dec" else torch.full((n_rows,), n_keys)
    several = visible > 1
    if not several.any():
        return None
    shares = entropies(weights)[:, several] / visible[several].double().log()
    return shares.mean(dim=-1)


def _confidence(weights: Tensor, kind: Kind) -> Tensor | None:
    without_eos = weights if kind == "dec" else weights[:, :, :-1]
    if without_eos.shape[-1] == 0:
        return None
    return without_eos.amax(dim=-1).mean(dim=-1)


def _mass_at(weights: Tensor, offset: int, kind: Kind) -> Tensor | None:
    if kind == "cross" or weights.shape[1] <= abs(offset):
        return None
    return weights.diagonal(offset, dim1=1, dim2=2).mean(dim=-1)


def _distance(weights: Tensor, kind: Kind) -> Tensor:
    n_rows, n_keys = weights.shape[1:]
    rows, keys = torch.arange(n_rows).double(), torch.arange(n_keys).double()
    if kind == "cross":
        rows, keys = rows / max(n_rows - 1, 1), keys / max(n_keys - 1, 1)
    distances = (rows[:, None] - keys[None, :]).abs()
    return (weights * distances).sum(dim=-1).mean(dim=-1)
