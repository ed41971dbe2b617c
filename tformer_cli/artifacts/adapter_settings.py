"""`adapter_config.json`: settings of a low-rank adapter, as Hugging Face's library peft has them.

Settings that change what an adapter adds are named here with the values that are known; any other
is refused, one that a later version of peft adds as well, unless it is not set.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tformer_cli.allow_list import ANY
from tformer_cli.artifacts.config_file import LARGEST_CONFIG
from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from pathlib import Path

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
    """What is read of an `adapter_config.json`."""

    rank: int
    """Rows of A, columns of B."""
    scale: float
    """Factor of B·A."""
    base: str
    """Name of the model that was adapted; empty: it is not known."""
    target_modules: tuple[str, ...] = ()
    """Ends of the names of all modules that were adapted; none: what was is not known by name."""


def read_adapter_settings(file: Path) -> AdapterSettings:
    """Reads the settings of an adapter."""
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
    if type(rank) is not int or rank < 1 or not 0.0 < alpha < math.inf:
        raise ArtifactError(f"{file}: has no rank and alpha above 0; {RESTORE}")
    base, modules = (values.get(name) for name in ("base_model_name_or_path", "target_modules"))
    is_by_name = isinstance(modules, list) and all(isinstance(name, str) for name in modules)
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
