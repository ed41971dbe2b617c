"""Several models as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.search.models import Ensemble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.search.opening import OpeningSettings


def join_models(directories: Sequence[ModelDirectory], settings: OpeningSettings) -> Ensemble:
    """Joins models of one vocabulary, on one device.

    Args:
        directories: the models.
        settings: their weights, and the space to average in.

    Raises:
        ArtifactError: if one has another vocabulary, or reads sources with another end.
        UsageError: if the weights do not fit.
    """
    first = directories[0]
    for directory in directories:
        if directory.tokenizer.to_json() != first.tokenizer.to_json():
            raise ArtifactError(
                f"{directory.path}: has another vocabulary than {first.path}; ensemble "
                "models that were trained with one tokenizer"
            )
        if directory.config.source_eos != first.config.source_eos:
            raise ArtifactError(
                f"{directory.path}: has another model.source_eos than {first.path}; ensemble "
                "models that read the same sources"
            )
    models = [directory.model for directory in directories]
    try:
        return Ensemble(models, settings.ensemble_weights, settings.ensemble_space)
    except ValueError as error:
        raise UsageError(f"--ensemble-weights: {error}") from None
