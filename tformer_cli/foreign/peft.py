"""Models of Hugging Face's families with a low-rank adapter of the library peft, as one model.

A directory of peft holds the adapter alone and names the model that it was trained for, by a path
or a name on the hub.
"""

from dataclasses import replace
from pathlib import Path

from tformer_cli.artifacts.adapter_directory import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    StoredAdapter,
    read_adapter,
    with_adapter,
)
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import ForeignModel


def find_adapter(path: Path) -> StoredAdapter | None:
    """Reads the adapter of peft in a directory; None if it holds a model, or one of tformer's."""
    if not (path / ADAPTER_CONFIG).is_file() or (path / "config.json").is_file():
        return None
    adapter = read_adapter(path)
    if adapter.base_hash:  # beside the model of its run
        return None
    if not adapter.settings.base:
        raise ArtifactError(
            f"{path}: is an adapter that does not name its model; name the model, and the adapter "
            "with --adapter"
        )
    return adapter


def with_base(adapter: StoredAdapter, model: ForeignModel) -> ForeignModel:
    """Adds an adapter to the model that it names, whose weights are float32."""
    note = (
        f"the adapter was trained for {adapter.settings.base}; whether these are the weights that "
        "it had then cannot be verified"
    )
    return replace(
        model,
        kind=f"{model.kind} with an adapter of peft",
        weights=with_adapter(model.weights, model.config, adapter),
        files=(*model.files, *(adapter.path / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS))),
        notes=(*model.notes, note),
    )
