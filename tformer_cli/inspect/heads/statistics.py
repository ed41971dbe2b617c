"""Means of every head's metrics over any number of sentences, in memory that does not grow.

Means are micro averages: over the rows of all sentences together, in float64. Their 95 % intervals
come from a bootstrap over sentences that keeps no sentence: in each resample a sentence counts as
often as a Poisson number of mean 1 says (the limit of drawing with replacement; Hanley & MacGibbon
2006), so running sums for each resample are enough. That number depends on the seed and on the
place of the sentence alone, not on when or with which others it is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tformer_cli.heads.names import HeadId, HeadLayout, Kind
from tformer_cli.heads.roles import Role, role_of
from tformer_cli.inspect.capture.batches import CapturedBatch
from tformer_cli.inspect.heads.metrics import batch_metric_sums, head_metrics
from tformer_cli.inspect.json_lines import plain, rounded

SCHEMA = "tformer.headstats/1"
RESAMPLES = 1000
"""Resamples of the bootstrap."""
PERCENTILES = (2.5, 97.5)
BLOCK = 64
"""Sentences that are added to the resamples together."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class HeadSummary:
    """One head over a corpus."""

    head: HeadId
    n_sentences: int
    n_rows: int
    residual: float
    """The largest max |A·V − context| of a sentence."""
    metrics: dict[str, float]
    """Means over rows; undefined ones are omitted."""
    intervals: dict[str, tuple[float, float]]

    @property
    def role(self) -> Role:
        return role_of(self.metrics)

    def describe(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            **self.head.data,
            "role": self.role,
            "n_sentences": self.n_sentences,
            "n_rows": self.n_rows,
            "residual": rounded(self.residual),
            "metrics": plain(self.metrics),
            "ci95": plain(self.intervals),
        }


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
        self._residuals: dict[HeadId, float] = {}
        self.n_sentences = 0

    def _count(self, index: int) -> None:
        """Takes a sentence whose numbers wait; many are added to the resamples together."""
        self.n_sentences += 1
        if self._resamples:
            self._pending.append(index)
        if len(self._pending) == BLOCK:
            self._resample()

    def add_batch(
        self,
        indices: Sequence[int],
        batch: CapturedBatch,
        rare: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Adds the sentences of a padded batch."""
        measured = [kind.measure(batch, rare) for kind in self._kinds]
        for (name, layer), tapped in batch.tapped.items():
            is_row = torch.arange(tapped.errors.shape[-1]) < batch.lengths(name)[0][:, None]
            errors = tapped.errors.where(is_row[:, None], 0.0).amax(dim=(0, 2))
            for number, residual in enumerate(errors.tolist()):
                head = HeadId(name, layer, number)
                self._residuals[head] = max(residual, self._residuals.get(head, 0.0))
        for place, index in enumerate(indices):
            for kind, (totals, counts) in zip(self._kinds, measured, strict=True):
                kind.wait(totals[place], counts[place])
            self._count(index)

    def means(self) -> dict[HeadId, dict[str, float]]:
        """The means of each head; none before the first sentence."""
        return {summary.head: summary.metrics for summary in self.summaries()}

    def summaries(self) -> list[HeadSummary]:
        """Sums up every head, by kind, layer and head; none before the first sentence."""
        if not self.n_sentences:
            return []
        self._resample()
        return [
            HeadSummary(
                head=head,
                n_sentences=self.n_sentences,
                n_rows=kind.n_rows,
                residual=self._residuals[head],
                metrics=metrics,
                intervals=intervals,
            )
            for kind in self._kinds
            for head, metrics, intervals in kind.results()
        ]

    def _resample(self) -> None:
        """Adds the sentences that wait to the sums of every resample."""
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


def _marked(positions: Sequence[Sequence[int]], n_keys: int) -> Tensor:
    """(B, K) boolean: True at the positions of each sentence."""
    marked = torch.zeros(len(positions), n_keys, dtype=torch.bool)
    for row, places in enumerate(positions):
        marked[row, list(places)] = True
    return marked


class _KindSums:
    """Running sums of the heads of one kind."""

    def __init__(self, layout: HeadLayout, kind: Kind, resamples: int) -> None:
        self._kind = kind
        self._heads = [head for head in layout if head.kind == kind]
        # on three tokens, a rare one among them, every metric of a kind is defined
        self._names = list(head_metrics(torch.eye(3)[None], kind, rare=(1,))[0])
        shape = len(self._names), len(self._heads)
        self._totals: Numbers = np.zeros(shape)
        self._counts: Numbers = np.zeros(shape[0])
        self._resampled_totals: Numbers = np.zeros((resamples, *shape))
        self._resampled_counts: Numbers = np.zeros((resamples, shape[0]))
        self._waiting: list[tuple[Numbers, Numbers]] = []

    @property
    def n_rows(self) -> int:
        """Query rows of all sentences."""
        return int(self._counts[self._names.index("entropy")])

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
            _marked(rare, layers[0].shape[-1]) if rare is not None and self._kind == "enc" else None
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
                totals[:, place, first : first + n_heads] = sums.totals.numpy()
                counts[:, place] = sums.n_rows.numpy()
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

    def results(self) -> list[tuple[HeadId, dict[str, float], dict[str, tuple[float, float]]]]:
        defined = [place for place, count in enumerate(self._counts) if count]
        means = {self._names[place]: self._totals[place] / self._counts[place] for place in defined}
        drawn = defined if len(self._resampled_counts) else []
        intervals = {self._names[place]: self._interval(place) for place in drawn}
        return [
            (
                head,
                {name: float(values[number]) for name, values in means.items()},
                {
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
