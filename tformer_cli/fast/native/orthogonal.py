"""Matrices made orthogonal by the kernels, for Muon."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from tformer_cli.fast.native.numbers import succeed
from tformer_cli.fast.native.structs import Orthogonalization

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class NativeOrthogonal:
    """Odd polynomials of all singular values of matrices, one after the other."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Takes the library's function."""
        self._orthogonalize = library.tformer_orthogonalize
        self._orthogonalize.argtypes = [ctypes.c_void_p]
        self._orthogonalize.restype = ctypes.c_bool

    def __call__(
        self,
        matrices: Tensor,
        coefficients: Sequence[tuple[float, float, float]],
        cushion: float,
        smallest_norm: float,
    ) -> Tensor:
        """See `Operations.orthogonalized`."""
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
        succeed(self._orthogonalize(ctypes.byref(orthogonalization)))
        return result
