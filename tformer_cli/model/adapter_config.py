"""Settings of low-rank adapters, the recipe's `[adapter]` table, and the matrices they adapt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import NamedTuple

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.weight_shapes import parameter_shapes


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """Low-rank adaptation (LoRA, Hu et al. 2021): of W + alpha/rank·B·A, B and A are trained."""

    rank: int = 0
    """Rank of the adapters, such as 8: only they are trained, in a run that starts from a model
    (0: no adapters, the weights themselves are trained)."""
    alpha: float = 16.0
    """Scale of the adapters' output, times the rank: they add alpha / rank · BA·x."""
    dropout: float = 0.0
    """Dropout of what adapters read."""
    targets: tuple[str, ...] = ("query", "value")
    """Patterns of the matrices that are adapted: "query", "key", "value", "out_projection",
    "inner", "outer" or "gate", or those of some layers, such as `"decoder.*.cross_attention.*"`."""

    def __post_init__(self) -> None:
        if self.rank < 0:
            raise ValueError(f"rank: must be at least 0, but is {self.rank}")
        if not 0.0 < self.alpha < math.inf:
            raise ValueError(f"alpha: must be a number above 0, but is {self.alpha}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout: must be at least 0 and below 1, but is {self.dropout}")
        if not self.targets:
            raise ValueError('targets: names no matrix; give some, such as ["query", "value"]')

    @property
    def scale(self) -> float:
        """Factor of B·A."""
        return self.alpha / self.rank


class AdaptedPart(NamedTuple):
    """Rows of a matrix that have an adapter: those of W_Q, W_K or W_V, or all."""

    name: str
    """Name of the part, such as "encoder.layers.0.self_attention.query"."""
    module: str
    """Name of the module whose matrix it is."""
    first: int
    """First row."""
    last: int
    """The row behind its last."""
    n_inputs: int
    """Columns."""

    def weight(self, letter: str) -> str:
        """Name of A (rank, n_inputs) or B (rows, rank) in the `state_dict` of an adapted model."""
        return f"{self.module}.low_ranks.{self.name.rpartition('.')[2]}.lora_{letter}"


def adaptable_parts(config: ModelConfig) -> list[AdaptedPart]:
    """Lists what can be adapted: the products of attention and of feed-forward layers."""
    parts = []
    for weight, shape in parameter_shapes(config, 1).items():
        module, _, kind = weight.removesuffix(".weight").rpartition(".")
        if not weight.endswith(".weight") or 0 in shape:  # 0: all heads are pruned
            continue
        if kind == "in_projection":
            # W_Q, W_K and W_V share a matrix; without shared keys each has a third
            n_keys = config.n_key_heads * config.head_width or shape[0] // 3
            ends = shape[0] - 2 * n_keys, shape[0] - n_keys, shape[0]
            for name, rows in zip(("query", "key", "value"), pairwise((0, *ends)), strict=True):
                parts.append(AdaptedPart(f"{module}.{name}", f"{module}.{kind}", *rows, shape[1]))
        elif kind in ("out_projection", "inner", "outer", "gate"):
            parts.append(AdaptedPart(f"{module}.{kind}", f"{module}.{kind}", 0, *shape))
    return parts


def adapted_parts(config: ModelConfig, targets: Sequence[str]) -> list[AdaptedPart]:
    """Finds what patterns adapt: those of a whole name, or of its end.

    Raises:
        ValueError: if a pattern fits nothing.
    """
    parts = adaptable_parts(config)
    chosen = set()
    for pattern in targets:
        matches = {
            p for p in parts if any(fnmatchcase(p.name, f"{s}{pattern}") for s in ("", "*."))
        }
        if not matches:
            names = ", ".join(dict.fromkeys(p.name.rpartition(".")[2] for p in parts))
            raise ValueError(f'no matrix fits "{pattern}"; the model has {names} in its layers')
        chosen |= matches
    return [part for part in parts if part in chosen]  # in the order of the model


def adapter_shapes(config: ModelConfig, adapter: AdapterConfig) -> dict[str, tuple[int, int]]:
    """Names the weights of adapters, as in the `state_dict` of an adapted model, with the shapes.

    Args:
        config: the model's shape.
        adapter: settings of the adapters; of rank 0 there are none.

    Raises:
        ValueError: if a target fits nothing.
    """
    parts = adapted_parts(config, adapter.targets) if adapter.rank else []
    of_a = {part.weight("A"): (adapter.rank, part.n_inputs) for part in parts}
    return of_a | {part.weight("B"): (part.last - part.first, adapter.rank) for part in parts}
