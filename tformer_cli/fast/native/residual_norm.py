"""Dropout, the residual sum and layer norm after a sub-layer, in one pass each way."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from tformer_cli.fast.native.dropout import MOST_VALUES, drawn_seed, scale_of, threshold_of
from tformer_cli.fast.native.numbers import KINDS, kind_of, succeed
from tformer_cli.fast.native.structs import ResidualNorm

if TYPE_CHECKING:
    from torch import Tensor, nn

_RUN = 32
"""`DRAWN` of random.h."""


class NativeResidualNorm:
    """hidden + dropout(values) and its layer norm; the mask is a function of a seed."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Takes the library's functions."""
        self._forward = library.tformer_residual_norm
        self._forward.argtypes = [ctypes.c_void_p]
        self._forward.restype = None
        self._backward = library.tformer_residual_norm_backward
        self._backward.argtypes = [ctypes.c_void_p]
        self._backward.restype = ctypes.c_bool

    def __call__(
        self, hidden: Tensor, values: Tensor, rate: float, norm: nn.LayerNorm, *, rounds: bool
    ) -> tuple[Tensor, Tensor]:
        """See `Operations.add_dropout_norm`; the seed is drawn from torch's generator."""
        if not (
            values.shape == hidden.shape
            and norm.weight.shape == hidden.shape[-1:]
            and hidden.dtype == norm.weight.dtype == torch.float32
        ):
            raise TypeError(
                f"what is added and normed must be float32 of one shape, not {hidden.dtype}"
            )
        if hidden.numel() // hidden.shape[-1] * (hidden.shape[-1] + _RUN) > MOST_VALUES:
            raise ValueError("a tensor has more values than dropout has random numbers")
        is_rounded = rounds and torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if is_rounded else torch.float32
        summed, normed = _ResidualNormFunction.apply(  # type: ignore[no-untyped-call]
            self, hidden, values, norm.weight, norm.bias, rate, norm.eps, dtype
        )
        return summed, normed

    def forward(self, job: ResidualNorm) -> None:
        """Runs the forward pass."""
        self._forward(ctypes.byref(job))

    def backward(self, job: ResidualNorm) -> None:
        """Runs the backward pass."""
        succeed(self._backward(ctypes.byref(job)))


# Profiles show the name, and know by it what the time was spent on
class _ResidualNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # what torch hands over has no public type
        native: NativeResidualNorm,
        hidden: Tensor,
        values: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rate: float,
        epsilon: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        hidden, values = hidden.contiguous(), values.contiguous()
        width = hidden.shape[-1]
        summed = torch.empty_like(hidden)
        normed = torch.empty(hidden.shape, dtype=dtype, device="cpu")
        statistics = torch.empty(hidden.numel() // width, 2, dtype=torch.float32, device="cpu")
        threshold = threshold_of(rate)
        job = ResidualNorm(
            n_rows=len(statistics),
            width=width,
            residual=hidden.data_ptr(),
            values=values.data_ptr(),
            values_kind=kind_of(values),
            result_kind=KINDS[dtype],
            seed=drawn_seed() if threshold else (0, 0),
            threshold=threshold,
            scale=scale_of(threshold),
            weight=weight.data_ptr(),
            bias=None if bias is None else bias.data_ptr(),
            epsilon=epsilon,
            sum=summed.data_ptr(),
            statistics=statistics.data_ptr(),
            result=normed.data_ptr(),
            n_threads=torch.get_num_threads(),
        )
        native.forward(job)
        ctx.native, ctx.job, ctx.dtypes = native, job, (values.dtype, dtype)
        ctx.save_for_backward(summed, statistics, weight, bias)
        ctx.set_materialize_grads(False)
        return summed, normed

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        sum_gradient: Tensor | None,
        gradient: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        summed, statistics, weight, bias = ctx.saved_tensors
        values_dtype, result_dtype = ctx.dtypes
        if gradient is None:
            gradient = torch.zeros(summed.shape, dtype=result_dtype, device="cpu")
        gradient = gradient.contiguous()
        if sum_gradient is not None:
            sum_gradient = sum_gradient.contiguous()
        residual_gradient = torch.empty_like(summed)
        values_gradient = torch.empty(summed.shape, dtype=values_dtype, device="cpu")
        weight_gradient = torch.empty_like(weight)
        bias_gradient = None if bias is None else torch.empty_like(bias)
        job: ResidualNorm = ctx.job
        job.sum, job.statistics = summed.data_ptr(), statistics.data_ptr()
        job.weight, job.result = weight.data_ptr(), gradient.data_ptr()
        job.sum_gradient = None if sum_gradient is None else sum_gradient.data_ptr()
        job.residual_gradient = residual_gradient.data_ptr()
        job.values_gradient = values_gradient.data_ptr()
        job.weight_gradient = weight_gradient.data_ptr()
        job.bias_gradient = None if bias_gradient is None else bias_gradient.data_ptr()
        job.n_threads = torch.get_num_threads()
        ctx.native.backward(job)
        return (
            None,
            residual_gradient,
            values_gradient,
            weight_gradient,
            bias_gradient,
            None,
            None,
            None,
        )
