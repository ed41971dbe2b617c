"""Matrix products of the layers in training, with their gradients.

The products are torch's. What lies between them costs torch a pass over the whole tensor each: a
bias copied to every row before a product is added to it, max(0, ·) and its gradient, and the sums
that are a bias's gradient. Here oneDNN adds the bias while it writes the product, and one kernel
does what the gradient needs. Between the two products of a feed-forward layer the gradient lies in
memory that is used again for each layer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tformer_cli.fast.native.operations import kernel_of, kind_of
from tformer_cli.fast.native.structs import BiasGradient

if TYPE_CHECKING:
    import ctypes

    from torch import Tensor


class NativeLinear:
    """x·Wᵀ + b, and two of them with max(0, ·) between: FFN(x) = max(0, x·W₁ + b₁)·W₂ + b₂.

    Under autocast the products are computed in its precision, as `functional.linear` would; the
    gradients of biases are summed in float32.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        """Takes the library's function."""
        self._bias_gradient = kernel_of(library, "tformer_bias_gradient")
        self._scratch: dict[torch.dtype, Tensor] = {}

    def linear(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See `Operations.linear`."""
        result: Tensor = _LinearFunction.apply(self, values, weight, bias)  # type: ignore[no-untyped-call]
        return result

    def feed_forward(
        self,
        values: Tensor,
        inner: tuple[Tensor, Tensor | None],
        outer: tuple[Tensor, Tensor | None],
    ) -> Tensor:
        """See `Operations.feed_forward`."""
        result: Tensor = _FeedForwardFunction.apply(self, values, *inner, *outer)  # type: ignore[no-untyped-call]
        return result

    def bias_gradient(self, gradient: Tensor, result: Tensor | None, *, has_bias: bool) -> Tensor:
        """Zeroes a gradient where max(0, ·) gave 0; sums its columns: (N), empty if not wanted."""
        # The kernel steps through memory by these shapes, and would leave it
        if not gradient.is_contiguous() or gradient.dim() != 2:
            raise TypeError("a gradient must be contiguous rows")
        if result is not None and not (
            result.shape == gradient.shape
            and result.dtype == gradient.dtype
            and result.is_contiguous()
        ):
            raise TypeError("a gradient must have the shape and type of its result")
        n_rows, n_columns = gradient.shape
        sums = torch.empty(n_columns if has_bias else 0, dtype=torch.float32, device="cpu")
        job = BiasGradient(
            n_rows=n_rows,
            n_columns=n_columns,
            gradient=gradient.data_ptr(),
            result=None if result is None else result.data_ptr(),
            kind=kind_of(gradient),
            bias_gradient=sums.data_ptr() if has_bias else None,
            n_threads=torch.get_num_threads(),
        )
        self._bias_gradient(job)
        return sums

    def scratch(self, n_rows: int, n_columns: int, dtype: torch.dtype) -> Tensor:
        """Returns (n_rows, n_columns) numbers that hold until the next call."""
        n_values = n_rows * n_columns
        held = self._scratch.get(dtype)
        # Only the largest so far is kept: smaller layers use its beginning
        if held is None or len(held) < n_values:
            held = self._scratch[dtype] = torch.empty(n_values, dtype=dtype, device="cpu")
        return held[:n_values].view(n_rows, n_columns)


# Profiles show these names for the time spent here
class _LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # what torch hands over has no public type
        operations: NativeLinear,
        values: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        dtype = _dtype_of_products(values)
        rows = _rows(values, dtype)
        # Saved after rounding, so that the gradient belongs to the computed values
        low_weight = weight.to(dtype)
        result = _product(rows, low_weight, bias)
        ctx.save_for_backward(rows, low_weight)
        ctx.operations, ctx.dtype = operations, values.dtype
        return result.view(*values.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
    ) -> tuple[None, Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        of_values, of_weight, of_bias = ctx.needs_input_grad[1:]
        row_gradient = _rows(gradient, rows.dtype)
        bias_gradient = None
        if of_bias:
            bias_gradient = ctx.operations.bias_gradient(row_gradient, None, has_bias=True)
        return (
            None,
            _of_values(row_gradient, weight, gradient.shape, ctx.dtype) if of_values else None,
            _of_weight(row_gradient, rows) if of_weight else None,
            bias_gradient,
        )


class _FeedForwardFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        operations: NativeLinear,
        values: Tensor,
        inner_weight: Tensor,
        inner_bias: Tensor | None,
        outer_weight: Tensor,
        outer_bias: Tensor | None,
    ) -> Tensor:
        dtype = _dtype_of_products(values)
        rows = _rows(values, dtype)
        inner, outer = inner_weight.to(dtype), outer_weight.to(dtype)
        hidden = _product(rows, inner, inner_bias, relu=True)
        result = _product(hidden, outer, outer_bias)
        ctx.save_for_backward(rows, hidden, inner, outer)
        ctx.operations, ctx.dtype = operations, values.dtype
        return result.view(*values.shape[:-1], len(outer))

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
    ) -> tuple[Tensor | None, ...]:
        rows, hidden, inner, outer = ctx.saved_tensors
        operations: NativeLinear = ctx.operations
        of_values, of_inner, of_inner_bias, of_outer, of_outer_bias = ctx.needs_input_grad[1:]
        row_gradient = _rows(gradient, rows.dtype)
        outer_bias_gradient = None
        if of_outer_bias:
            outer_bias_gradient = operations.bias_gradient(row_gradient, None, has_bias=True)
        outer_gradient = _of_weight(row_gradient, hidden) if of_outer else None
        # Memory that each layer uses again, since it is done with at the end of this call
        hidden_gradient = operations.scratch(len(hidden), hidden.shape[1], hidden.dtype)
        torch.mm(row_gradient, outer, out=hidden_gradient)
        # Also without a bias: the call zeroes the gradient where the result was 0
        inner_bias_gradient = operations.bias_gradient(
            hidden_gradient, hidden, has_bias=of_inner_bias
        )
        return (
            None,
            _of_values(hidden_gradient, inner, gradient.shape, ctx.dtype) if of_values else None,
            _of_weight(hidden_gradient, rows) if of_inner else None,
            inner_bias_gradient if of_inner_bias else None,
            outer_gradient,
            outer_bias_gradient,
        )


def _dtype_of_products(values: Tensor) -> torch.dtype:
    is_autocast = torch.is_autocast_enabled("cpu")
    return torch.get_autocast_dtype("cpu") if is_autocast else values.dtype


def _rows(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Turns (…, K) into (n, K) of a type."""
    return values.flatten(0, -2).to(dtype).contiguous()


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """Computes rows·weightᵀ + bias of (n, K), (N, K) and (N), as numbers of the rows' type."""
    low_bias = None if bias is None else bias.to(rows.dtype)
    if rows.dtype == torch.bfloat16 and weight.numel() and len(rows) and _has_fused_product():
        post = "relu" if relu else "none"
        result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, low_bias, post, [], "")
        return result
    result = functional.linear(rows, weight, low_bias)
    return result.relu_() if relu else result


def _of_values(gradient: Tensor, weight: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Computes the gradient of the input, (n, N)·(N, K) to (…, K)."""
    return torch.mm(gradient, weight).to(dtype).view(*shape[:-1], weight.shape[1])


def _of_weight(gradient: Tensor, rows: Tensor) -> Tensor:
    """Computes the gradient of the matrix, (n, N)ᵀ·(n, K) to (N, K), float32."""
    # Weights are float32, and so must their gradients be
    return torch.mm(gradient.t(), rows).float()


@functools.cache
def _has_fused_product() -> bool:
    """Returns whether oneDNN adds biases to bfloat16 products here, and as torch does: measured."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    generator = torch.Generator().manual_seed(1)
    rows, weight, bias = (
        torch.randn(shape, generator=generator).bfloat16() for shape in ((64, 96), (80, 96), (80,))
    )
    try:
        product = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "relu", [], "")
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    expected = functional.linear(rows.double(), weight.double(), bias.double()).relu()
    # bfloat16 has 8 bits, so an exact comparison would fail
    error = (product.double() - expected).abs().max() / expected.max()
    return bool(product.dtype == torch.bfloat16 and error < 0.01)
