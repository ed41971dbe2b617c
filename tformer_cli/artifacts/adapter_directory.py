"""Low-rank adapters (LoRA) in a directory of their own, apart from the model they were trained for.

`adapter_model.safetensors` and `adapter_config.json` have the names and keys of Hugging Face's
library peft, which loads them with the `huggingface` export of the same model. The metadata of the
weights hold the SHA-256 of the model's weights file: with other weights an adapter is refused. An
adapter of peft holds none; it is taken if names and shapes fit, and names matrices as the classes
of its model's family do. A model is opened with the adapter's B·A added to its matrices, so engines
know nothing of adapters.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

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
    from collections.abc import Callable, Container, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.model.adapter_config import AdapterConfig
    from tformer_cli.model.config import ModelConfig

RESTORE = "restore the adapter's own files"
_NAME = re.compile(r"\^?[\w.]+")
KNOWN: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **dict.fromkeys(("r", "lora_alpha", "base_model_name_or_path", "target_modules"), ANY),
        "use_rslora": (False, True),
        "peft_type": ("LORA",),
        # the tensors show which matrices were adapted
        **dict.fromkeys(("layers_to_transform", "layers_pattern", "exclude_modules"), ANY),
        # and which modules are saved whole, such as a classifier's
        "modules_to_save": ANY,
        # these are read; see `AdapterSettings.scale_of`
        **dict.fromkeys(("rank_pattern", "alpha_pattern"), ANY),
        # B·A has the shape (outputs, inputs) here, however a matrix is stored there
        "fan_in_fan_out": (False, True),
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
            ("use_dora", "use_qalora", "lora_bias", "ensure_weight_tying"),
            (False,),
        ),
        "loftq_config": ({}, None),
        "use_bdlora": (False, None),
        "target_parameters": ([], None),
    }
)  # fmt: skip
"""Settings of adapters that can be used; others must be null."""


@dataclass(frozen=True, kw_only=True)
class AdapterSettings:
    """Settings that are read from an `adapter_config.json`."""

    rank: int
    """Rows of A, columns of B, where `ranks` has no other."""
    alpha: float
    """Factor of B·A, times the rank or its root, where `alphas` has no other."""
    is_stabilized: bool = False
    """The root, by which large ranks stay alive (Kalajdzievski 2023)."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Ranks of some modules, by the ends of their names."""
    alphas: Mapping[str, float] = field(default_factory=dict)
    base: str
    """Name of the model that was adapted; empty: it is not known."""
    target_modules: tuple[str, ...] = ()
    """Ends of the names of all modules that were adapted; none: the names are not known."""

    def rank_of(self, module: str) -> int:
        return _by_name(self.ranks, module, self.rank)

    def scale_of(self, module: str) -> float:
        """Factor of B·A of a module."""
        rank = self.rank_of(module)
        return _by_name(self.alphas, module, self.alpha) / (
            math.sqrt(rank) if self.is_stabilized else rank
        )


_Number = TypeVar("_Number", int, float)


def _by_name(values: Mapping[str, _Number], module: str, default: _Number) -> _Number:
    """The value of the first name that is a module's, or its end, as peft takes it."""
    for name, value in values.items():
        if module == name.removeprefix("^") or (
            not name.startswith("^") and module.endswith(f".{name}")
        ):
            return value
    return default


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
    # Then some modules of these names were omitted on purpose
    partly = (values.get(name) for name in ("layers_to_transform", "exclude_modules"))
    is_partly = any(value not in (None, [], "") for value in partly)  # 0 is the first layer
    return AdapterSettings(
        rank=rank,
        alpha=alpha,
        is_stabilized=values.get("use_rslora") is True,
        ranks=_numbers(file, values, "rank_pattern", int),
        alphas=_numbers(file, values, "alpha_pattern", int, float),
        base=base if isinstance(base, str) else "",
        target_modules=tuple(modules) if is_by_name and not is_partly else (),
    )


def _numbers(file: Path, values: Mapping[str, Any], key: str, *types: type) -> dict[str, Any]:
    """Reads numbers of modules by their names, or by the ends of these; other patterns are none."""
    numbers = values.get(key) or {}
    is_known = isinstance(numbers, dict) and all(
        _NAME.fullmatch(name) and type(value) in types and 0 < value < math.inf
        for name, value in numbers.items()
    )
    if not is_known:
        raise _unsupported_error(file, key, numbers)
    return dict(numbers)


def _unsupported_error(file: Path, name: str, value: object) -> ArtifactError:
    shown = json.dumps(value, ensure_ascii=False)[:40]
    return ArtifactError(
        f"{file}: {json.dumps(name)[:40]}: {shown} is not supported; tformer adds only plain "
        "low-rank adapters; merge this one into its model with peft"
    )


def _check(file: Path, values: dict[str, Any]) -> None:
    """Refuses settings that are not known by name and value."""
    for name, value in values.items():
        known = KNOWN.get(name, (None,))
        # 0 and 1 equal False and True, but are no such settings
        if known is ANY or (value in known and type(value) is not int):
            continue
        raise _unsupported_error(file, name, value)


ADAPTER = "adapter"
ADAPTER_WEIGHTS, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_BASE_HASH = "base_sha256"
"""Key of the metadata: SHA-256 of the adapted model's weights file."""
_PICKLED = "adapter_model.bin"
_PREFIX = "base_model.model."
# names the parts of models of another program; artifacts lie below what reads these
_FIND_NAMES = ("tformer_cli.foreign.hugging_face.adapters", "find_names")


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
            f"{self.path}: an adapter of peft for {base}; it fits MODEL's shape, but that MODEL "
            "has the weights it was trained for cannot be verified"
        )

    def advice(self, names: AdapterNames) -> str:
        """Advice for an adapter that does not fit a model whose matrices have these names."""
        if self.base_hash:
            return RESTORE
        base = f" ({self.settings.base})" if self.settings.base else ""
        ends = list(dict.fromkeys(name.rpartition(".")[2] for name in names.parts))
        return (
            f"name the model that it was trained for{base}; in this one, {', '.join(ends)} can be "
            "adapted"
        )


@dataclass(frozen=True, kw_only=True)
class AdapterNames:
    """The parts of a model by the names of the modules that an adapter has."""

    parts: Mapping[str, AdaptedPart]
    saved: Mapping[str, str] = field(default_factory=dict)
    """Weights that an adapter may hold whole, by their names there."""
    prefix: str = ""
    """Begins names where the library's class has a head."""
    omitted: tuple[str, ...] = ()
    """Prefixes of the names of tensors that are not computed."""
    order_rows: Callable[[str, NDArray[np.float32]], NDArray[np.float32]] = lambda _, rows: rows
    """Gives the rows of a module's B the order of the matrix here."""

    def find(self, module: str) -> AdaptedPart | None:
        return self.parts.get(module, self.parts.get(module.removeprefix(self.prefix)))


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
    tensors = {
        _file_name(library_name(part), letter): weights[part.weight(letter)]
        for part in parts
        for letter in "AB"
    }
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


def merge_adapter(
    model: Path, config: ModelConfig, weights: Arrays, path: Path, kind: str
) -> Arrays:
    """Adds an adapter to the weights of a model directory; `kind` says where it came from."""
    adapter = read_adapter(path)
    if adapter.base_hash and hash_file(model / WEIGHTS) != adapter.base_hash:
        raise ArtifactError(
            f"{adapter.path}: was not trained for the weights in {model}; name the model that the "
            "run of the adapter started from"
        )
    return with_adapter(weights, config, adapter, kind)


def with_adapter(
    arrays: Mapping[str, NDArray[Any]], config: ModelConfig, adapter: StoredAdapter, kind: str
) -> dict[str, NDArray[Any]]:
    """Merges an adapter into weights; copies only the matrices that it changes."""
    file, tensors = adapter.path / ADAPTER_WEIGHTS, dict(adapter.tensors)
    merged = dict(arrays)
    modules = list(
        dict.fromkeys(
            name.removeprefix(_PREFIX).rpartition(".lora_")[0]
            for name in tensors
            if name.endswith((".lora_A.weight", ".lora_B.weight"))
        )
    )
    if adapter.base_hash:
        names = AdapterNames(parts={library_name(part): part for part in adaptable_parts(config)})
    else:
        names = getattr(import_module(_FIND_NAMES[0]), _FIND_NAMES[1])(config, kind, modules)
    for module in modules:
        part = names.find(module)
        if part is None:
            continue
        a, b = (tensors.pop(_file_name(module, letter), None) for letter in "AB")
        rank = adapter.settings.rank_of(module)
        shapes = (rank, part.n_inputs), (part.last - part.first, rank)
        if a is None or b is None or (a.shape, b.shape) != shapes:
            raise ArtifactError(
                f"{file}: its tensors of {module} do not fit; {adapter.advice(names)}"
            )
        name = f"{part.module}.weight"
        if merged[name].dtype != np.float32:
            raise ArtifactError(
                f"{file}: the model holds int8 weights, but adapters are added to float32 ones; "
                "name the model that they were exported from"
            )
        if merged[name] is arrays[name]:  # the caller's stay; several parts share a matrix
            merged[name] = merged[name].copy()
        scale = adapter.settings.scale_of(module)
        rows = merged[name][part.first : part.last]
        add_low_rank(rows, a, names.order_rows(module, b), scale)
    _check_none_missing(adapter, names, modules)
    for name in list(tensors):
        short = name.removeprefix(_PREFIX).removeprefix(names.prefix)
        ours = names.saved.get(short, "")
        if ours in arrays and arrays[ours].shape == tensors[name].shape:
            merged[ours] = tensors.pop(name).copy()  # torch wants arrays that it may write to
        elif short.startswith(names.omitted):
            del tensors[name]
    if tensors:  # tensors left over would be lost silently
        raise ArtifactError(
            f"{file}: has an unknown tensor {next(iter(tensors))}; {adapter.advice(names)}"
        )
    return merged


def _check_none_missing(
    adapter: StoredAdapter, names: AdapterNames, modules: Sequence[str]
) -> None:
    """Refuses an adapter of peft that would have adapted a part: its model has fewer layers."""
    ends = () if adapter.base_hash else adapter.settings.target_modules
    adapted = {id(names.find(module)) for module in modules}
    for name, part in names.parts.items():
        if f"{name}.weight" in names.saved:  # heads are often missing, or saved whole
            continue
        is_meant = any(name == end or name.endswith(f".{end}") for end in ends)
        if is_meant and id(part) not in adapted:
            raise ArtifactError(
                f"{adapter.path / ADAPTER_WEIGHTS}: has no tensors of {names.prefix}{name}; "
                f"{adapter.advice(names)}"
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
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, TypeError):  # numpy has no bfloat16
            tensors = {"": np.empty(0, np.int64)}  # the check below refuses it
    for name, tensor in tensors.items():
        if tensor.dtype != np.float32 or not np.isfinite(tensor).all():
            raise ArtifactError(f"{file}: {name} is not float32, or not finite; {RESTORE}")
    return tensors


def _file_name(module: str, letter: str) -> str:
    return f"{_PREFIX}{module}.lora_{letter}.weight"
