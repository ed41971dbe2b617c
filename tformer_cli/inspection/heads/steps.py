"""The heads of a model while it is trained, on the same pairs again and again.

Maps and metrics are those of `inspect-heads`, means over the rows of all pairs; the roles follow
from the means. Nothing random is drawn, and the model is left as it was, so a run that is looked at
learns what it would have learned.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tformer_cli.inspection.capture.batches import IdPair, capture_batches
from tformer_cli.inspection.capture.heads import KINDS, HeadId, Inspected, head_layout
from tformer_cli.inspection.heads.rare_tokens import TokenFrequencies, rare_positions
from tformer_cli.inspection.heads.roles import role_of
from tformer_cli.inspection.heads.statistics import HeadStatistics
from tformer_cli.inspection.json_lines import plain

SCHEMA = "tformer.headsteps/1"


@dataclass(frozen=True, kw_only=True)
class HeadAtStep:
    """One head at one step."""

    step: int
    """Steps of training made."""
    head: HeadId
    """The head."""
    n_sentences: int
    """Pairs it was seen on."""
    metrics: dict[str, float]
    """Means over rows; undefined ones are omitted."""

    def describe(self) -> dict[str, object]:
        """Tells all of it as JSON data."""
        return {
            "schema": SCHEMA,
            "step": self.step,
            **self.head.data,
            "role": role_of(self.metrics),
            "n_sentences": self.n_sentences,
            "metrics": plain(self.metrics),
        }


def measure_heads(
    model: Inspected,
    pairs: Sequence[IdPair],
    step: int,
    frequencies: TokenFrequencies | None = None,
) -> list[HeadAtStep]:
    """Measures every head of a model that is being trained; its mode is left as it was.

    Args:
        model: the model.
        pairs: what it reads.
        step: steps made.
        frequencies: how frequent source tokens are; None: rare-word heads are not judged.

    Returns:
        The heads by kind, layer and head; none where the weights have become no numbers, which the
        trainer will notice.

    Raises:
        ValueError: if a side is longer than the model takes.
    """
    statistics = HeadStatistics(head_layout(model), KINDS, resamples=0)
    was_training = model.training
    model.eval()
    try:
        for indices, batch in capture_batches(model, pairs):
            rare = [rare_positions(frequencies, ids) for ids in batch.sources]
            statistics.add_batch(indices, batch, rare)
    finally:
        model.train(was_training)
    found = statistics.means()
    if not all(math.isfinite(value) for metrics in found.values() for value in metrics.values()):
        return []
    return [
        HeadAtStep(step=step, head=head, n_sentences=len(pairs), metrics=metrics)
        for head, metrics in found.items()
    ]
