"""The position vectors of a model."""

from pathlib import Path

from tformer_cli.artifacts.model_directory import ModelDirectory, load_model_directory
from tformer_cli.errors import UsageError
from tformer_cli.inspection.record import ModelSummary
from tformer_cli.inspection.views.positions import PositionsRecord, read_positions
from tformer_cli.model.runtime import prepare_cpu, resolve_device

N_POSITIONS = 64
"""Positions that are read where no number is asked for."""


def inspect_positions(
    model: Path | str | ModelDirectory, *, n_positions: int | None = None
) -> PositionsRecord:
    """Reads the first position vectors of a model.

    Args:
        model: a model directory, or its path.
        n_positions: how many; None: 64, or as many as the model has.

    Raises:
        UsageError: if the model has fewer.
        ArtifactError: if the model directory cannot be used.
    """
    prepare_cpu()
    if not isinstance(model, ModelDirectory):
        model = load_model_directory(Path(model), resolve_device("cpu"))
    config = model.model.config
    limit = config.max_positions
    if n_positions is not None and n_positions > limit:
        raise UsageError(f"--positions: the model has {limit}, but {n_positions} were asked for")
    summary = ModelSummary(
        name=model.path.resolve().name,
        n_encoder_layers=config.n_encoder_layers,
        n_decoder_layers=config.n_decoder_layers,
        n_heads=config.n_heads,
        step=model.info.step,
    )
    return read_positions(model.model, summary, n_positions or min(N_POSITIONS, limit))
