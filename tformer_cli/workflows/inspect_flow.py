"""Sentences in, what each token of their translations is made of out."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Unpack

from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.inspection.views.flow import FlowRecord, read_flow
from tformer_cli.workflows.inspect_heads import HeadInspector
from tformer_cli.workflows.inspection_model import InspectionOptions, open_for_inspection
from tformer_cli.workflows.open_translator import Opened


def inspect_flow(
    model: Path | str | ModelDirectory,
    lines: Iterable[str],
    *,
    targets: Iterable[str] | None = None,
    hypothesis: int = 1,
    **options: Unpack[InspectionOptions],
) -> Iterator[FlowRecord]:
    """Finds how far source and prefix make up each token of sentences' translations.

    Args:
        model: a model directory, or its path.
        lines: the source sentences. A blank one has a record without flows.
        targets: a target for each line, to be looked at instead of the model's translation.
        hypothesis: which of the model's translations to look at, 1 the best.
        **options: of `open_for_inspection`.

    Returns:
        One record a line, in order.

    Raises:
        UsageError: if a setting cannot be used.
        ArtifactError: if the model directory cannot be used.
        DataError: if a line is too long, or there are more or fewer targets than lines.
    """
    opened = open_for_inspection(model, hypothesis=hypothesis, **options)
    return flow_of(opened, lines, targets, hypothesis=hypothesis)


def flow_of(
    opened: Opened,
    lines: Iterable[str],
    targets: Iterable[str] | None = None,
    *,
    hypothesis: int = 1,
) -> Iterator[FlowRecord]:
    """Does the work of `inspect_flow` with an opened model."""
    for sentence in HeadInspector(opened, hypothesis=hypothesis).inspect(lines, targets):
        yield read_flow(opened.directory.model, sentence)
