"""Copies from a device to the host, which the host waits for as late as it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.search.engine import DecodingModel


class Fetch:
    """A tensor on its way to the host, which works on until it needs the numbers."""

    def __init__(self, values: Tensor) -> None:
        """Begins the copy."""
        self._event: torch.cuda.Event | None = None
        if values.is_cuda:
            self._values = values.detach().to("cpu", non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._values = values.detach().cpu()

    def wait(self) -> Tensor:
        """Returns the tensor on the CPU, once all work before the copy is done."""
        if self._event is not None:
            self._event.synchronize()
        return self._values


def steps_late(model: DecodingModel, device: torch.device) -> int:
    """Returns how many steps a device may be ahead of the host: not while someone watches."""
    return int(device.type != "cpu" and not getattr(model, "is_watched", False))
