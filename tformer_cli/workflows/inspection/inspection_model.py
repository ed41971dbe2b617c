"""Opening a model to look into it."""

from collections.abc import Callable, Container
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

from tformer_cli.artifacts.config_file import TaskKind
from tformer_cli.artifacts.model_directory import TRANSLATORS, ModelDirectory
from tformer_cli.errors import UsageError
from tformer_cli.inspection.capture.heads import Inspected
from tformer_cli.workflows.opening.translator import Opened, open_translator

if TYPE_CHECKING:
    from tformer_cli.model.encoder_only import Classifier, MaskedLanguageModel


class InspectionOptions(TypedDict, total=False):
    """Keyword arguments of `open_for_inspection`, each as `open_translator` takes it."""

    adapter: Path | None
    """Directory of a low-rank adapter that is added to the weights."""
    source_language: str | None
    """Code of the language to read; None: the model's own."""
    target_language: str | None
    """Code of the language to write."""
    beam_size: int | None
    """Hypotheses of the search; None: the model's default."""
    length_penalty: float | None
    """Its length penalty; None: the model's default."""
    device: str
    """auto, cpu, cuda or cuda:N."""
    threads: int
    """CPU threads; see `OpeningSettings`."""
    seed: int
    """Of sampling."""
    before_torch: Callable[[], None] | None
    """Called before torch computes."""


def inspected_model(directory: ModelDirectory) -> Inspected:
    """Gives the model of a directory, of whatever task.

    An encoder without rows of labels goes as a classifier: views of it do not read those.
    """
    if directory.config.is_encoder_only:
        return cast("Classifier | MaskedLanguageModel", directory.encoder)
    return directory.model


def open_for_inspection(
    model: Path | str | ModelDirectory,
    *,
    hypothesis: int = 1,
    tasks: Container[TaskKind] = TRANSLATORS,
    **options: Unpack[InspectionOptions],
) -> Opened:
    """Opens a model and its search in float32, the precision whose numbers can be checked.

    Args:
        model: a model directory, or its path.
        hypothesis: which of its translations will be looked at, 1 the best.
        tasks: those whose models can be looked into.
        **options: see `InspectionOptions`.

    Raises:
        UsageError: if a setting cannot be used.
        ArtifactError: if the model directory cannot be used.
    """
    try:
        return open_translator(
            model, tasks=tasks, precision="float32", n_best=hypothesis, **options
        )
    except UsageError as error:
        raise UsageError(str(error).replace("--n-best", "--rank", 1)) from None
