"""Muon: momentum made orthogonal, for the matrices of the layers; AdamW for everything else.

Sources: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et al.
2025, "Muon is scalable for LLM training" (the factor that lets one learning rate serve both kinds
of parameters). How a matrix is made orthogonal is in `orthogonal`.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.training.adam import Adam, ParameterGroup
from tformer_cli.training.orthogonal import orthogonalized

_ADAMW_SIZE = 0.2
"""Root mean square of AdamW's usual update over the learning rate (Liu et al. 2025, 2.2)."""


def layer_matrices(model: nn.Module) -> dict[Tensor, int]:
    """Finds the matrices of a model's layers, and of how many each is stacked.

    Embeddings, output projection, biases and layer norms are not among them: Muon is made for maps
    from hidden to hidden vectors. W_Q, W_K and W_V share a parameter but are three maps.

    Returns:
        For each parameter how many matrices it is made of: equal parts along the rows.
    """
    found: dict[Tensor, int] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and ".layers." in f".{name}" and module.weight.numel():
            found[module.weight] = 1
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and module.in_projection.weight in found:
            found[module.in_projection.weight] = 3
    return found


class Muon(Adam):
    """One optimizer with two rules: Muon for some parameters, AdamW for the others.

    The state of a Muon parameter is one tensor, `momentum`: half of AdamW's. A parameter without a
    gradient is passed over and gets no state. A step uses up the gradients of Muon's parameters,
    which become None.
    """

    def __init__(
        self,
        groups: Iterable[ParameterGroup],
        matrices: dict[Tensor, int],
        *,
        betas: tuple[float, float],
        eps: float,
        momentum: float,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Makes the optimizer.

        Args:
            groups: parameters of both rules and their settings.
            matrices: which of them follow Muon, and the number of matrices stacked in each.
            betas: AdamW's β₁ and β₂.
            eps: AdamW's ε.
            momentum: Muon's μ; Nesterov's form is used.
            dtype: of the products of the iteration.
        """
        super().__init__(groups, betas=betas, eps=eps)
        self._matrices = matrices
        self._momentum = momentum
        self._dtype = dtype

    def _update(self) -> None:
        for group in self.param_groups:
            self._update_matrices(group)
        super()._update()  # passes over what has no gradient any more

    def _update_matrices(self, group: ParameterGroup) -> None:
        """Updates Muon's parameters of a group, all matrices of one shape together."""
        by_shape: defaultdict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter in group.params:
            if parameter in self._matrices and parameter.grad is not None:
                direction = self._direction(parameter, parameter.grad)
                n_parts = self._matrices[parameter]
                parts = zip(parameter.chunk(n_parts), direction.chunk(n_parts), strict=True)
                for part, of_part in parts:
                    by_shape[part.shape].append((part, of_part))
                parameter.grad = None
        rate = group.lr
        for shape, pairs in by_shape.items():
            updates = orthogonalized(
                torch.stack([direction for _, direction in pairs]), self._dtype
            )
            scaled_rate = rate * _ADAMW_SIZE * max(shape) ** 0.5
            for (part, _), update in zip(pairs, updates, strict=True):
                part.mul_(1.0 - rate * group.weight_decay).sub_(update, alpha=scaled_rate)

    def _direction(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        """Adds the gradient to the momentum; returns where Nesterov's form goes."""
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        buffer: Tensor = state["momentum"]
        buffer.mul_(self._momentum).add_(gradient)
        return gradient.add(buffer, alpha=self._momentum)
