"""A model in the format of another engine."""

from pathlib import Path
from typing import Literal

from tformer_cli.artifacts.ctranslate2_export import EXPORT, export_ctranslate2
from tformer_cli.artifacts.model_directory import load_model_directory

Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8"]


def export(
    model: Path | str, output: Path | None = None, *, quantization: Quantization = "float32"
) -> Path:
    """Writes a model for CTranslate2, whole or not at all.

    Args:
        model: a model directory.
        output: folder to write; None: `ctranslate2` in the model directory, where
            `open_engine` looks for it.
        quantization: what the weights are stored as. The engine converts while it loads, so
            float32 loses nothing, and the others save space.

    Returns:
        The folder.

    Raises:
        UsageError: if the engine's package is not installed.
        ArtifactError: if the model cannot be read or the folder cannot be written.
    """
    directory = load_model_directory(Path(model))
    path = Path(model) / EXPORT if output is None else Path(output)
    export_ctranslate2(directory, path, quantization)
    return path
