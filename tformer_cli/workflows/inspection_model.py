"""Opening a model to look into it."""

from pathlib import Path
from typing import TypedDict, Unpack

from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.workflows.open_translator import Opened, open_translator


class InspectionOptions(TypedDict, total=False):
    """Keyword arguments of `open_for_inspection`, each as `open_translator` takes it."""

    beam_size: int | None
    """Hypotheses of the search; None: the model's default."""
    length_penalty: float | None
    """Its length penalty; None: the model's default."""
    n_best: int
    """Hypotheses that it returns; 1 if not given."""
    device: str
    """auto, cpu, cuda or cuda:N."""
    threads: int
    """CPU threads (0: torch's choice)."""
    seed: int
    """Of torch's generators."""


def open_for_inspection(
    model: Path | str | ModelDirectory, **options: Unpack[InspectionOptions]
) -> Opened:
    """Opens a model and its search in float32, the precision whose numbers can be checked.

    Args:
        model: a model directory, or its path.
        **options: see `InspectionOptions`.

    Raises:
        UsageError: if a setting cannot be used.
        ArtifactError: if the model directory cannot be used.
    """
    given: InspectionOptions = {"n_best": 1, **options}
    return open_translator(model, precision="float32", **given)
