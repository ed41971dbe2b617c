"""Copies between the host and a device, which the host does not wait for."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor


def copy_to_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copies int64 and bool tensors in one piece; elsewhere than on the CPU all become int64."""
    if device.type == "cpu":
        return list(tensors)
    # The host goes on during a copy from pinned memory; torch keeps the buffer until then
    sizes = [tensor.numel() for tensor in tensors]
    buffer = torch.empty(sum(sizes), dtype=torch.int32, pin_memory=True)
    for part, tensor in zip(torch.split_with_sizes(buffer, sizes), tensors, strict=True):
        part.copy_(tensor.flatten())
    copies = torch.split_with_sizes(buffer.to(device, non_blocking=True).long(), sizes)
    return [part.view(tensor.shape) for part, tensor in zip(copies, tensors, strict=True)]


def copy_numbers(numbers: Sequence[int], device: torch.device) -> Tensor:
    """Copies numbers below 2³¹ to a device: (N) int64."""
    return copy_to_device([torch.tensor(numbers, dtype=torch.int64)], device)[0]


def copy_to_host(
    groups: Sequence[Mapping[str, Tensor]], device: torch.device
) -> tuple[list[dict[str, Tensor]], Callable[[], None] | None]:
    """Copies tensors that will change; returns also a function that waits for the copies."""
    if device.type == "cpu":
        return [{name: t.detach().clone() for name, t in group.items()} for group in groups], None
    copies = [
        {
            name: torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(
                t.detach(), non_blocking=True
            )
            for name, t in group.items()
        }
        for group in groups
    ]
    # What the device does later, it does after these copies, whoever waits for them
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return copies, event.synchronize
