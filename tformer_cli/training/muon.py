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
from tformer_cli.model.operations import Operations
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
    gradient is skipped and gets no state. A step uses up the gradients of Muon's parameters,
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
        operations: Operations | None = None,
    ) -> None:
        """Makes the optimizer.

        Args:
            groups: parameters of both rules and their settings.
            matrices: which of them follow Muon, and the number of matrices stacked in each.
            betas: AdamW's β₁ and β₂.
            eps: AdamW's ε.
            momentum: Muon's μ; Nesterov's form is used.
            dtype: of the products of the iteration.
            operations: what makes them in float32 instead of torch, if anything does.
        """
        super().__init__(groups, betas=betas, eps=eps)
        self._matrices = matrices
        self._momentum = momentum
        self._dtype = dtype
        self._operations = operations

    def _update(self) -> None:
        for group in self.param_groups:
            self._update_matrices(group)
        super()._update()  # passes over what has no gradient any more

    def _update_matrices(self, group: ParameterGroup) -> None:
        """Updates Muon's parameters of a group, all matrices of one shape together."""
        by_shape: defaultdict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter in group.params:
            if parameter in self._matrices and parameter.grad is not None:
                n_parts, width = self._matrices[parameter], parameter.shape[1]
                gradients = parameter.grad.reshape(n_parts, -1, width)
                self._add_to_momentum(parameter, parameter.grad)
                by_shape[gradients.shape[1:]].append((parameter, gradients))
                parameter.grad = None
        for shape, pairs in by_shape.items():
            self._update_shape(group, shape, pairs)

    def _update_shape(
        self, group: ParameterGroup, shape: torch.Size, pairs: list[tuple[Tensor, Tensor]]
    ) -> None:
        """Updates parameters whose matrices have one shape.

        Args:
            group: their settings.
            shape: (R, C) of a matrix.
            pairs: parameters with the gradients of their matrices, (N, R, C) each.
        """
        counts = [len(gradients) for _, gradients in pairs]
        directions = pairs[0][1].new_empty(sum(counts), *shape)
        for (parameter, gradients), direction in zip(
            pairs, torch.split(directions, counts), strict=True
        ):
            # Nesterov's form: where the momentum goes with the next gradient, taken to be this one
            momentum = self.state[parameter]["momentum"].view(gradients.shape)
            torch.add(gradients, momentum, alpha=self._momentum, out=direction)
        updates = torch.split(orthogonalized(directions, self._dtype, self._operations), counts)
        scaled_rate = group.lr * _ADAMW_SIZE * max(shape) ** 0.5
        for (parameter, _), update in zip(pairs, updates, strict=True):
            if group.weight_decay:
                parameter.mul_(1.0 - group.lr * group.weight_decay)
            parameter.sub_(update.flatten(0, 1), alpha=scaled_rate)

    def _add_to_momentum(self, parameter: Tensor, gradient: Tensor) -> None:
        """Makes the momentum m of a parameter μ·m + g, in one pass."""
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        momentum: Tensor = state["momentum"]
        torch.add(gradient, momentum, alpha=self._momentum, out=momentum)
