"""Low-rank adapters (LoRA) in a directory of their own, apart from the model they were trained for.

`adapter_model.safetensors` and `adapter_config.json` have the names and keys of Hugging Face's
library peft, which loads them with the `huggingface` export of the same model. The metadata of the
weights hold the SHA-256 of the model's weights file: with other weights an adapter is refused. An
adapter of peft holds none; it is taken if names and shapes fit. A model is opened with the
adapter's B·A added to its matrices, so engines know nothing of adapters.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from tformer_cli.artifacts.config_file import LARGEST_CONFIG, WEIGHTS
from tformer_cli.artifacts.weights_file import (
    Arrays,
    library_name,
    open_tensors,
    read_floats,
)
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import make_directory, write_text
from tformer_cli.files.regular_file import hash_file, read_regular
from tformer_cli.model.adapter_config import AdaptedPart, adaptable_parts, adapted_parts
from tformer_cli.settings import ANY

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.model.adapter_config import AdapterConfig
    from tformer_cli.model.config import ModelConfig

RESTORE = "restore the adapter's own files"
KNOWN: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **dict.fromkeys(("r", "lora_alpha", "base_model_name_or_path", "target_modules"), ANY),
        "use_rslora": (False, True),
        "peft_type": ("LORA",),
        # which matrices were adapted is what the tensors say
        **dict.fromkeys(("layers_to_transform", "layers_pattern", "exclude_modules"), ANY),
        # of training, or of another setting that is refused
        **dict.fromkeys(
            ("lora_dropout", "inference_mode", "task_type", "auto_mapping", "peft_version",
             "revision", "megatron_core", "qalora_group_size"),
            ANY,
        ),
        # the others change the weights that the adapter was trained on
        "init_lora_weights": (True, False, "gaussian", "orthogonal"),
        "bias": ("none",),
        **dict.fromkeys(
            ("use_dora", "use_qalora", "lora_bias", "fan_in_fan_out", "ensure_weight_tying"),
            (False,),
        ),
        **dict.fromkeys(("rank_pattern", "alpha_pattern", "loftq_config"), ({}, None)),
        "use_bdlora": (False, None),
        **dict.fromkeys(("modules_to_save", "target_parameters"), ([], None)),
    }
)  # fmt: skip
"""Settings of adapters that can be used; others must be null."""


@dataclass(frozen=True, kw_only=True)
class AdapterSettings:
    """Settings that are read from an `adapter_config.json`."""

    rank: int
    """Rows of A, columns of B."""
    scale: float
    """Factor of B·A."""
    base: str
    """Name of the model that was adapted; empty: it is not known."""
    target_modules: tuple[str, ...] = ()
    """Ends of the names of all modules that were adapted; none: what was is not known by name."""


def read_adapter_settings(file: Path) -> AdapterSettings:
    try:
        values: Any = json.loads(read_regular(file, LARGEST_CONFIG))
        rank, alpha = values["r"], float(values["lora_alpha"])
    except FileNotFoundError:
        raise ArtifactError(
            f"{file}: no such file; name an adapter's directory, such as RUN/adapter"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{file}: is not the settings of an adapter ({reason})") from None
    _check(file, values)
    if type(rank) is not int or rank < 1 or not 0.0 < alpha < math.inf:  # JSON's true is an int
        raise ArtifactError(f"{file}: has no rank and alpha above 0; {RESTORE}")
    base, modules = (values.get(name) for name in ("base_model_name_or_path", "target_modules"))
    is_by_name = isinstance(modules, list) and all(isinstance(name, str) for name in modules)
    # Then some modules of these names were left out on purpose
    is_partly = any(values.get(name) for name in ("layers_to_transform", "exclude_modules"))
    return AdapterSettings(
        rank=rank,
        # Kalajdzievski 2023, "A rank stabilization scaling factor": √rank keeps large ranks alive
        scale=alpha / (math.sqrt(rank) if values.get("use_rslora") else rank),
        base=base if isinstance(base, str) else "",
        target_modules=tuple(modules) if is_by_name and not is_partly else (),
    )


def _check(file: Path, values: dict[str, Any]) -> None:
    """Refuses settings that are not known by name and value."""
    for name, value in values.items():
        known = KNOWN.get(name, (None,))
        # 0 and 1 equal False and True, but are no such settings
        if known is ANY or (value in known and type(value) is not int):
            continue
        shown = json.dumps(value, ensure_ascii=False)[:40]
        raise ArtifactError(
            f"{file}: {json.dumps(name)[:40]}: {shown} is not supported; tformer adds plain "
            "low-rank adapters alone, so merge this one into its model with peft"
        )


ADAPTER = "adapter"
ADAPTER_WEIGHTS, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_BASE_HASH = "base_sha256"
"""Key of the metadata: SHA-256 of the weights file of the model that was adapted."""
_PICKLED = "adapter_model.bin"


@dataclass(frozen=True, kw_only=True)
class StoredAdapter:
    """An adapter, read from its directory."""

    path: Path
    settings: AdapterSettings
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
        """Advice for an adapter that does not fit a model."""
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
    """Writes an adapter, each file whole or not at all."""
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
    # A run may be named in place of its adapter
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
    tensors = _own_tensors(file) if base_hash else read_floats(file)  # peft may store float16
    return StoredAdapter(path=path, settings=settings, tensors=tensors, base_hash=base_hash)


def merge_adapter(model: Path, config: ModelConfig, weights: Arrays, path: Path) -> Arrays:
    adapter = read_adapter(path)
    if adapter.base_hash and hash_file(model / WEIGHTS) != adapter.base_hash:
        raise ArtifactError(
            f"{adapter.path}: was not trained for the weights in {model}; name the model that the "
            "run of the adapter started from"
        )
    return with_adapter(weights, config, adapter)


def with_adapter(
    arrays: Mapping[str, NDArray[Any]], config: ModelConfig, adapter: StoredAdapter
) -> dict[str, NDArray[Any]]:
    """Adds an adapter to matrices, of which those that it changes are copied."""
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
        if merged[name] is arrays[name]:  # the caller's stay; several parts share a matrix
            merged[name] = merged[name].copy()
        add_low_rank(merged[name][part.first : part.last], a, b, adapter.settings.scale)
    if tensors:  # what is left would be lost in silence
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
    """Adds scale·B·A to rows of a matrix, in place."""
    rows += scale * (b.astype(np.float64) @ a.astype(np.float64))  # every machine has the same bits


def _own_tensors(file: Path) -> dict[str, NDArray[np.float32]]:
    """Reads the tensors of an adapter as tformer writes them."""
    with open_tensors(file, "np") as opened:
        try:
            found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, TypeError):  # numpy has no bfloat16
            found = {"": np.empty(0, np.int64)}  # the check below refuses it
    for name, tensor in found.items():
        if tensor.dtype != np.float32 or not np.isfinite(tensor).all():
            raise ArtifactError(f"{file}: {name} is not float32, or not finite; {RESTORE}")
    return found


def _file_name(part: AdaptedPart, letter: str) -> str:
    return f"base_model.model.{library_name(part)}.lora_{letter}.weight"
