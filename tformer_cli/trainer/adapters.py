"""Low-rank adapters as parts of the matrices: what a run with them validates and publishes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tformer_cli.artifacts.adapter_directory import add_low_rank
from tformer_cli.model.adapter_config import AdapterConfig, adapted_parts
from tformer_cli.model.base import Model
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.operations import Linear, LowRank


def merged_weights(
    weights: Mapping[str, Tensor], config: ModelConfig, adapter: AdapterConfig
) -> dict[str, Tensor]:
    merged = dict(weights)
    for part in adapted_parts(config, adapter.targets):
        a, b = (merged.pop(part.weight(letter)).cpu().numpy() for letter in "AB")
        name = f"{part.module}.weight"
        if merged[name] is weights[name]:
            merged[name] = merged[name].to("cpu", copy=True)
        add_low_rank(merged[name][part.first : part.last].numpy(), a, b, adapter.scale)
    return merged


class MergedAdapters:
    """A model in training; while entered, its adapters are merged into its matrices.

    Engines identify weights by address and version. So merged matrices are kept and rewritten: new
    ones could get an earlier address.
    """

    def __init__(self, model: Model) -> None:
        linears = [m for m in model.modules() if isinstance(m, Linear) and m.adapters]
        self._linears = [(linear, linear.weight, linear.low_ranks) for linear in linears]
        self._merged: list[nn.Parameter] = []

    @contextmanager
    def merge_adapters(self) -> Iterator[None]:
        """Adds the present adapters to the matrices, and takes them apart again at the end."""
        if not self._merged:
            self._merged = [
                nn.Parameter(torch.empty_like(weight), requires_grad=False)
                for _, weight, _ in self._linears
            ]
        try:
            for (linear, weight, _), matrix in zip(self._linears, self._merged, strict=True):
                rows = weight.detach().to("cpu", copy=True)
                for adapter in linear.adapters:
                    a, b = (w.detach().cpu().numpy() for w in (adapter.lora_A, adapter.lora_B))
                    add_low_rank(rows[adapter.first : adapter.last].numpy(), a, b, adapter.scale)
                with torch.no_grad():
                    matrix.copy_(rows)
                linear.weight, linear.low_ranks = matrix, None
            yield
        finally:
            for linear, weight, adapters in self._linears:
                linear.weight, linear.low_ranks = weight, adapters


def add_low_ranks(model: Model, config: AdapterConfig) -> None:
    """Adds adapters to a model and freezes its other weights."""
    model.requires_grad_(requires_grad=False)
    for part in adapted_parts(model.config, config.targets):
        linear = model.get_submodule(part.module)
        if not isinstance(linear, Linear):
            raise TypeError(f"{part.module} is not a linear layer")
        if linear.low_ranks is None:
            linear.low_ranks = nn.ModuleDict()
        linear.low_ranks[part.name.rpartition(".")[2]] = LowRank(part, config)
