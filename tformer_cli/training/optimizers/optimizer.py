"""Adam, AdamW and Muon, and their state as named tensors."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.training.config import TrainingConfig
from tformer_cli.training.optimizers.adam import Adam, ParameterGroup
from tformer_cli.training.optimizers.muon import Muon, layer_matrices


def make_optimizer(model: Model, config: TrainingConfig, precision: Precision = "float32") -> Adam:
    # Weight decay falls on matrices alone: shrinking biases and layer norms has no sense of
    # regularising. Without weight decay, AdamW is Adam.
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [
        ParameterGroup(params=decayed, lr=config.learning_rate, weight_decay=config.weight_decay),
        ParameterGroup(params=others, lr=config.learning_rate),
    ]
    if config.optimizer == "muon":
        return Muon(
            groups,
            layer_matrices(model),
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            momentum=config.momentum,
            dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32,
            operations=model.operations,
        )
    return Adam(groups, betas=(config.beta1, config.beta2), eps=config.epsilon)


def set_learning_rate(optimizer: Adam, rate: float) -> None:
    for group in optimizer.param_groups:
        group.lr = rate


def optimizer_tensors(optimizer: Adam, model: nn.Module) -> dict[str, Tensor]:
    """Names every tensor of the optimizer's state `PARAMETER:KEY`."""
    return {
        f"{name}:{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def restore_optimizer(optimizer: Adam, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Puts named tensors back where `optimizer_tensors` found them."""
    # A parameter that has none was never given a gradient, as in an encoder that no cross-attention
    # is left to read, and begins without a state again.
    parameters = dict(model.named_parameters())
    named = [(*name.rpartition(":")[::2], tensor) for name, tensor in tensors.items()]
    states = [(name, key, tensor) for name, key, tensor in named if name in parameters]
    if not states:
        raise KeyError(next(iter(parameters)))
    optimizer.state.clear()
    for name, key, tensor in states:
        parameter = parameters[name]
        # copied, because what was read may still lie in the file
        optimizer.state[parameter][key] = tensor.to(parameter.device, copy=True)
