"""The optimizer of a model, its state as named tensors, and the moving average of the weights."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.optimizers.adam import Adam, ParameterGroup
from tformer_cli.trainer.optimizers.muon import Muon, layer_matrices


def make_optimizer(model: Model, config: TrainingConfig, precision: Precision = "float32") -> Adam:
    # Weight decay falls only on matrices: shrinking biases and layer norms has no sense of
    # regularising. Without weight decay, AdamW is Adam.
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [
        ParameterGroup(params=decayed, lr=config.learning_rate, weight_decay=config.weight_decay),
        ParameterGroup(params=others, lr=config.learning_rate),
    ]
    if config.optimizer in ("muon", "normuon"):
        return Muon(
            groups,
            layer_matrices(model),
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            momentum=config.momentum,
            levels_rows=config.optimizer == "normuon",
            is_cautious=config.cautious_decay,
            dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32,
            operations=model.operations,
        )
    return Adam(
        groups,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        is_cautious=config.cautious_decay,
    )


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


class MovingAverage:
    """A second model whose weights average another one's, in float32."""

    def __init__(self, model: Model, decay: float) -> None:
        self._trained = model
        self._decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
        """The model with the averaged weights."""
        self._sources = [parameter.detach() for parameter in model.parameters()]
        self._averages: list[Tensor] = list(self.model.parameters())

    def update(self, step: int) -> None:
        """Adds the weights after a step, counted from 1. Waits for no device."""
        torch._foreach_lerp_(self._averages, self._sources, 1.0 - decay_at(self._decay, step))

    def restart(self) -> None:
        self.model.load_state_dict(self._trained.state_dict())

    def tensors(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(tensors)


def decay_at(decay: float, step: int) -> float:
    """Computes d_t, the share of the average that a step leaves as it is."""
    return min(decay, (1 + step) / (10 + step))
