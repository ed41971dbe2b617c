"""Matrices that adapters of peft are added to, by the names that each family's classes give them.

The rows of `families` that import a family's weights name them, so a family that is read has its
adapters read, too. A matrix that queries, keys and values share there is one part here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tformer_cli.artifacts.adapter_directory import AdapterNames
from tformer_cli.foreign.foreign_model import foreign_names
from tformer_cli.foreign.hugging_face.families import FAMILIES, T5_MODULES
from tformer_cli.foreign.hugging_face.family import regroup_rows
from tformer_cli.model.adapter_config import AdaptedPart, adaptable_parts
from tformer_cli.model.weight_shapes import parameter_shapes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.foreign.hugging_face.family import Family, Table
    from tformer_cli.model.config import ModelConfig

_PLACES = {"query": 0, "key": 1, "value": 2}


def find_names(config: ModelConfig, kind: str, modules: Iterable[str]) -> AdapterNames:
    """Finds the family that names all `modules` of an adapter, or most of them.

    `kind` is that of an imported model, whose family it must be.
    """
    own = [family for family in FAMILIES.values() if family.title in kind]
    families = own or list(FAMILIES.values())
    forms = [
        _names_of(family, table, config)
        for family in families
        for table in (_modules_of(family, config), family.runtime_modules)
    ]
    return max(forms, key=lambda names: sum(names.find(module) is not None for module in modules))


def _modules_of(family: Family, config: ModelConfig) -> Table:
    return T5_MODULES[config.gated] if family.task == "t5" else family.modules


def _names_of(family: Family, table: Table, config: ModelConfig) -> AdapterNames:
    """Names the parts of a model; those whose rows are multiplied by a scale are none."""
    parts: dict[str, AdaptedPart] = {}
    for part in adaptable_parts(config):
        names = foreign_names(f"{part.module}.weight", table)
        if not names or part.module.split(".", 3)[-1] in family.scales:
            continue
        place = _PLACES.get(part.name.rpartition(".")[2], 0) if len(names) > 1 else 0
        name = names[place].removesuffix(".weight")
        first = parts[name].first if name in parts else part.first  # one matrix for all three
        parts[name] = part._replace(first=first)
    shapes, saved = parameter_shapes(config, 1), dict[str, str]()
    head = dict(family.heads.get(config.head, {}))
    if family.task == "vision":
        head["output"] = family.outer["output"]
    for ours, theirs in head.items():
        module = "output_projection" if ours == "output" else ours
        if f"{module}.weight" not in shapes or (config.head == "tokens" and ours == "output"):
            continue  # whose rows have another order here
        n_rows, n_inputs = shapes[f"{module}.weight"][0], shapes[f"{module}.weight"][-1]
        if len(shapes[f"{module}.weight"]) == 2:
            parts[theirs] = AdaptedPart(module, module, 0, n_rows, n_inputs)
        bias = "output_bias" if ours == "output" else f"{module}.bias"
        saved |= {f"{theirs}.weight": f"{module}.weight", f"{theirs}.bias": bias}

    def order_rows(module: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        is_by_heads = family.by_heads and family.by_heads in f"{module}."
        return regroup_rows(rows, config.n_heads, 3) if is_by_heads else rows

    return AdapterNames(
        parts=parts,
        saved=saved,
        prefix=family.prefix,
        omitted=family.omitted[0],
        order_rows=order_rows,
    )
