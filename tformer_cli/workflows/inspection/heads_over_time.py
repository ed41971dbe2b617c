"""A run directory in, the roles of its heads over its steps out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tformer_cli.inspection.heads.selectors import HeadSelection
from tformer_cli.inspection.heads.timeline import HeadTimeline, read_timeline


def heads_over_time(run: Path | str, heads: Sequence[str] = ()) -> HeadTimeline:
    """Reads what a run has written of its heads; the model itself is not looked at.

    Args:
        run: a run directory, trained with `training.inspect_every`.
        heads: which heads, by the grammar of `inspection.heads.selectors`, with conditions on their
            metrics at the last step; none means all.

    Raises:
        DataError: if the run has followed no heads, or its file is damaged.
        UsageError: if `heads` name no head.
    """
    timeline = read_timeline(Path(run))
    metrics = {course.head: course.metrics for course in timeline.courses}
    chosen = set(HeadSelection(heads, timeline.layout).select(metrics))
    return replace(timeline, courses=tuple(c for c in timeline.courses if c.head in chosen))
