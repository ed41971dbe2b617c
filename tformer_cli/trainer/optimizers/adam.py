"""Adam and AdamW over torch's own fused update, without torch's optimizer classes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.profiler import record_function

# Why not torch.optim.Adam: making one imports torch's compiler, which takes as long as importing
# torch itself, at the start of every training. What it adds (closures, hooks, ways to compute that
# are not fused, state as a pickle) has no use here; the update is the same function, bit for bit.


@dataclass(kw_only=True)
class ParameterGroup:
    """Parameters that share their settings."""

    params: Sequence[Tensor]
    lr: float
    weight_decay: float = 0.0
    """Share of the learning rate by which a weight shrinks in a step."""


class Adam:
    """Adam (Kingma and Ba 2015), with the decoupled weight decay of Loshchilov and Hutter 2019.

    With m and v the running means of the gradient g and of g², of step t:
    w ← w − lr·decay·w − lr·m̂ / (√v̂ + ε), where m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ).
    Cautious decay falls only where m̂ and w have the same sign (Chen et al. 2025, "Cautious Weight
    Decay"): elsewhere the gradient wants the weight larger, and the two would work against each
    other.

    All parameters are updated in one pass of `torch.optim.adam.adam`. A parameter without a
    gradient is skipped and gets no state.
    """

    def __init__(
        self,
        groups: Iterable[ParameterGroup],
        *,
        betas: tuple[float, float],
        eps: float,
        is_cautious: bool = False,
    ) -> None:
        self.param_groups = list(groups)
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)
        """For each parameter `step`, and m and v of its shape as `exp_avg` and `exp_avg_sq`."""
        self._betas = betas
        self._eps = eps
        self._is_cautious = is_cautious

    def initial_state(self, parameter: Tensor) -> dict[str, Tensor]:
        """Returns the state of a parameter before its first update: zeros."""
        return {
            # On the device, where the fused update can count it
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        }

    def step(self) -> None:
        with torch.no_grad(), record_function("Optimizer.step"):  # the name in torch's profiles
            self._update()

    def zero_grad(self) -> None:
        for parameter in chain.from_iterable(group.params for group in self.param_groups):
            parameter.grad = None

    def _update(self) -> None:
        for group in self.param_groups:
            self._update_group(group)

    def _update_group(self, group: ParameterGroup) -> None:
        pairs = [(p, p.grad) for p in group.params if p.grad is not None]
        if not pairs:
            return
        for parameter, _ in pairs:
            if not self.state[parameter]:
                self.state[parameter] = self.initial_state(parameter)
        states = [self.state[parameter] for parameter, _ in pairs]
        is_cautious = self._is_cautious and group.weight_decay > 0.0
        if is_cautious:
            # torch's pass decays everything or nothing. The sign of what it will subtract is that
            # of m: the difference of weights would be 0 where an update is lost in rounding
            for (parameter, gradient), state in zip(pairs, states, strict=True):
                mean = state["exp_avg"].lerp(gradient, 1.0 - self._betas[0])
                parameter.sub_(cautious(parameter, mean), alpha=group.lr * group.weight_decay)
        adam(
            [parameter for parameter, _ in pairs],
            [gradient for _, gradient in pairs],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            maximize=False,
            decoupled_weight_decay=True,
            beta1=self._betas[0],
            beta2=self._betas[1],
            lr=group.lr,
            weight_decay=0.0 if is_cautious else group.weight_decay,
            eps=self._eps,
        )


def cautious(weight: Tensor, update: Tensor) -> Tensor:
    """Returns the weights that a subtracted update brings nearer to 0, and zeros elsewhere."""
    return weight * (weight * update >= 0.0)
