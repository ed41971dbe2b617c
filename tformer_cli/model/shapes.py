"""Models of which the shapes alone are wanted: no memory, no random numbers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_DRAWS = frozenset(
    {
        Tensor.normal_,
        Tensor.uniform_,
        nn.init.normal_,
        nn.init.uniform_,
        nn.init.kaiming_uniform_,
    }
)
"""Initializers that fill a tensor at random; the other initializers end in one of these."""


class _DrawNothing(TorchFunctionMode):
    """Leaves tensors as they are where they would be filled at random.

    There is nothing to fill on the "meta" device, but torch computes even that in Python, and its
    first such call imports its compiler: seconds of the start of a program.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if func in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Within it, new modules have parameters with shapes and types but without values."""
    with torch.device("meta"), _DrawNothing():
        yield
