"""Distance between the maps of two heads: the mean Jensen–Shannon divergence of their rows.

JSD(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m) with m = ½ (p + q), which is H(m) − ½ (H(p) + H(q)); in nats,
0 for equal rows and ln 2 for rows without a common key (Lin 1991; of heads Clark et al. 2019,
section 6). Computed in float64 over all rows of all sentences.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tformer_cli.inspection.capture.forced import AttentionMaps
from tformer_cli.inspection.capture.heads import HeadLayout, Kind
from tformer_cli.inspection.heads.metrics import entropies

LARGEST = math.log(2)
"""The divergence of rows that share no key."""
Numbers = NDArray[np.float64]


def divergence_sums(first: Tensor, second: Tensor) -> Tensor:
    """Sums over rows the divergence of every head of one model from every head of another.

    Args:
        first: (G, Q, K) attention weights.
        second: (H, Q, K) attention weights of the same queries and keys.

    Returns:
        (G, H) float64.
    """
    first, second = first.double(), second.double()
    own, others = entropies(first), entropies(second)
    rows = [
        # One head at a time keeps memory at H maps instead of G·H.
        (entropies((weights + second) / 2) - (entropy + others) / 2).clamp(min=0.0).sum(dim=-1)
        for weights, entropy in zip(first, own, strict=True)
    ]
    return torch.stack(rows) if rows else second.new_zeros(0, len(second))


class HeadDistances:
    """Running sums of divergences between the heads of two models, over any number of sentences."""

    def __init__(self, first: HeadLayout, second: HeadLayout, kinds: Sequence[Kind]) -> None:
        """Begins with no sentence.

        Args:
            first: the heads of one model.
            second: the heads of the other.
            kinds: whose heads are compared.
        """
        self._sums: dict[Kind, Numbers] = {
            kind: np.zeros((sum(first.of(kind)), sum(second.of(kind)))) for kind in kinds
        }
        self._n_rows: dict[Kind, int] = dict.fromkeys(kinds, 0)

    def add(self, first: AttentionMaps, second: AttentionMaps) -> None:
        """Adds a sentence that both models have read."""
        for kind, sums in self._sums.items():
            if not sums.size:
                continue
            weights = torch.cat(first.layers(kind)), torch.cat(second.layers(kind))
            sums += divergence_sums(*weights).numpy()
            self._n_rows[kind] += weights[0].shape[1]

    def means(self, kind: Kind) -> Numbers:
        """(G, H) mean divergence of the heads of a kind, in the order of their layouts."""
        return self._sums[kind] / max(1, self._n_rows[kind])
