"""Low-rank adapters (LoRA) of a model in training; see `adapter_config`.

W·x becomes W·x + s·B·A·dropout(x), where W is frozen, A has `rank` rows and B `rank` columns, and
s = alpha / rank (Hu et al. 2021, section 4.1). B starts at 0, so that the first step starts from
the model as it is.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.adapter_config import AdaptedPart, AdapterConfig, adapted_parts
from tformer_cli.model.operations import Dropout, Linear

if TYPE_CHECKING:
    from tformer_cli.model.base import Model


class LowRank(nn.Module):
    """Adapter of some rows of a matrix."""

    def __init__(self, part: AdaptedPart, config: AdapterConfig) -> None:
        """Draws A as Hu et al.'s own code does, uniform in ±1/√(n_inputs); B is 0."""
        super().__init__()
        self.first, self.last = part.first, part.last
        self.scale = config.scale
        self.dropout = Dropout(config.dropout)
        self.lora_A = nn.Parameter(torch.empty(config.rank, part.n_inputs))
        self.lora_B = nn.Parameter(torch.zeros(part.last - part.first, config.rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, values: Tensor) -> Tensor:
        """Maps (…, n_inputs) to what is added to the rows of the product, (…, rows)."""
        low = functional.linear(self.dropout(values), self.lora_A)
        return functional.linear(low, self.lora_B) * self.scale

    if TYPE_CHECKING:
        __call__ = forward


def add_low_ranks(model: "Model", config: AdapterConfig) -> None:
    """Gives a model adapters; its other weights are frozen.

    Raises:
        ValueError: if a target fits nothing.
    """
    model.requires_grad_(requires_grad=False)
    for part in adapted_parts(model.config, config.targets):
        linear = model.get_submodule(part.module)
        if not isinstance(linear, Linear):
            raise TypeError(f"{part.module} is no product of a layer")
        if linear.low_ranks is None:
            linear.low_ranks = nn.ModuleDict()
        linear.low_ranks[part.name.rpartition(".")[2]] = LowRank(part, config)
