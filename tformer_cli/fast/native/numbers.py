"""Requirements of the training kernels on their tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

KINDS = {torch.float32: 0, torch.bfloat16: 1}
"""The enum `NumberKind` of number.h."""


def kind_of(tensor: Tensor) -> int:
    """Tells a tensor's numbers as number.h does."""
    if tensor.dtype not in KINDS or tensor.device.type != "cpu":
        where = f"{tensor.dtype} on {tensor.device.type}"
        raise TypeError(f"tensors must be float32 or bfloat16 on the CPU, not {where}")
    return KINDS[tensor.dtype]


def succeed(has_succeeded: bool) -> None:
    """Raises MemoryError if a kernel says that it has not succeeded."""
    if not has_succeeded:
        raise MemoryError("there is not enough memory for a part of the training step")
