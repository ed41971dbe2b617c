"""Muon: momentum made orthogonal, for the matrices of the layers; AdamW for everything else.

Sources: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et al.
2025, "Muon is scalable for LLM training" (the factor that lets one learning rate serve both kinds
of parameters).

Products make a matrix orthogonal (the same singular vectors, all singular values near 1). An
iteration is X ← a·X + b·(X·Xᵀ)·X + c·(X·Xᵀ)²·X, which takes every singular value x to
p(x) = a·x + b·x³ + c·x⁵. The polynomials are those of Amsel et al. 2025, "The Polar Express",
theorem 3.1: with all singular values in [l, u], p is the odd quintic that is nearest to 1 there, in
the largest distance; what it makes lies in [p(l), 2 - p(l)], for which the next one is the best.
Each u is `CUSHION` larger than that: above u a polynomial rises steeply, and bfloat16 rounds up to
there. From [`SMALLEST`, 1] four of them come within 0.182 of 1, nearer than five times the fixed
quintic of Jordan et al. 2024 (0.68 to 1.21), at four fifths of its cost.

The singular values have to start at 1 or below. The usual bound is the Frobenius norm of X,
(Σ σ²)^½. Here it is (Σ σ⁴)^¼ = ‖X·Xᵀ‖^½, never larger and mostly far smaller; X·Xᵀ is needed
anyway.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.operations import Operations
from tformer_cli.model.positions import SegmentTerms
from tformer_cli.trainer.optimizers.adam import Adam, ParameterGroup, cautious

_ADAMW_SIZE = 0.2
"""Root mean square of AdamW's usual update over the learning rate (Liu et al. 2025, 2.2)."""
_ROW_DECAY = 0.95
"""β₂ of NorMuon's running mean squares of rows (Li et al. 2025, section 4)."""
_SMALLEST_ROOT = 1e-10
"""Added to roots of those, so that a row without updates gets none."""


def layer_matrices(model: nn.Module) -> dict[Tensor, int]:
    """Finds the matrices of a model's layers, and of how many each is stacked."""
    # Embeddings, output projection, biases and layer norms are not among them: Muon is made for
    # maps from hidden to hidden vectors. W_Q, W_K and W_V share a parameter but are three maps.
    # Returns for each parameter how many matrices it is made of: equal parts along the rows.
    counts: dict[Tensor, int] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and ".layers." in f".{name}" and module.weight.numel():
            counts[module.weight] = 1
    for module in model.modules():
        if isinstance(module, SegmentTerms):
            counts[module.projection] = 1
        if isinstance(module, MultiHeadAttention) and module.in_projection.weight in counts:
            # heads that share keys have a W_Q of several times as many rows, taken one by one
            counts[module.in_projection.weight] = 2 + module.n_heads // module.n_key_heads
    return counts


class Muon(Adam):
    """One optimizer with two rules: Muon for some parameters, AdamW for the others.

    The state of a Muon parameter is one tensor, `momentum`: half of AdamW's. A parameter without a
    gradient is skipped and gets no state. A step uses up the gradients of Muon's parameters,
    which become None.

    NorMuon (Li et al. 2025, "NorMuon: Making Muon more efficient and scalable") then divides each
    row of an update, a neuron's, by the root of its running mean square, and gives the whole the
    norm that it had: orthogonal matrices still have rows of very different lengths. Its state has
    `row_square` besides, one number a row.
    """

    def __init__(
        self,
        groups: Iterable[ParameterGroup],
        matrices: dict[Tensor, int],
        *,
        betas: tuple[float, float],
        eps: float,
        momentum: float,
        levels_rows: bool = False,
        is_cautious: bool = False,
        dtype: torch.dtype = torch.float32,
        operations: Operations | None = None,
    ) -> None:
        super().__init__(groups, betas=betas, eps=eps, is_cautious=is_cautious)
        self._matrices = matrices
        self._momentum = momentum
        self._levels_rows = levels_rows
        self._dtype = dtype
        self._operations = operations

    def initial_state(self, parameter: Tensor) -> dict[str, Tensor]:
        """Returns the momentum of a matrix of the layers, or AdamW's state of anything else."""
        if parameter not in self._matrices:
            return super().initial_state(parameter)
        return {"momentum": torch.zeros_like(parameter, memory_format=torch.preserve_format)}

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
        """Updates parameters of one shape (R, C) of matrices with their gradients (N, R, C)."""
        counts = [len(gradients) for _, gradients in pairs]
        directions = pairs[0][1].new_empty(sum(counts), *shape)
        for (parameter, gradients), direction in zip(
            pairs, torch.split(directions, counts), strict=True
        ):
            # Nesterov's form: where the momentum goes with the next gradient, taken to be this one
            momentum = self.state[parameter]["momentum"].view(gradients.shape)
            torch.add(gradients, momentum, alpha=self._momentum, out=direction)
        updates = torch.split(
            orthogonalize_matrices(directions, self._dtype, self._operations), counts
        )
        scaled_rate = group.lr * _ADAMW_SIZE * max(shape) ** 0.5
        for (parameter, _), update in zip(pairs, updates, strict=True):
            direction = self._level_rows(parameter, update) if self._levels_rows else update
            flat = direction.flatten(0, 1)
            if self._is_cautious:
                decay = group.lr * group.weight_decay
                parameter.sub_(cautious(parameter, flat), alpha=decay)
            elif group.weight_decay:
                parameter.mul_(1.0 - group.lr * group.weight_decay)
            parameter.sub_(flat, alpha=scaled_rate)

    def _level_rows(self, parameter: Tensor, update: Tensor) -> Tensor:
        """Divides rows of updates (N, R, C) by their usual size; the norms of matrices stay."""
        state, square = self.state[parameter], update.square().mean(dim=2)
        if "row_square" not in state:
            state["row_square"] = torch.zeros_like(square)
        state["row_square"].lerp_(square, 1.0 - _ROW_DECAY)
        rows = update / (state["row_square"].sqrt() + _SMALLEST_ROOT).unsqueeze(2)
        norms = [torch.linalg.matrix_norm(matrix, keepdim=True) for matrix in (update, rows)]
        # A matrix without updates has none to divide by
        leveled: Tensor = rows * (norms[0] / norms[1].clamp(min=_SMALLEST_NORM))
        return leveled

    def _add_to_momentum(self, parameter: Tensor, gradient: Tensor) -> None:
        """Updates a parameter's momentum m to μ·m + g, in one pass."""
        if not self.state[parameter]:
            self.state[parameter] = self.initial_state(parameter)
        momentum = self.state[parameter]["momentum"]
        torch.add(gradient, momentum, alpha=self._momentum, out=momentum)


SMALLEST = 0.0035
"""l of the first polynomial; smaller singular values grow up to 261-fold. In the momentum of a
translation model one in twenty was smaller."""
CUSHION = 1.03
"""Room for rounding above the largest singular value that an iteration should leave."""
COEFFICIENTS = (
    (8.36227483, -24.68142697, 18.28988524),
    (3.90173280, -2.74244742, 0.49049247),
    (3.35483532, -2.37812143, 0.45323389),
    (2.39064350, -1.67383684, 0.38395946),
)
"""a, b, c of each iteration."""
WIDE = 1.5
"""Columns a row from which on it is less work to multiply the polynomials first, as (R, R)
matrices, and X only once: 4·R²·C + 26·R³ operations instead of 16·R²·C + 8·R³."""
_SMALLEST_NORM = 1e-14


def orthogonalize_matrices(
    matrices: Tensor, dtype: torch.dtype = torch.float32, operations: Operations | None = None
) -> Tensor:
    """Brings the singular values of matrices (N, R, C) near 1 and keeps their singular vectors.

    bfloat16 is enough for the products (Jordan et al. 2024); a matrix of zeros stays one.
    """
    if operations is not None and matrices.dtype == dtype == torch.float32:
        return operations.orthogonalize(matrices, COEFFICIENTS, CUSHION, _SMALLEST_NORM)
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.to(dtype)
    if is_tall:  # the product X·Xᵀ is the smaller one
        x = x.mT
    gram = torch.bmm(x, x.mT)
    bound = CUSHION * gram.float().norm(dim=(1, 2), keepdim=True).clamp(min=_SMALLEST_NORM)
    gram, scale = gram / bound.to(dtype), bound.sqrt().to(dtype)
    # Squares of singular values need the precision that bfloat16 does not have.
    is_wide = x.shape[2] >= WIDE * x.shape[1] and dtype != torch.bfloat16
    x = torch.bmm(_product(gram) / scale, x) if is_wide else _apply_steps(gram, x / scale)
    return (x.mT if is_tall else x).to(matrices.dtype)


def _apply_steps(gram: Tensor, x: Tensor) -> Tensor:
    """Applies one polynomial after the other to X (N, R, C), given X·Xᵀ (N, R, R)."""
    for place, (a, b, c) in enumerate(COEFFICIENTS):
        if place:
            gram = torch.bmm(x, x.mT)
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x


def _product(gram: Tensor) -> Tensor:
    """Multiplies the polynomials' matrices, Q = P₄·P₃·P₂·P₁ with P = a·I + b·G + c·G².

    The next G (N, R, R) is P·G·P; all of these matrices commute.
    """
    polynomial = product = _polynomial(gram, COEFFICIENTS[0])
    for coefficients in COEFFICIENTS[1:]:
        gram = torch.bmm(torch.bmm(polynomial, gram), polynomial)
        polynomial = _polynomial(gram, coefficients)
        product = torch.bmm(polynomial, product)
    return product


def _polynomial(gram: Tensor, coefficients: tuple[float, float, float]) -> Tensor:
    """Computes a·I + b·G + c·G² of (N, R, R) matrices G."""
    a, b, c = coefficients
    result = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
    result.diagonal(dim1=1, dim2=2).add_(a)
    return result
