"""The processes that train one model together, as the training loop sees them.

`Processes` is a single process: it does all the work and never waits. `distributed` extends it to
several.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar, cast

from torch import Tensor, nn

from tformer_cli.model.base import Model
from tformer_cli.text.batching import AnyBatch, Batch, Item
from tformer_cli.trainer.gradients import ALONE, BackwardPasses
from tformer_cli.trainer.optimizers.adam import Adam
from tformer_cli.trainer.optimizers.optimizer import optimizer_tensors, restore_optimizer

Value = TypeVar("Value")


class Processes:
    """A single process. Its methods document what each of several would do.

    All processes make the same calls in the same order.
    """

    rank = 0
    world_size = 1
    shards_weights = False
    """True if each process holds a part of every weight."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def first(self, work: Callable[[], Value]) -> Value:
        """Lets the first process work while the others wait."""
        # Returns what the first process's work returned, in every process.
        return work()

    def prepare_once(self, prepare: Callable[[], Value]) -> Value:
        """Prepares what lies on a machine's disk: one process of each machine, then the others."""
        # Returns what this process's own call returned.
        return prepare()

    def largest(self, number: float) -> float:
        return number

    def divide(
        self, items: Sequence[Item], compute: Callable[[Sequence[Item]], Sequence[Value]]
    ) -> Sequence[Value]:
        """Lets each process compute its share of the items; returns all values in all of them."""
        # A stop that one of them obeys stops all, once all have computed.
        return compute(items)

    def shard(self, model: Model) -> None:
        """Divides the weights among the processes, if asked to."""

    def whole(self, model: Model) -> AbstractContextManager[Model]:
        """Returns a context of a model with whole weights."""
        return nullcontext(model)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Returns whole weights, in the first process."""
        return model.state_dict()

    def load_weights(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Restores weights in the first process; `broadcast_weights` follows."""
        model.load_state_dict(weights)

    def load_optimizer(
        self, model: nn.Module, optimizer: Adam, tensors: Mapping[str, Tensor]
    ) -> None:
        """Restores the optimizer in the first process; `broadcast_state` follows."""
        restore_optimizer(optimizer, model, tensors)

    def broadcast_weights(self, model: nn.Module) -> None:
        """Copies the first process's weights to all processes."""

    def broadcast_state(self, model: nn.Module, optimizer: Adam) -> None:
        """Copies the first process's weights and optimizer state to all processes."""

    def seed_step(self, seed: int, step: int) -> None:
        """Seeds this process for a step, unlike all others."""

    def share(self, batches: Sequence[AnyBatch]) -> list[Batch]:
        """Builds this process's part of a step's batches."""
        return cast("list[Batch]", list(batches))  # alone it has none that is only planned

    def backward_passes(
        self,
        model: nn.Module,  # noqa: ARG002 - there is nothing to add
    ) -> BackwardPasses:
        """Returns what makes a step's backward passes; after the last one gradients are sums."""
        return ALONE

    def sums(self, *numbers: Tensor | float) -> tuple[Tensor | float, ...]:
        return numbers

    def update(
        self,
        model: nn.Module,  # noqa: ARG002 - the optimizer knows all of it
        optimizer: Adam,
    ) -> None:
        optimizer.step()

    def optimizer_tensors(self, model: nn.Module, optimizer: Adam) -> dict[str, Tensor]:
        """Returns the optimizer's whole state, in the first process."""
        return optimizer_tensors(optimizer, model)
