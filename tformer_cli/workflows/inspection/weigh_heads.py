"""Sentences in, the maps of their translations out, in other terms than attention weights."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.inspection.capture.heads import head_layout, layer_layout
from tformer_cli.inspection.heads.metrics import metrics_of
from tformer_cli.inspection.heads.selectors import HeadSelection, check_names_layers
from tformer_cli.inspection.record import HeadsRecord
from tformer_cli.inspection.weighting.maps import weighted_maps
from tformer_cli.inspection.weighting.weighting import WEIGHTINGS, WeightingName
from tformer_cli.workflows.inspect_heads import HeadInspector
from tformer_cli.workflows.inspection.inspection_model import InspectionOptions, open_for_inspection
from tformer_cli.workflows.open_translator import Opened


def weigh_heads(
    model: Path | str | ModelDirectory,
    lines: Iterable[str],
    weighting: WeightingName,
    *,
    targets: Iterable[str] | None = None,
    heads: Sequence[str] = (),
    hypothesis: int = 1,
    **options: Unpack[InspectionOptions],
) -> Iterator[HeadsRecord]:
    """Looks into a model as `inspect_heads` does, in the terms of a weighting.

    Args:
        model: a model directory, or its path.
        lines: the source sentences. A blank one has a record without heads.
        weighting: alpha, norm, rollout or alti; see `inspection.weighting`.
        targets: a target for each line, to be looked at instead of the model's translation.
        heads: which heads, by the grammar of `inspection.heads.selectors`; none: all. Of rollout
            and alti, which layers. Conditions are on metrics of these maps.
        hypothesis: which of the model's translations to look at, 1 the best.
        **options: of `open_for_inspection`.

    Returns:
        One record a line, in order.

    Raises:
        UsageError: if `heads` select nothing or name what there is none of, or a setting cannot be
            used.
        ArtifactError: if the model directory cannot be used.
        DataError: if a line is too long, or there are more or fewer targets than lines.
    """
    opened = open_for_inspection(model, hypothesis=hypothesis, **options)
    weigher = HeadWeigher(opened, weighting, heads)
    inspector = HeadInspector(opened, hypothesis=hypothesis)
    return map(weigher.weigh, inspector.inspect(lines, targets))


class HeadWeigher:
    """Turns inspected sentences into the terms of a weighting."""

    def __init__(self, opened: Opened, weighting: WeightingName, heads: Sequence[str] = ()) -> None:
        """Chooses the heads, or layers; see `weigh_heads`."""
        self._model = opened.directory.model
        self._weighting = WEIGHTINGS[weighting]
        self._layout = head_layout(self._model)
        if self._weighting.is_of_layers:
            check_names_layers(heads, weighting)
            self._layout = layer_layout(self._model)
        self._selection = HeadSelection(heads, self._layout)

    def weigh(self, record: HeadsRecord) -> HeadsRecord:
        """Gives a record of attention weights with these maps instead; a blank one stays so."""
        if record.maps is None:
            return replace(record, weighting=self._weighting)
        maps = weighted_maps(self._model, record.maps, self._weighting.name)
        metrics = {}
        if self._selection.needs_metrics:
            metrics = metrics_of(
                maps, list(self._layout), scales_rows=True, rare=record.rare.positions
            )
        selected = tuple(self._selection.select(metrics))
        return replace(record, maps=maps, heads=selected, weighting=self._weighting)
