"""Means of every head's metrics over the rows of some sentences, without intervals.

The same micro averages in float64 as `statistics` has, which is the oracle of this module;
without its bootstrap they cost next to nothing beside the maps.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tformer_cli.inspection.capture.forced import AttentionMaps
from tformer_cli.inspection.capture.heads import KINDS, HeadId, HeadLayout, Kind
from tformer_cli.inspection.heads.metrics import METRICS, metric_sums


class MetricMeans:
    """Running sums of the metrics of all heads of some kinds."""

    def __init__(self, layout: HeadLayout, kinds: Sequence[Kind] = KINDS) -> None:
        """Begins with no sentence.

        Args:
            layout: the heads of the model.
            kinds: whose heads are measured.
        """
        self._heads: dict[Kind, list[HeadId]] = {
            kind: [head for head in layout if head.kind == kind] for kind in kinds
        }
        self._totals: dict[tuple[Kind, str], Tensor] = {}
        self._counts: dict[tuple[Kind, str], int] = {}

    def add(self, maps: AttentionMaps, rare: Sequence[int] = ()) -> None:
        """Adds a sentence.

        Args:
            maps: its maps of the kinds that are measured.
            rare: positions of its rarest source tokens; none if it has none, or that is not known.
        """
        for kind, heads in self._heads.items():
            if not heads:
                continue
            sums = metric_sums(torch.cat(maps.layers(kind)), kind, rare)
            for name, (total, n_rows) in sums.items():
                place = kind, name
                self._totals[place] = self._totals.get(place, 0.0) + total
                self._counts[place] = self._counts.get(place, 0) + n_rows

    def means(self) -> dict[HeadId, dict[str, float]]:
        """The means of each head, in the order of `METRICS`; undefined ones are omitted."""
        found: dict[HeadId, dict[str, float]] = {}
        for kind, heads in self._heads.items():
            columns = {
                name: (self._totals[kind, name] / self._counts[kind, name]).tolist()
                for name in METRICS
                if (kind, name) in self._totals
            }
            for number, head in enumerate(heads):
                found[head] = {name: column[number] for name, column in columns.items()}
        return found
