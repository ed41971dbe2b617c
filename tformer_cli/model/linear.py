"""Matrix products of the model: the plain one, and faster ones for decoding and for training.

A `Linear` computes as torch's own until a `Product` is set on it. The product then does the same
job wherever no gradient is asked for; which one that is, and what it holds, is its own affair:
`packed` keeps float32 in oneDNN's layout, `quantized` computes with integers. Where gradients are
asked for, `Operations` do it, if the model has any.
"""

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.operations import Operations
from tformer_cli.model.repeatable import FEWEST_COLUMNS, WIDTH, by_rows


class Product(Protocol):
    """Multiplies by a fixed (N, K) matrix and adds a fixed bias."""

    def __call__(self, values: Tensor, rows: slice = ..., *, relu: bool = False) -> Tensor:
        """Maps (…, K) to (…, n).

        Args:
            values: (…, K) what is multiplied.
            rows: which n rows of the matrix are used, as `whole_or_part` writes them.
            relu: whether negative results become 0.
        """


ALL_ROWS = slice(None)
"""The whole matrix."""


class Linear(nn.Linear):
    """x·Wᵀ + b like torch's, for all rows of W or some, by a `Product` where one is set."""

    product: Product | None = None
    """Function used while no gradient is needed; None: torch's own."""
    operations: Operations | None = None
    """Operations used where gradients are needed; None: torch's own function."""

    def forward(self, values: Tensor) -> Tensor:
        """Maps (…, K) to (…, N)."""
        return self.part(values)

    def part(self, values: Tensor, rows: slice = ALL_ROWS, *, relu: bool = False) -> Tensor:
        """Maps (…, K) to (…, n), with the n rows of W that are named.

        Args:
            values: (…, K) what is multiplied.
            rows: which rows of W and of the bias.
            relu: whether negative results become 0.
        """
        if self.product is not None and not torch.is_grad_enabled():
            return self.product(values, rows, relu=relu)
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if rows != ALL_ROWS:
            weight, bias = weight[rows], None if bias is None else bias[rows]
        if self.operations is not None and torch.is_grad_enabled():
            result = self.operations.linear(values, weight, bias)
            return functional.relu(result) if relu else result
        if not torch.is_grad_enabled():
            result = repeatable_linear(values, weight, bias)
            return result.relu_() if relu else result
        if not relu:
            return functional.linear(values, weight, bias)
        # No one else needs the sums, so they are replaced; in a matrix, for torch would copy a view
        rows_of_values = values.reshape(-1, values.shape[-1])
        result = functional.linear(rows_of_values, weight, bias).relu_()
        return result.view(*values.shape[:-1], weight.shape[0])

    if TYPE_CHECKING:
        __call__ = forward


def repeatable_linear(values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes values·weightᵀ + bias, (…, K) to (…, N), each row by itself to the last bit."""
    if values.device.type != "cpu":
        return functional.linear(values, weight, bias)
    n_outputs, width = weight.shape
    more_outputs, more_width = max(0, FEWEST_COLUMNS - n_outputs), -width % WIDTH
    if more_outputs or more_width:  # of unusual models only: it costs a copy of the matrix
        values = functional.pad(values, (0, more_width))
        weight = functional.pad(weight, (0, more_width, 0, more_outputs))
        bias = None if bias is None else functional.pad(bias, (0, more_outputs))
    result = by_rows(lambda rows: functional.linear(rows, weight, bias), values)
    return result[..., :n_outputs]
