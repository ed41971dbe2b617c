"""An exponential moving average of the weights, kept beside them while a model is trained.

With θ the weights after step t and d the decay,

    θ̄ ← d_t·θ̄ + (1 - d_t)·θ        d_t = min(d, (1 + t) / (10 + t))

Late in training the weights circle around where they are going; their mean is nearer to it than
any of them (Polyak & Juditsky 1992), and judged at any moment it is what a run with a smaller
learning rate would be (Morales-Brogi et al. 2024). The growing d_t is the rule of TensorFlow's
`ExponentialMovingAverage`: without it the random initial weights would stay in the mean for
1 / (1 - d) steps. It depends on the step alone, so that a resumption needs the averages and
nothing else.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from tformer_cli.model.base import Model


class MovingAverage:
    """A second model whose weights are the average of another one's; float32 like them."""

    def __init__(self, model: Model, decay: float) -> None:
        self._trained = model
        self._decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
        """The model with the averaged weights."""
        self._sources = [parameter.detach() for parameter in model.parameters()]
        self._averages: list[Tensor] = list(self.model.parameters())

    def update(self, step: int) -> None:
        """Takes in the weights after a step, counted from 1. Waits for no device."""
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
