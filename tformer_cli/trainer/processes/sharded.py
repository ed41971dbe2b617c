"""Weights, gradients and moments divided among processes: FSDP2, for models that do not fit.

torch's `fully_shard` (after stage 3 of ZeRO, Rajbhandari et al. 2020) leaves each process a part of
every parameter. A layer's weights are gathered before it computes and freed after it; embeddings
and what else is outside of layers stay from the beginning of a forward pass to the end of its
backward pass. Gradients are summed into parts.

- All processes gather together, so all make as many passes as the one with most: the others pass a
  sentence pair whose loss counts 0 times.
- A checkpoint holds whole tensors, as that of one process does: the first process collects them one
  after the other, and gives them out at a resumption.
- A validation computes by itself, on a whole copy of the weights in every process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from tformer_cli.artifacts.tensors import shapes_alone
from tformer_cli.errors import TformerError
from tformer_cli.model.base import Model
from tformer_cli.model.encoder_only import model_of
from tformer_cli.model.stacks import Layer
from tformer_cli.text.batching import AnyBatch, Batch
from tformer_cli.trainer.gradients import BackwardPasses, batch_loss
from tformer_cli.trainer.loss import Loss
from tformer_cli.trainer.optimizers.adam import Adam
from tformer_cli.trainer.processes.data_parallel import collective_errors, first_pair
from tformer_cli.trainer.processes.distributed import JoinedProcesses


class ShardedProcesses(JoinedProcesses):
    """One of several processes that each hold a part of every weight; see `Processes`."""

    shards_weights = True
    _loaded: Mapping[str, Tensor]
    """Whole weights that this process has read and not given out yet."""
    _loaded_state: Mapping[str, Tensor]
    """The same of the optimizer's state."""
    n_passes = 0
    """Backward passes of the step in every process."""
    stand_in: Batch
    """A sentence pair of the step, for the passes of a process without batches."""

    def shard(self, model: Model) -> None:
        """Leaves this process its part of the first process's weights."""
        self._loaded = self._loaded_state = {}
        super().broadcast_weights(model)
        device = next(model.parameters()).device
        mesh = init_device_mesh(device.type, (self.world_size,))
        layers = [module for module in model.modules() if isinstance(module, Layer)]
        for module in (*layers, model):
            sharded = fully_shard(module, mesh=mesh)
            # Losses are divided by the tokens of all processes, so that gradients are sums
            sharded.set_gradient_divide_factor(1.0)
            sharded.set_force_sum_reduction_for_comms(True)
        register_fsdp_forward_method(model, "target_hidden")

    def share(self, batches: Sequence[AnyBatch]) -> list[Batch]:
        """Returns this process's part, and counts the passes that all will make."""
        own = super().share(batches)
        self.n_passes = int(self.largest(len(own)))
        self.stand_in = first_pair(batches[0])
        return own

    def backward_passes(self, model: nn.Module) -> BackwardPasses:
        return ShardedPasses(cast("Model", model), self)

    @contextmanager
    def whole(self, model: Model) -> Iterator[Model]:
        """Yields a copy with whole weights, which each process may use by itself."""
        with shapes_alone():
            copy: Model = model_of(model.config, model.vocab_size)
        weights = {name: _gather(tensor) for name, tensor in model.state_dict().items()}
        copy.load_state_dict(weights, assign=True)
        yield copy.eval().requires_grad_(requires_grad=False)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Collects whole weights in the first process, or returns those it has just read."""
        return dict(self._loaded) or self._collect(model.state_dict())

    def optimizer_tensors(self, model: nn.Module, optimizer: Adam) -> dict[str, Tensor]:
        """Collects the optimizer's whole state in the first process."""
        return self._collect(super().optimizer_tensors(model, optimizer))

    def load_weights(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Keeps whole weights for `broadcast_weights`; checks that they are this model's."""
        shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
        if {name: tensor.shape for name, tensor in weights.items()} != shapes:
            raise RuntimeError("has other weights than the model")
        self._loaded, self._loaded_state = weights, {}

    def load_optimizer(
        self, model: nn.Module, optimizer: Adam, tensors: Mapping[str, Tensor]
    ) -> None:
        """Keeps the optimizer's whole state for `broadcast_state`."""
        names = dict(model.named_parameters())
        state = {key: t for key, t in tensors.items() if key.rpartition(":")[0] in names}
        if not state:
            raise KeyError(next(iter(names)))
        optimizer.state.clear()
        self._loaded_state = state

    def broadcast_weights(self, model: nn.Module) -> None:
        """Gives out the parts of what the first process has read, if it has."""
        loaded, self._loaded = dict(self._loaded), {}
        own = model.state_dict()
        for name, tensor in self._broadcast(loaded):
            own[name].copy_(_part(tensor, own[name]))

    def broadcast_state(self, model: nn.Module, optimizer: Adam) -> None:
        """Gives out the parts of weights and optimizer that the first process has read."""
        if not self.first(lambda: bool(self._loaded)):
            return
        self.broadcast_weights(model)
        state, self._loaded_state = dict(self._loaded_state), {}
        parameters = dict(model.named_parameters())
        optimizer.state.clear()
        for key, tensor in self._broadcast(state):
            name, _, kind = key.rpartition(":")
            optimizer.state[parameters[name]][kind] = _part(tensor, parameters[name])

    def _collect(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gathers tensors one after the other; only the first process keeps them, on the CPU."""
        collected = {}
        for name, tensor in tensors.items():
            whole = _gather(tensor)
            if self.is_first:
                collected[name] = whole.cpu()
        return collected


class ShardedPasses(BackwardPasses):
    """Backward passes, of which all processes make the same number."""

    def __init__(self, model: Model, processes: ShardedProcesses) -> None:
        self._model = model
        self._processes = processes
        self._n_made = 0

    def add(self, compute: Callable[[], Loss], n_target_tokens: int, *, is_last: bool) -> Loss:
        """Adds a part's gradient, summed over the processes."""
        loss = super().add(compute, n_target_tokens, is_last=is_last)
        self._n_made += 1
        if is_last:
            self.add_nothing()
        return loss

    def add_nothing(self) -> None:
        """Makes the passes that this process lacks, with gradients of 0."""
        for _ in range(self._processes.n_passes - self._n_made):
            loss = batch_loss(
                self._model, self._processes.stand_in, label_smoothing=0.0, precision="float32"
            )
            (0.0 * loss.smoothed).backward()  # type: ignore[no-untyped-call]
        self._n_made = 0

    def start_again(self) -> None:
        """Refuses what the other processes would have to repeat, too."""
        raise TformerError(
            "training.tokens_per_batch: a batch does not fit in memory, and is not split where "
            "training.shard_weights divides the weights; lower it"
        )


def _gather(tensor: Tensor) -> Tensor:
    """Returns a whole tensor; all processes call it together."""
    if not isinstance(tensor, DTensor):
        return tensor.detach()
    with collective_errors():
        whole: Tensor = cast("DTensor", tensor.detach()).full_tensor()
    return whole


def _part(tensor: Tensor, like: Tensor) -> Tensor:
    """Returns this process's part of a whole tensor, if it is one of a parameter's shape."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor.to(like.device)
    return distribute_tensor(
        tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )
