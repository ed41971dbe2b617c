"""Low-rank adapters (LoRA) in a directory of their own, apart from the model they were trained for.

`adapter_model.safetensors` and `adapter_config.json` have the names and keys of Hugging Face's
library peft, which loads them with the `huggingface` export of the same model. The metadata of the
weights hold the SHA-256 of the model's weights file: with other weights an adapter is refused. A
model is opened with the adapter's B·A added to its matrices, so engines know nothing of adapters.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from tformer_cli.artifacts.config_file import LARGEST_CONFIG, WEIGHTS
from tformer_cli.artifacts.weights_file import StoredWeights, open_tensors
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import make_directory, write_text
from tformer_cli.files.hashes import hash_file
from tformer_cli.files.regular_file import read_regular
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
_LIBRARY_NAMES = {
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out_projection": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
}


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
        "target_modules": [_library_name(part) for part in parts],
        "inference_mode": True,
    }
    write_text(path / ADAPTER_CONFIG, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


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
    path = path / ADAPTER if (path / ADAPTER / ADAPTER_CONFIG).is_file() else path
    rank, scale = _rank_and_scale(path / ADAPTER_CONFIG)
    file = path / ADAPTER_WEIGHTS
    tensors, base_hash = _tensors(file)
    if hash_file(model / WEIGHTS) != base_hash:
        raise ArtifactError(
            f"{path}: was not trained for the weights in {model}; name the model that the run of "
            "the adapter started from"
        )
    arrays = dict(weights.arrays)
    for part in adaptable_parts(config):
        a, b = (tensors.pop(_file_name(part, letter), None) for letter in "AB")
        if a is None and b is None:
            continue
        shapes = (rank, part.n_inputs), (part.last - part.first, rank)
        if a is None or b is None or (a.shape, b.shape) != shapes:
            raise ArtifactError(f"{file}: its tensors of {part.name} do not fit; {_RESTORE}")
        name = f"{part.module}.weight"
        if arrays[name] is weights.arrays[name]:
            arrays[name] = arrays[name].copy()
        add_low_rank(arrays[name][part.first : part.last], a, b, scale)
    if tensors:
        raise ArtifactError(f"{file}: has an unknown tensor {next(iter(tensors))}; {_RESTORE}")
    return StoredWeights(arrays, weights.mapping)


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


def _rank_and_scale(file: Path) -> tuple[int, float]:
    """Reads what an adapter's tensors are multiplied by."""
    try:
        values: Any = json.loads(read_regular(file, LARGEST_CONFIG))
        rank, alpha = values["r"], float(values["lora_alpha"])
    except FileNotFoundError:
        raise ArtifactError(
            f"{file}: no such file; name an adapter's directory, such as RUN/{ADAPTER}"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{file}: is not the settings of an adapter ({reason})") from None
    if not isinstance(rank, int) or rank < 1 or not 0.0 < alpha < math.inf:
        raise ArtifactError(f"{file}: has no rank and alpha above 0; {_RESTORE}")
    return rank, alpha / rank


def _tensors(file: Path) -> tuple[dict[str, NDArray[np.float32]], str]:
    """Reads the tensors of an adapter, and the hash of the weights that they belong to."""
    with open_tensors(file, "np") as opened:
        metadata = opened.metadata() or {}
        try:
            found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, TypeError):  # numpy has no bfloat16
            found = {"": np.empty(0, np.int64)}
    for name, tensor in found.items():
        if tensor.dtype != np.float32 or not np.isfinite(tensor).all():
            raise ArtifactError(f"{file}: {name} is not float32, or not finite; {_RESTORE}")
    return found, metadata.get(_BASE_HASH, "")


def _library_name(part: AdaptedPart) -> str:
    """The name of a part in Hugging Face's classes."""
    words = (
        _LIBRARY_NAMES.get(word, word) for word in part.name.split(".") if word != "feed_forward"
    )
    return ".".join(("model", *words))


def _file_name(part: AdaptedPart, letter: str) -> str:
    return f"base_model.model.{_library_name(part)}.lora_{letter}.weight"


_RESTORE = "restore the adapter's own files"
