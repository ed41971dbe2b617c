"""Dropout by the kernels, with its gradient."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from tformer_cli.fast.native.numbers import KINDS, kind_of
from tformer_cli.fast.native.structs import Dropout

if TYPE_CHECKING:
    from torch import Tensor

_LEVELS = 1 << 16
MOST_VALUES = 1 << 33
"""Values of a tensor that have random bits of their own: 2³² counters for two each."""


class NativeDropout:
    """Dropout whose mask is a function of a seed, and computed again for the gradient."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Takes the library's function."""
        self._dropout = library.tformer_dropout
        self._dropout.argtypes = [ctypes.c_void_p]
        self._dropout.restype = None

    def __call__(self, values: Tensor, residual: Tensor | None, rate: float) -> Tensor:
        """Computes residual + dropout(values); the seed is drawn from torch's generator."""
        result: Tensor = _DropoutFunction.apply(self, values, residual, rate)  # type: ignore[no-untyped-call]
        return result

    def masked(
        self,
        values: Tensor,
        residual: Tensor | None,
        rate: float,
        seed: tuple[int, int],
        dtype: torch.dtype,
    ) -> Tensor:
        """Computes the same with the mask of a seed, as numbers of a type, without gradients."""
        if residual is not None and not (
            residual.shape == values.shape and residual.dtype == dtype == torch.float32
        ):
            raise TypeError(
                f"what is added must be float32 of the same shape, not {residual.dtype}"
            )
        if values.numel() > MOST_VALUES:
            raise ValueError("a tensor has more values than dropout has random numbers")
        values = values.contiguous()
        residual = None if residual is None else residual.contiguous()
        result = torch.empty(values.shape, dtype=dtype, device="cpu")
        threshold = threshold_of(rate)
        dropout = Dropout(
            n_values=values.numel(),
            values=values.data_ptr(),
            residual=None if residual is None else residual.data_ptr(),
            result=result.data_ptr(),
            values_kind=kind_of(values),
            result_kind=KINDS[dtype],
            seed=seed,
            threshold=threshold,
            scale=scale_of(threshold),
            n_threads=torch.get_num_threads(),
        )
        self._dropout(ctypes.byref(dropout))
        return result


def drawn_seed() -> tuple[int, int]:
    """Draws a mask's seed from torch's generator: the run's random state is the generator's."""
    first, second = torch.randint(0, 1 << 32, (2,), device="cpu").tolist()
    return first, second


def threshold_of(rate: float) -> int:
    """Turns the chance of dropping a value into the number that its 16 bits must reach to stay."""
    return round(rate * _LEVELS)


def scale_of(threshold: int) -> float:
    """Returns what values that stay are multiplied by."""
    return _LEVELS / (_LEVELS - threshold) if threshold < _LEVELS else 0.0


# Profiles show the name, and know by it what the time was spent on
class _DropoutFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # what torch hands over has no public type
        dropout: NativeDropout,
        values: Tensor,
        residual: Tensor | None,
        rate: float,
    ) -> Tensor:
        ctx.dropout, ctx.rate, ctx.seed = dropout, rate, drawn_seed()
        ctx.dtype = values.dtype
        dtype = values.dtype if residual is None else residual.dtype
        return dropout.masked(values, residual, rate, ctx.seed, dtype)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
    ) -> tuple[None, Tensor, Tensor | None, None]:
        dropped = ctx.dropout.masked(gradient, None, ctx.rate, ctx.seed, ctx.dtype)
        return None, dropped, gradient if ctx.needs_input_grad[2] else None, None
