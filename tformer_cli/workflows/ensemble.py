"""Several model directories as one model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.artifacts.model_directory import ModelDirectory, load_model_directory
from tformer_cli.decoding.ensemble import Ensemble, EnsembleSpace
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.workflows.precision import choose_numbers, computing_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.workflows.translation_options import PrecisionChoice


def join_models(
    first: ModelDirectory,
    others: Sequence[Path],
    weights: Sequence[float] | None,
    space: EnsembleSpace,
    precision: PrecisionChoice = "float32",
) -> Ensemble:
    """Joins a model with others of its vocabulary.

    Args:
        first: a model directory.
        others: paths of more.
        weights: how much each counts, the first one's first; None: equally.
        space: where log-probabilities are averaged.
        precision: what the first one computes in; the others will, too.

    Raises:
        ArtifactError: if one cannot be read or has another vocabulary.
        UsageError: if the weights do not fit.
    """
    place = next(first.model.parameters()).device
    directories = [first]
    for path in others:
        other = load_model_directory(Path(path), place, takes_int8=True)
        chosen = choose_numbers(other, precision, str(place))
        directories.append(computing_in(other, chosen, may_change=True))
    for directory in directories:
        if directory.tokenizer.to_json() != first.tokenizer.to_json():
            raise ArtifactError(
                f"{directory.path}: has another vocabulary than {first.path}; ensemble "
                "models that were trained with one tokenizer"
            )
    try:
        return Ensemble([directory.model for directory in directories], weights, space)
    except ValueError as error:
        raise UsageError(f"--ensemble-weights: {error}") from None
