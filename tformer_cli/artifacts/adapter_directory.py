"""Low-rank adapters (LoRA) in a directory of their own, apart from the model they were trained for.

`adapter_model.safetensors` and `adapter_config.json` have the names and keys of Hugging Face's
library peft, which loads them with the `huggingface` export of the same model. The metadata of the
weights hold the SHA-256 of the model's weights file: with other weights an adapter is refused. An
adapter of peft holds none; it is taken if names and shapes fit. A model is opened with the
adapter's B·A added to its matrices, so engines know nothing of adapters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from tformer_cli.artifacts.adapter_settings import RESTORE, AdapterSettings, read_adapter_settings
from tformer_cli.artifacts.config_file import WEIGHTS
from tformer_cli.artifacts.library_names import library_name
from tformer_cli.artifacts.weights_file import StoredWeights, open_tensors, read_floats
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import make_directory, write_text
from tformer_cli.files.hashes import hash_file
from tformer_cli.model.adapter_config import AdaptedPart, adaptable_parts, adapted_parts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.model.adapter_config import AdapterConfig
    from tformer_cli.model.config import ModelConfig

ADAPTER = "adapter"
"""Directory of a run for its adapter."""
ADAPTER_WEIGHTS, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_BASE_HASH = "base_sha256"
"""Key of the metadata: SHA-256 of the weights file of the model that was adapted."""
_PICKLED = "adapter_model.bin"
"""Weights of older adapters of peft."""


@dataclass(frozen=True, kw_only=True)
class StoredAdapter:
    """An adapter, read from its directory."""

    path: Path
    """The directory."""
    settings: AdapterSettings
    """Its settings."""
    tensors: Mapping[str, NDArray[np.float32]]
    """A and B of each part, by the library's names."""
    base_hash: str
    """SHA-256 of the weights that it was trained for; empty of adapters of peft, which has none."""

    @property
    def unverified(self) -> str:
        """A sentence about an adapter whose base cannot be verified; empty if it can."""
        if self.base_hash:
            return ""
        base = self.settings.base or "a model that it does not name"
        return (
            f"{self.path}: an adapter of peft for {base}; it fits MODEL's shape, but whether MODEL "
            "has the weights that it was trained for cannot be verified"
        )

    @property
    def advice(self) -> str:
        """What to do where the adapter does not fit a model."""
        if self.base_hash:
            return RESTORE
        base = f" ({self.settings.base})" if self.settings.base else ""
        return (
            f"name the model that it was trained for{base}; of its modules q_proj, k_proj, v_proj, "
            "out_proj, fc1 and fc2 can be adapted"
        )


def save_adapter(
    path: Path,
    weights: Mapping[str, Tensor],
    config: ModelConfig,
    adapter: AdapterConfig,
    base: tuple[str, str],
) -> None:
    """Writes an adapter, each file whole or not at all.

    Args:
        path: the directory; it is made if it is not there.
        weights: the `state_dict()` of a model with adapters.
        config: the model's shape.
        adapter: settings of the adapters.
        base: name of the model that was adapted, and SHA-256 of its weights file.

    Raises:
        ArtifactError: if it cannot be written.
    """
    from tformer_cli.artifacts.tensors import save_tensors

    parts = adapted_parts(config, adapter.targets)
    tensors = {_file_name(p, letter): weights[p.weight(letter)] for p in parts for letter in "AB"}
    make_directory(path)
    # A second key would make the bytes differ: the library writes them in any order
    save_tensors(path / ADAPTER_WEIGHTS, tensors, {_BASE_HASH: base[1]})
    record = {
        "peft_type": "LORA",
        "task_type": "SEQ_2_SEQ_LM",
        "base_model_name_or_path": base[0],
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": adapter.dropout,
        "target_modules": [library_name(part) for part in parts],
        "inference_mode": True,
    }
    write_text(path / ADAPTER_CONFIG, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def read_adapter(path: Path) -> StoredAdapter:
    """Reads an adapter.

    Args:
        path: its directory, or that of its run.

    Raises:
        ArtifactError: if it is missing or damaged, or more than a plain low-rank adapter.
    """
    path = path / ADAPTER if (path / ADAPTER / ADAPTER_CONFIG).is_file() else path
    settings = read_adapter_settings(path / ADAPTER_CONFIG)
    file = path / ADAPTER_WEIGHTS
    if not file.is_file() and (path / _PICKLED).is_file():
        raise ArtifactError(
            f"{path / _PICKLED}: is a pickle, which can run code; save the adapter with "
            "safe_serialization=True"
        )
    with open_tensors(file, "np") as opened:
        base_hash = (opened.metadata() or {}).get(_BASE_HASH, "")
    tensors = _own_tensors(file) if base_hash else read_floats(file)
    return StoredAdapter(path=path, settings=settings, tensors=tensors, base_hash=base_hash)


def merge_adapter(
    model: Path, config: ModelConfig, weights: StoredWeights, path: Path
) -> StoredWeights:
    """Adds an adapter to the matrices of a model.

    Args:
        model: the model directory.
        config: the model's shape.
        weights: what it stores.
        path: the adapter's directory, or that of its run.

    Raises:
        ArtifactError: if the adapter is missing, damaged, or was trained for other weights.
    """
    adapter = read_adapter(path)
    if adapter.base_hash and hash_file(model / WEIGHTS) != adapter.base_hash:
        raise ArtifactError(
            f"{adapter.path}: was not trained for the weights in {model}; name the model that the "
            "run of the adapter started from"
        )
    return StoredWeights(with_adapter(weights.arrays, config, adapter), weights.mapping)


def with_adapter(
    arrays: Mapping[str, NDArray[Any]], config: ModelConfig, adapter: StoredAdapter
) -> dict[str, NDArray[Any]]:
    """Adds an adapter to matrices, of which those that it changes are copied.

    Args:
        arrays: weights by tformer's names.
        config: the model's shape.
        adapter: the adapter.

    Raises:
        ArtifactError: if it does not fit the model.
    """
    file, tensors = adapter.path / ADAPTER_WEIGHTS, dict(adapter.tensors)
    merged = dict(arrays)
    for part in adaptable_parts(config):
        a, b = (tensors.pop(_file_name(part, letter), None) for letter in "AB")
        if a is None and b is None:
            _check_not_adapted(part, adapter)
            continue
        rank = adapter.settings.rank
        shapes = (rank, part.n_inputs), (part.last - part.first, rank)
        if a is None or b is None or (a.shape, b.shape) != shapes:
            raise ArtifactError(f"{file}: its tensors of {part.name} do not fit; {adapter.advice}")
        name = f"{part.module}.weight"
        if merged[name].dtype != np.float32:
            raise ArtifactError(
                f"{file}: the model holds int8 weights, but adapters are added to float32 ones; "
                "name the model that they were exported from"
            )
        if merged[name] is arrays[name]:
            merged[name] = merged[name].copy()
        add_low_rank(merged[name][part.first : part.last], a, b, adapter.settings.scale)
    if tensors:
        raise ArtifactError(
            f"{file}: has an unknown tensor {next(iter(tensors))}; {adapter.advice}"
        )
    return merged


def _check_not_adapted(part: AdaptedPart, adapter: StoredAdapter) -> None:
    """Refuses an adapter of peft that would have adapted a part: its model has fewer layers."""
    name = library_name(part)
    ends = () if adapter.base_hash else adapter.settings.target_modules
    if any(name == end or name.endswith(f".{end}") for end in ends):
        raise ArtifactError(
            f"{adapter.path / ADAPTER_WEIGHTS}: has no tensors of {name}; {adapter.advice}"
        )


def add_low_rank(
    rows: NDArray[np.float32], a: NDArray[np.float32], b: NDArray[np.float32], scale: float
) -> None:
    """Adds scale·B·A to rows of a matrix, in place.

    In float64, and rounded once: every machine then has the same bits.

    Args:
        rows: (n, K).
        a: (rank, K).
        b: (n, rank).
        scale: alpha / rank.
    """
    rows += scale * (b.astype(np.float64) @ a.astype(np.float64))


def _own_tensors(file: Path) -> dict[str, NDArray[np.float32]]:
    """Reads the tensors of an adapter as tformer writes them."""
    with open_tensors(file, "np") as opened:
        try:
            found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, TypeError):  # numpy has no bfloat16
            found = {"": np.empty(0, np.int64)}
    for name, tensor in found.items():
        if tensor.dtype != np.float32 or not np.isfinite(tensor).all():
            raise ArtifactError(f"{file}: {name} is not float32, or not finite; {RESTORE}")
    return found


def _file_name(part: AdaptedPart, letter: str) -> str:
    return f"base_model.model.{library_name(part)}.lora_{letter}.weight"
