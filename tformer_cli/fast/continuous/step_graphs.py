"""Steps that are captured once as a CUDA graph and then replayed as a whole.

A step of a small decoder is some hundred kernels of a few microseconds each, and sending them takes
longer than they do. A graph is sent as one. It repeats the same operations on the same memory, so
there is one for each shape of a step, captured when the shape has been used often enough to be
worth it; the first replay is compared with the step that it stands for. A capture that fails leaves
torch's allocator in a state that is hard to know: then nothing is captured any more.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor

CAPTURED_AFTER = 24
"""Steps of a shape after which it is captured: capturing takes about as long as some of them."""


class StepGraphs:
    """Runs steps; on a GPU by graphs, as soon as that pays.

    What graphs use while they run lies in one pool of memory for all: they run one after the other,
    and nothing of it is read afterwards.
    """

    _pool: ClassVar[Any] = None  # torch's handle of one
    _failed: ClassVar[bool] = False

    def __init__(self, device: torch.device, tell: Callable[[str], None] | None) -> None:
        """Starts without graphs.

        Args:
            device: where the steps compute; graphs are for "cuda".
            tell: is told, in a line, if graphs cannot be used.
        """
        self._device = device
        self._tell = tell
        self._n_steps: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}

    def run(self, shape: Hashable, step: Callable[[], None], state: Sequence[Tensor]) -> None:
        """Creates a step.

        Args:
            shape: tells steps that are the same operations on the same memory from others.
            step: the operations; what they read and write stays where it is.
            state: what a step changes and has to be put back before it is made again. Keys and
                values are not: the same are written once more.
        """
        graph = self._graphs.get(shape)
        if graph is not None:
            graph.replay()
            return
        self._n_steps[shape] += 1
        captures = self._device.type == "cuda" and not StepGraphs._failed
        if captures and self._n_steps[shape] > CAPTURED_AFTER:
            self._capture(shape, step, state)
        else:
            step()

    def _capture(self, shape: Hashable, step: Callable[[], None], state: Sequence[Tensor]) -> None:
        """Captures a step and makes it, or gives up graphs and makes it."""
        before = [tensor.clone() for tensor in state]
        step()
        expected = [tensor.clone() for tensor in state]
        stream = torch.cuda.current_stream(self._device)
        try:
            if StepGraphs._pool is None:
                StepGraphs._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=StepGraphs._pool, capture_error_mode="thread_local"):
                step()
            _put_back(state, before)
            graph.replay()
            is_same = all(map(_equal, state, expected))
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # torch leaves its own current where a capture fails
            self._give_up(str(error.__context__ or error).partition("\n")[0])
        else:
            if is_same:
                self._graphs[shape] = graph
            else:
                self._give_up("a replay gave different numbers")
        _put_back(state, expected)

    def _give_up(self, reason: str) -> None:
        StepGraphs._failed = True
        self._graphs.clear()
        if self._tell is not None:
            self._tell(f"translating without CUDA graphs, which is slower: {reason}")


def _put_back(state: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(state, values, strict=True):
        tensor.copy_(value)


def _equal(one: Tensor, other: Tensor) -> bool:
    """Returns whether all values are equal; a place without a sentence may hold NaN."""
    are_equal = (one == other) | ((one != one) & (other != other))  # noqa: PLR0124 - of NaN alone
    return bool(are_equal.all())
