"""The metrics of many sentences at once, over a padded batch.

What `metrics.metric_sums` computes for one sentence, which is the oracle of this module; formulas
and sources stand there. Rows of padding are set to 0 and keys of padding have weight 0 already, so
that sums over rows know of neither.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tformer_cli.inspection.capture.heads import Kind
from tformer_cli.inspection.heads.metrics import METRICS, NO_VARIANCE, OFFSETS, entropies


class BatchSums(NamedTuple):
    """A metric of the heads of a layer on each sentence, before means are taken over rows."""

    totals: Tensor
    """(B, H) float64, summed over the rows of each sentence; 0 where it is not defined."""
    n_rows: Tensor
    """(B) rows of each sentence where it is defined; 0: of none."""


def batch_metric_sums(
    weights: Tensor, n_rows: Tensor, n_keys: Tensor, kind: Kind, rare: Tensor | None = None
) -> dict[str, BatchSums]:
    """Sums every metric over the rows of each sentence.

    Args:
        weights: (B, H, Q, K) attention weights of a layer, padded; keys of padding have weight 0.
        n_rows: (B) rows of each sentence.
        n_keys: (B) keys of each sentence.
        kind: which attention they are of.
        rare: (B, K) boolean, the rarest tokens of each sentence, of encoder self-attention.

    Returns:
        The metrics of the kind, in the order of `METRICS`.
    """
    layer = _Layer(weights, n_rows, n_keys, kind)
    sums = {
        **layer.entropies(),
        "confidence": layer.confidence(),
        **layer.positions(),
        **layer.largest(rare),
        "distance": layer.distance(),
        **layer.sinks(),
    }
    if kind == "cross":
        sums["diagonality"] = layer.diagonality()
        sums["monotonicity"] = layer.monotonicity()
    return {name: sums[name] for name in METRICS if name in sums}


class _Layer:
    """The weights of a layer in float64, and which of their rows and keys are not padding."""

    def __init__(self, weights: Tensor, n_rows: Tensor, n_keys: Tensor, kind: Kind) -> None:
        self.kind = kind
        self.n_rows, self.n_keys = n_rows, n_keys
        self.rows = torch.arange(weights.shape[2])
        self.keys = torch.arange(weights.shape[3])
        self.is_row = self.rows < n_rows[:, None]  # (B, Q)
        self.is_eos = self.keys == n_keys[:, None] - 1  # (B, K); of the target it is not a key
        self.weights = weights.double().where(self.is_row[:, None, :, None], 0.0)

    def entropies(self) -> dict[str, BatchSums]:
        """Spread, and as a share of the largest that rows with several keys can have."""
        entropy = entropies(self.weights)  # (B, H, Q)
        visible = self.rows + 1 if self.kind == "dec" else self.n_keys[:, None]
        several = self.is_row & (visible > 1)
        largest = visible.clamp(min=2).double().log().expand_as(several)
        shares = (entropy / largest[:, None]).where(several[:, None], 0.0)
        return {
            "entropy": BatchSums(entropy.sum(dim=-1), self.n_rows),
            "entropy_norm": BatchSums(shares.sum(dim=-1), several.sum(dim=-1)),
        }

    def confidence(self) -> BatchSums:
        """Largest weights, the end of sentence excluded."""
        if self.kind == "dec":
            return BatchSums(self.weights.amax(dim=-1).sum(dim=-1), self.n_rows)
        others = self.weights.masked_fill(self.is_eos[:, None, None, :], 0.0)
        defined = self.n_rows.where(self.n_keys > 1, 0)
        return BatchSums(others.amax(dim=-1).sum(dim=-1), defined)

    def positions(self) -> dict[str, BatchSums]:
        """Weights on relative positions; beyond the last key there is padding, of weight 0."""
        if self.kind == "cross":
            return {}
        return {
            name: BatchSums(
                self.weights.diagonal(offset, dim1=2, dim2=3).sum(dim=-1), self._with(offset)
            )
            for name, offset in OFFSETS.items()
        }

    def largest(self, rare: Tensor | None) -> dict[str, BatchSums]:
        """Rows whose largest weight is on a relative position, or on a rare token."""
        if self.kind == "cross":
            return {}
        largest = self.weights.argmax(dim=-1)  # (B, H, Q)
        offsets = (largest - self.rows).where(self.is_row[:, None], len(self.keys))
        sums = {
            f"{name}_argmax": BatchSums(
                (offsets == offset).sum(dim=-1).double(), self._with(offset)
            )
            for name, offset in OFFSETS.items()
        }
        if rare is not None and self.kind == "enc":
            is_rare = rare[:, None].expand(-1, largest.shape[1], -1).gather(-1, largest)
            hits = (is_rare & self.is_row[:, None]).sum(dim=-1).double()
            sums["rare_argmax"] = BatchSums(hits, self.n_rows.where(rare.any(dim=-1), 0))
        return sums

    def distance(self) -> BatchSums:
        """Distances of what is attended to."""
        rows, keys = self.rows.double()[None], self.keys.double()[None]
        if self.kind == "cross":
            rows = rows / (self.n_rows[:, None] - 1).clamp(min=1)
            keys = keys / (self.n_keys[:, None] - 1).clamp(min=1)
        distances = (rows[:, :, None] - keys[:, None, :]).abs()  # (B or 1, Q, K)
        total = torch.einsum(
            "bhqk,bqk->bh", self.weights, distances.expand(len(self.n_rows), -1, -1)
        )
        return BatchSums(total, self.n_rows)

    def diagonality(self) -> BatchSums:
        """Correlation of rows and keys, the cells weighted."""
        n_rows = self.n_rows[:, None].double()
        rows = (self.rows - (n_rows - 1) / 2).where(self.is_row, 0.0)  # (B, Q)
        keys = self.keys - (self.n_keys[:, None].double() - 1) / 2  # (B, K)
        expected = torch.einsum("bhqk,bk->bhq", self.weights, keys)
        squared = torch.einsum("bhqk,bk->bh", self.weights, keys**2)
        variance = squared / n_rows - (expected.sum(dim=-1) / n_rows) ** 2
        covariance = torch.einsum("bhq,bq->bh", expected, rows) / n_rows
        scale = (
            variance.clamp(min=NO_VARIANCE) * (rows**2).sum(dim=-1, keepdim=True) / n_rows
        ).sqrt()
        defined = (self.n_rows > 1) & (self.n_keys > 1)
        has_value = (variance > NO_VARIANCE) & defined[:, None]
        values = (covariance / scale).where(has_value, 0.0)
        return BatchSums(n_rows * values, self.n_rows.where(defined, 0))

    def monotonicity(self) -> BatchSums:
        """Rows whose largest weight is not before the previous row's."""
        steps = self.weights.argmax(dim=-1).diff(dim=-1)  # (B, H, Q - 1)
        forward = (steps >= 0) & self.is_row[:, None, 1:]
        return BatchSums(forward.sum(dim=-1).double(), self._with(1))

    def sinks(self) -> dict[str, BatchSums]:
        """Weights on the source's end or the target's begin of sentence."""
        if self.kind == "dec":
            return {"sink_bos": BatchSums(self.weights[..., 0].sum(dim=-1), self.n_rows)}
        total = torch.einsum("bhqk,bk->bh", self.weights, self.is_eos.double())
        return {"sink_eos": BatchSums(total, self.n_rows)}

    def _with(self, offset: int) -> Tensor:
        """(B) rows that have a position at an offset."""
        return (self.n_rows - abs(offset)).clamp(min=0)
