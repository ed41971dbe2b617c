"""Adam, AdamW and Muon, and their state as named tensors."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from tformer_cli.model.runtime import Precision
from tformer_cli.training.config import TrainingConfig
from tformer_cli.training.muon import Muon, layer_matrices


def make_optimizer(
    model: nn.Module, config: TrainingConfig, precision: Precision = "float32"
) -> torch.optim.Optimizer:
    """Makes the optimizer of a model's parameters.

    Weight decay falls on matrices alone: shrinking biases and layer norms has no sense of
    regularising. torch's fused implementation updates all of Adam's parameters in one pass.

    Args:
        model: whose parameters are trained.
        config: the optimizer and its settings.
        precision: of the products that Muon makes itself.
    """
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if config.optimizer == "muon":
        return Muon(
            groups,
            layer_matrices(model),
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            momentum=config.momentum,
            dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32,
        )
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(
        groups,
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Names every tensor of the optimizer's state `PARAMETER:KEY`."""
    return {
        f"{name}:{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Puts named tensors back where `optimizer_tensors` found them.

    Raises:
        KeyError: if a parameter's state is missing.
    """
    for name, parameter in model.named_parameters():
        keys = _state_keys(name, tensors)
        if not keys:
            raise KeyError(name)
        optimizer.state[parameter] = {
            # copied, because what was read may still lie in the file
            key: tensors[f"{name}:{key}"].to(parameter.device, copy=True)
            for key in keys
        }


def _state_keys(name: str, tensors: Iterable[str]) -> list[str]:
    return [tensor.removeprefix(f"{name}:") for tensor in tensors if tensor.startswith(f"{name}:")]
