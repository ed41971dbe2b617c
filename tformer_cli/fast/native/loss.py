"""The loss of rows of logits by the kernels."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from tformer_cli.fast.native.numbers import kind_of, succeed
from tformer_cli.fast.native.structs import RowLoss

if TYPE_CHECKING:
    from torch import Tensor


class NativeLoss:
    """The parts of a cross-entropy, and its gradient in place of the logits."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Takes the library's function."""
        self._loss = library.tformer_loss
        self._loss.argtypes = [ctypes.c_void_p]
        self._loss.restype = ctypes.c_bool

    def __call__(
        self, logits: Tensor, targets: Tensor, target_weight: float, *, writes_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """See `Operations.loss`."""
        if not logits.is_contiguous() or targets.shape != logits.shape[:1]:
            raise TypeError("logits must be contiguous rows, each with a target")
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
        succeed(self._loss(ctypes.byref(loss)))
        return normalizer, right
