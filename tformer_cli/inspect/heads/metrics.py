"""Metrics of a head's map, computed only from the weights, in float64.

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
                                            rarest tokens (`roles`); of the encoder
distance       mean Σ_j A_ij |i − j|        Vig & Belinkov 2019; in cross-attention
                                            |j/(S−1) − i/(Q−1)|
diagonality    correlation of i and j, the  ours; of cross-attention: 1 along the diagonal, 0
               cells weighted by A_ij       where rows do not differ or all look at one key
monotonicity   share of i with argmax_j A_ij share of rows, but for the first, that do not go back;
               ≥ argmax_j A_{i−1,j}         of cross-attention
sink_eos       mean A_{i,EOS}               weight on the source's end of sentence (enc, cross)
sink_bos       mean A_{i,0}                 weight on the target's begin of sentence (dec)
memory         mean Σ_{j<s(i)} A_ij         weight on earlier segments; s(i) begins that of row i,
                                            s(i) > 0; of models with a memory
============== ============================ ==================================================

Diagonality is not a rank correlation: where rows are nearly alike, ranks are decided by rounding.

Over a corpus means are micro averages, in memory that does not grow: over the rows of all sentences
together, in float64. Their 95 % intervals come from a bootstrap over sentences that keeps no
sentence: in each resample a sentence counts as often as a Poisson number of mean 1 says (the limit
of drawing with replacement; Hanley & MacGibbon 2006), so running sums for each resample are enough.
That number depends only on the seed and on the place of the sentence, not on when or with which
others it is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tformer_cli.heads.names import HeadId, HeadLayout, Kind
from tformer_cli.heads.roles import METRICS, Role, role_of
from tformer_cli.inspect.capture.maps import AttentionMaps, CapturedBatch, Weights
from tformer_cli.inspect.data import to_json
from tformer_cli.metrics.resampling import PERCENTILES, RESAMPLES

Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]
OFFSETS = {"prev": -1, "self": 0, "next": 1}  # Positions relative to the query that are measured
NO_VARIANCE = 1e-9  # Below it the keys attended to do not differ, in squared positions
SMALLEST = np.finfo(np.float64).tiny  # Its logarithm is finite


def metrics_of(
    maps: AttentionMaps, heads: list[HeadId], *, scales_rows: bool = False, rare: Sequence[int] = ()
) -> dict[HeadId, dict[str, float]]:
    computed = {}
    for kind, layer in {(head.kind, head.layer) for head in heads}:
        weights: Weights | Numbers = maps.layers(kind)[layer]
        if scales_rows:
            total = weights.sum(axis=-1, keepdims=True)
            weights = weights / np.where(total > 0.0, total, 1.0)  # a row of 0 stays
        n_visible = maps.n_visible if kind == "dec" else None
        by_head = head_metrics(weights, kind, rare, n_visible, has_eos=maps.has_source_eos)
        if 0 < maps.segment < weights.shape[1]:
            shares = memory_shares(weights, maps.segment)
            by_head = [{**own, "memory": share} for own, share in zip(by_head, shares, strict=True)]
        computed[kind, layer] = by_head
    return {head: computed[head.kind, head.layer][head.head] for head in heads}


def memory_shares(weights: Weights | Numbers, segment: int) -> list[float]:
    """Computes the weight of each head (H, Q, K) on earlier segments, in rows that have any."""
    rows, keys = np.arange(weights.shape[1])[:, None], np.arange(weights.shape[2])
    is_memory = keys < rows // segment * segment
    on_memory = np.where(is_memory, weights, 0.0).sum(axis=-1, dtype=np.float64)
    shares: list[float] = on_memory[:, segment:].mean(axis=-1).tolist()
    return shares


def head_metrics(
    weights: Weights | Numbers,
    kind: Kind,
    rare: Sequence[int] = (),
    n_visible: Counts | None = None,
    *,
    has_eos: bool = True,
) -> list[dict[str, float]]:
    """Computes every metric of every head of a layer, of weights (H, Q, K).

    `n_visible` (Q) counts the keys each row sees; None: all, of the decoder those up to itself.
    """
    n_rows, n_keys = (np.array([size]) for size in weights.shape[1:])
    is_rare = np.zeros((1, weights.shape[2]), dtype=bool)
    if kind == "enc":
        is_rare[0, list(rare)] = True
    # a batch of one without padding
    sums = batch_metric_sums(
        weights[None], n_rows, n_keys, kind, is_rare, n_visible, has_eos=np.array([has_eos])
    )
    columns = {
        name: (metric.totals[0] / metric.n_rows[0]).tolist()
        for name, metric in sums.items()
        if metric.n_rows[0]
    }
    return [
        {name: column[head] for name, column in columns.items()} for head in range(len(weights))
    ]


def entropies(weights: Numbers) -> Numbers:
    """Computes −Σ_j A_ij ln A_ij, with 0 ln 0 = 0: (…, Q, K) to (…, Q), in nats."""
    # No weight lies between 0 and the smallest number, and 0 - 0 is no -0
    terms = weights * np.log(np.maximum(weights, SMALLEST))
    entropy: Numbers = 0.0 - terms.sum(axis=-1)
    return entropy


class BatchSums(NamedTuple):
    """A metric of the heads of a layer on each sentence, before means are taken over rows."""

    totals: Numbers  # (B, H) over the rows of each sentence; 0 where undefined
    n_rows: Counts  # (B) rows of each sentence where it is defined; 0: of none


def batch_metric_sums(
    weights: Weights | Numbers,
    n_rows: Counts,
    n_keys: Counts,
    kind: Kind,
    rare: NDArray[np.bool_] | None = None,
    n_visible: Counts | None = None,
    *,
    has_eos: NDArray[np.bool_],
) -> dict[str, BatchSums]:
    """Sums every metric over the rows of each sentence, of padded weights (B, H, Q, K).

    Keys of padding have weight 0. `rare` (B, K) marks the rarest tokens, `has_eos` (B) sentences
    whose last source position is their end. A diagonality counts for each row of its sentence.
    """
    layer = _Layer(weights, n_rows, n_keys, kind, has_eos)
    sums = {
        **layer.entropies(n_visible),
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

    def __init__(
        self,
        weights: Weights | Numbers,
        n_rows: Counts,
        n_keys: Counts,
        kind: Kind,
        has_eos: NDArray[np.bool_],
    ) -> None:
        self.kind = kind
        self.n_rows, self.n_keys = n_rows, n_keys
        self.rows, self.keys = np.arange(weights.shape[2]), np.arange(weights.shape[3])
        self.is_row = self.rows < n_rows[:, None]  # (B, Q)
        # (B, K); of the target it is not a key
        self.is_eos = (self.keys == n_keys[:, None] - 1) & has_eos[:, None]
        self.weights = weights.astype(np.float64)
        np.copyto(self.weights, 0.0, where=~self.is_row[:, None, :, None])
        self.argmax = self.weights.argmax(axis=-1)  # (B, H, Q)

    def entropies(self, n_visible: Counts | None) -> dict[str, BatchSums]:
        """Spread, and as a share of the largest that rows with several keys can have."""
        entropy = entropies(self.weights)  # (B, H, Q)
        visible = self.rows + 1 if self.kind == "dec" else self.n_keys[:, None]
        visible = visible if n_visible is None else n_visible
        several = self.is_row & (visible > 1)
        # with an axis for the heads
        largest = np.log(np.maximum(np.atleast_2d(visible), 2))[:, None]
        shares = np.where(several[:, None], entropy / largest, 0.0)
        return {
            "entropy": BatchSums(entropy.sum(axis=-1), self.n_rows),
            "entropy_norm": BatchSums(shares.sum(axis=-1), several.sum(axis=-1)),
        }

    def confidence(self) -> BatchSums:
        if self.kind == "dec":
            return BatchSums(self.weights.max(axis=-1).sum(axis=-1), self.n_rows)
        others = np.where(self.is_eos[:, None, None, :], 0.0, self.weights)
        defined = np.where(self.n_keys > self.is_eos.sum(axis=-1), self.n_rows, 0)
        return BatchSums(others.max(axis=-1).sum(axis=-1), defined)

    def positions(self) -> dict[str, BatchSums]:
        """Weights on relative positions; beyond the last key there is padding, of weight 0."""
        if self.kind == "cross":
            return {}
        return {
            name: BatchSums(
                self.weights.diagonal(offset, axis1=2, axis2=3).sum(axis=-1), self._with(offset)
            )
            for name, offset in OFFSETS.items()
        }

    def largest(self, rare: NDArray[np.bool_] | None) -> dict[str, BatchSums]:
        """Rows whose largest weight is on a relative position, or on a rare token."""
        if self.kind == "cross":
            return {}
        offsets = np.where(self.is_row[:, None], self.argmax - self.rows, len(self.keys))
        sums = {
            f"{name}_argmax": BatchSums(
                (offsets == offset).sum(axis=-1).astype(np.float64), self._with(offset)
            )
            for name, offset in OFFSETS.items()
        }
        if rare is not None and self.kind == "enc":
            is_rare = rare[np.arange(len(rare))[:, None, None], self.argmax]
            hits = (is_rare & self.is_row[:, None]).sum(axis=-1).astype(np.float64)
            sums["rare_argmax"] = BatchSums(hits, np.where(rare.any(axis=-1), self.n_rows, 0))
        return sums

    def distance(self) -> BatchSums:
        rows, keys = self.rows[None].astype(np.float64), self.keys[None].astype(np.float64)
        if self.kind == "cross":
            rows = rows / np.maximum(self.n_rows[:, None] - 1, 1)
            keys = keys / np.maximum(self.n_keys[:, None] - 1, 1)
        distances = np.abs(rows[:, :, None] - keys[:, None, :])  # (B or 1, Q, K)
        # (B, H, Q·K) · (B or 1, Q·K, 1) -> (B, H)
        flat = self.weights.reshape(*self.weights.shape[:2], distances[0].size)
        total = (flat @ distances.reshape(len(distances), -1, 1))[..., 0]
        return BatchSums(total, self.n_rows)

    def diagonality(self) -> BatchSums:
        n_rows = self.n_rows[:, None].astype(np.float64)
        rows = np.where(self.is_row, self.rows - (n_rows - 1) / 2, 0.0)  # (B, Q)
        keys = self.keys - (self.n_keys[:, None] - 1) / 2  # (B, K)
        # (B, H, Q, K) · (B, 1, K, 1) -> (B, H, Q)
        expected = (self.weights @ keys[:, None, :, None])[..., 0]
        squared = (self.weights @ keys[:, None, :, None] ** 2).sum(axis=(2, 3))
        variance = squared / n_rows - (expected.sum(axis=-1) / n_rows) ** 2
        covariance = (expected @ rows[:, :, None])[..., 0] / n_rows
        # a single row, where nothing is defined, has no spread to divide by
        spread = np.maximum((rows**2).sum(axis=-1, keepdims=True), NO_VARIANCE)
        scale = np.sqrt(np.maximum(variance, NO_VARIANCE) * spread / n_rows)
        defined = (self.n_rows > 1) & (self.n_keys > 1)
        has_value = (variance > NO_VARIANCE) & defined[:, None]
        values = np.where(has_value, covariance / scale, 0.0)
        return BatchSums(n_rows * values, np.where(defined, self.n_rows, 0))

    def monotonicity(self) -> BatchSums:
        """Rows whose largest weight is not before the previous row's."""
        forward = (np.diff(self.argmax, axis=-1) >= 0) & self.is_row[:, None, 1:]
        return BatchSums(forward.sum(axis=-1).astype(np.float64), self._with(1))

    def sinks(self) -> dict[str, BatchSums]:
        if self.kind == "dec":
            return {"sink_bos": BatchSums(self.weights[..., 0].sum(axis=-1), self.n_rows)}
        # (B, H, Q, K) -> (B, H, K) · (B, K, 1) -> (B, H)
        total = (self.weights.sum(axis=2) @ self.is_eos[:, :, None].astype(np.float64))[..., 0]
        return {"sink_eos": BatchSums(total, self.n_rows)}

    def _with(self, offset: int) -> Counts:
        """(B) rows that have a position at an offset."""
        return np.maximum(self.n_rows - abs(offset), 0)


SCHEMA = "tformer.headstats/1"
BLOCK = 64  # Sentences that are added to the resamples together


@dataclass(frozen=True, kw_only=True)
class HeadSummary:
    """One head over a corpus."""

    head: HeadId
    n_sentences: int
    n_rows: int
    residual: float  # The largest max |A·V − context| of a sentence
    metrics: dict[str, float]  # Means over rows; undefined ones are omitted
    intervals: dict[str, tuple[float, float]]

    @property
    def role(self) -> Role:
        return role_of(self.metrics)

    def describe(self) -> dict[str, object]:
        names = "*head.data role n_sentences n_rows residual metrics ci95=intervals"
        return {"schema": SCHEMA, **to_json(self, names)}


class HeadStatistics:
    """Running sums of the metrics of all heads of some kinds."""

    def __init__(
        self,
        layout: HeadLayout,
        kinds: Sequence[Kind],
        *,
        seed: int = 1,
        resamples: int = RESAMPLES,
    ) -> None:
        self._kinds = [_KindSums(layout, kind, resamples) for kind in kinds if sum(layout.of(kind))]
        self._seed = seed
        self._resamples = resamples
        self._pending: list[int] = []
        self.residuals: dict[HeadId, float] = {}
        self.n_sentences = 0

    def add_batch(
        self,
        indices: Sequence[int],
        batch: CapturedBatch,
        rare: Sequence[Sequence[int]] | None = None,
    ) -> None:
        measured = [kind.measure(batch, rare) for kind in self._kinds]
        for (name, layer), tapped in batch.tapped.items():
            is_row = np.arange(tapped.errors.shape[-1]) < batch.lengths(name)[0][:, None]
            errors = np.where(is_row[:, None], tapped.errors, 0.0).max(axis=(0, 2))
            for number, residual in enumerate(errors.tolist()):
                head = HeadId(name, layer, number)
                self.residuals[head] = max(residual, self.residuals.get(head, 0.0))
        for place, index in enumerate(indices):
            for kind, (totals, counts) in zip(self._kinds, measured, strict=True):
                kind.wait(totals[place], counts[place])
            self.n_sentences += 1
            if self._resamples:
                self._pending.append(index)
            if len(self._pending) == BLOCK:  # many are added to the resamples together
                self._resample()

    def means(self) -> dict[HeadId, dict[str, float]]:
        return {summary.head: summary.metrics for summary in self.summaries()}

    def summaries(self) -> list[HeadSummary]:
        if not self.n_sentences:
            return []
        self._resample()
        return [summary for kind in self._kinds for summary in kind.summaries(self)]

    def _resample(self) -> None:
        if not self._pending:
            return
        draws = [
            np.random.default_rng((self._seed, index)).poisson(1.0, self._resamples)
            for index in self._pending
        ]
        weights = np.stack(draws, axis=1).astype(np.float64)
        for kind in self._kinds:
            kind.resample(weights)
        self._pending = []


def _mark(positions: Sequence[Sequence[int]], n_keys: int) -> NDArray[np.bool_]:
    """(B, K) boolean: True at the positions of each sentence."""
    marked = np.zeros((len(positions), n_keys), dtype=bool)
    for row, places in enumerate(positions):
        marked[row, list(places)] = True
    return marked


class _KindSums:
    """Running sums of the heads of one kind."""

    def __init__(self, layout: HeadLayout, kind: Kind, resamples: int) -> None:
        self._kind = kind
        self._heads = [head for head in layout if head.kind == kind]
        # on three tokens, a rare one among them, every metric of a kind is defined
        self._names = list(head_metrics(np.eye(3)[None], kind, rare=(1,))[0])
        shape = len(self._names), len(self._heads)
        self._totals: Numbers = np.zeros(shape)
        self._counts: Numbers = np.zeros(shape[0])
        self._resampled_totals: Numbers = np.zeros((resamples, *shape))
        self._resampled_counts: Numbers = np.zeros((resamples, shape[0]))
        self._waiting: list[tuple[Numbers, Numbers]] = []

    def measure(
        self, batch: CapturedBatch, rare: Sequence[Sequence[int]] | None
    ) -> tuple[Numbers, Numbers]:
        """Measures all heads of all sentences: (B, metrics, heads) sums and (B, metrics) rows."""
        n_rows, n_keys = batch.lengths(self._kind)
        layers = [
            batch.tapped[place].weights for place in sorted(batch.tapped) if place[0] == self._kind
        ]
        # source positions, which are keys of the encoder; a target may be shorter
        is_rare = (
            _mark(rare, layers[0].shape[-1]) if rare is not None and self._kind == "enc" else None
        )
        totals = np.zeros((len(n_rows), len(self._names), len(self._heads)))
        counts = np.zeros(totals.shape[:2])
        first = 0
        for weights in layers:
            n_heads = weights.shape[1]
            for name, sums in batch_metric_sums(
                weights, n_rows, n_keys, self._kind, is_rare, has_eos=batch.has_source_eos
            ).items():
                place = self._names.index(name)
                totals[:, place, first : first + n_heads] = sums.totals
                counts[:, place] = sums.n_rows
            first += n_heads
        return totals, counts

    def wait(self, totals: Numbers, counts: Numbers) -> None:
        """Adds the (metrics, heads) sums over (metrics) rows of a sentence, to be resampled."""
        self._totals += totals
        self._counts += counts
        if len(self._resampled_counts):
            self._waiting.append((totals, counts))

    def resample(self, weights: Numbers) -> None:
        """Adds the sentences that wait, each (resamples, sentences) `weights` times."""
        totals, counts = (np.stack(parts) for parts in zip(*self._waiting, strict=True))
        self._resampled_totals += np.tensordot(weights, totals, axes=1)
        self._resampled_counts += weights @ counts
        self._waiting = []

    def summaries(self, whole: HeadStatistics) -> list[HeadSummary]:
        defined = [place for place, count in enumerate(self._counts) if count]
        means = {self._names[place]: self._totals[place] / self._counts[place] for place in defined}
        drawn = defined if len(self._resampled_counts) else []
        intervals = {self._names[place]: self._interval(place) for place in drawn}
        return [
            HeadSummary(
                head=head,
                n_sentences=whole.n_sentences,
                n_rows=int(self._counts[self._names.index("entropy")]),
                residual=whole.residuals[head],
                metrics={name: float(values[number]) for name, values in means.items()},
                intervals={
                    name: (float(low[number]), float(high[number]))
                    for name, (low, high) in intervals.items()
                },
            )
            for number, head in enumerate(self._heads)
        ]

    def _interval(self, place: int) -> Numbers:
        """(2, heads) the interval of a metric; a resample without a row says nothing."""
        counts = self._resampled_counts[:, place]
        drawn = counts > 0
        means = self._resampled_totals[drawn, place] / counts[drawn, None]
        ends: Numbers = np.percentile(means, PERCENTILES, axis=0)
        return ends
