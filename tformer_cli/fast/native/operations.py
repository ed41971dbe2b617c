"""Operations of training by the kernels, with gradients: dropout, residual norm, loss, Muon's."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from tformer_cli.fast.native.structs import Dropout, Orthogonalization, ResidualNorm, RowLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn


KINDS = {torch.float32: 0, torch.bfloat16: 1}
"""The enum `NumberKind` of number.h."""


def kind_of(tensor: Tensor) -> int:
    """Tells a tensor's numbers as number.h does."""
    if tensor.dtype not in KINDS or tensor.device.type != "cpu":
        where = f"{tensor.dtype} on {tensor.device.type}"
        raise TypeError(f"tensors must be float32 or bfloat16 on the CPU, not {where}")
    return KINDS[tensor.dtype]


def kernel_of(library: ctypes.CDLL, name: str) -> Callable[[ctypes.Structure], None]:
    """Gives a function of the library that takes one struct and needs memory."""
    function = library[name]
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_bool

    def run(job: ctypes.Structure) -> None:
        if not function(ctypes.byref(job)):
            raise MemoryError("there is not enough memory for a part of the training step")

    return run


# The loss of rows of logits by the kernels.


class NativeLoss:
    """The parts of a cross-entropy, and its gradient in place of the logits."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._loss = kernel_of(library, "tformer_loss")

    def __call__(
        self, logits: Tensor, targets: Tensor, target_weight: float, *, writes_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """See `Operations.loss`."""
        if not logits.is_contiguous() or targets.shape != logits.shape[:1]:
            raise TypeError("logits must be contiguous rows, each with a target")
        # With a larger one the kernel would read behind the row
        if len(targets) and int(targets.max()) >= logits.shape[1]:
            raise IndexError(f"targets must be less than {logits.shape[1]}")
        targets = targets.contiguous()
        sums = torch.empty(2, len(targets), dtype=torch.float32, device="cpu")
        normalizer, right = sums.unbind()
        loss = RowLoss(
            n_rows=len(targets),
            vocab_size=logits.shape[1],
            logits=logits.data_ptr(),
            kind=kind_of(logits),
            writes_gradient=writes_gradient,
            targets=targets.data_ptr(),
            target_weight=target_weight,
            normalizer=normalizer.data_ptr(),
            right=right.data_ptr(),
            n_threads=torch.get_num_threads(),
        )
        self._loss(loss)
        return normalizer, right


# Matrices made orthogonal by the kernels, for Muon.


class NativeOrthogonal:
    """Odd polynomials of all singular values of matrices, one after the other."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._orthogonalize = kernel_of(library, "tformer_orthogonalize")

    def __call__(
        self,
        matrices: Tensor,
        coefficients: Sequence[tuple[float, float, float]],
        cushion: float,
        smallest_norm: float,
    ) -> Tensor:
        """See `Operations.orthogonalize`."""
        if matrices.dtype != torch.float32 or matrices.device.type != "cpu" or matrices.dim() != 3:
            where = f"{matrices.dtype} on {matrices.device.type}"
            raise TypeError(f"matrices must be (N, R, C) in float32 on the CPU, not {where}")
        matrices = matrices.contiguous()
        result = torch.empty_like(matrices)
        if not result.numel():
            return result
        polynomials = torch.tensor(coefficients, dtype=torch.float32, device="cpu")
        n_matrices, n_rows, n_columns = matrices.shape
        orthogonalization = Orthogonalization(
            n_matrices=n_matrices,
            n_rows=n_rows,
            n_columns=n_columns,
            matrices=matrices.data_ptr(),
            result=result.data_ptr(),
            coefficients=polynomials.data_ptr(),
            n_iterations=len(polynomials),
            cushion=cushion,
            smallest_norm=smallest_norm,
            n_threads=torch.get_num_threads(),
        )
        self._orthogonalize(orthogonalization)
        return result


# Dropout by the kernels, with its gradient.

_LEVELS = 1 << 16
MOST_VALUES = 1 << 33
"""Most values of a tensor with independent random bits: 2³² counters for two each."""


class NativeDropout:
    """Dropout whose mask is a function of a seed, and computed again for the gradient."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._dropout = library.tformer_dropout
        self._dropout.argtypes = [ctypes.c_void_p]
        self._dropout.restype = None

    def __call__(self, values: Tensor, residual: Tensor | None, rate: float) -> Tensor:
        """Computes residual + dropout(values); the seed is drawn from torch's generator."""
        result: Tensor = _DropoutFunction.apply(self, values, residual, rate)  # type: ignore[no-untyped-call]
        return result

    def mask_values(
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
        # Counters would repeat, and with them the mask
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
    # By the rounded rate, so that the expected value is kept exactly
    return _LEVELS / (_LEVELS - threshold) if threshold < _LEVELS else 0.0


# Profiles show this name for the time spent here
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
        return dropout.mask_values(values, residual, rate, ctx.seed, dtype)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
    ) -> tuple[None, Tensor, Tensor | None, None]:
        # The seed gives the same mask again, so none is kept in memory
        dropped = ctx.dropout.mask_values(gradient, None, ctx.rate, ctx.seed, ctx.dtype)
        return None, dropped, gradient if ctx.needs_input_grad[2] else None, None


# Dropout, the residual sum and layer norm after a sub-layer, in one pass each way.

_RUN = 32
"""`DRAWN` of random.h."""


class NativeResidualNorm:
    """hidden + dropout(values) and its layer norm; the mask is a function of a seed."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._forward = library.tformer_residual_norm
        self._forward.argtypes = [ctypes.c_void_p]
        self._forward.restype = None
        self._backward = kernel_of(library, "tformer_residual_norm_backward")

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
        # A product that follows would round it anyway
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
        self._backward(job)


# Profiles show this name for the time spent here
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
            # Without dropout nothing is drawn, so the run's random state stays as it is
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
        # A gradient that is not there costs no pass over zeros
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
