"""Data-parallel training in several processes, on one machine or more (gloo, NCCL).

A step is that of one process: the same sentence pairs, whose gradient the processes sum. Tokens
per batch, the place in the data, the optimizer's state and all counters are the whole run's, so
that a run continues with any number of processes. What a process decides (to stop, to end, to save)
it decides from numbers that all share, and so all decide alike.

Control goes over the launcher's key-value store as JSON, tensors as bytes over gloo, gradients
over gloo on CPUs and NCCL on GPUs. Nothing is pickled.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from typing import Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from tformer_cli.errors import AnotherProcessFailed, Interrupted, ProcessLost, TformerError
from tformer_cli.files.atomic import default_signals
from tformer_cli.text.batching import AnyBatch, Batch, Item
from tformer_cli.trainer.gradients import BackwardPasses
from tformer_cli.trainer.optimizers.adam import Adam
from tformer_cli.trainer.optimizers.optimizer import optimizer_tensors
from tformer_cli.trainer.processes.data_parallel import (
    SummingPasses,
    collective_errors,
    process_lost,
    share_of,
)
from tformer_cli.trainer.processes.group import Processes
from tformer_cli.trainer.processes.launch import RESTART_STATUS, Launch, wait_for_first_error
from tformer_cli.trainer.processes.signals import StopRequested

TIMEOUT = timedelta(minutes=10)
"""After this a process that waits for the others' gradients gives up."""
POLL_SECONDS = 0.02
"""Seconds between two checks of a process that waits for the first one's work."""
Value = TypeVar("Value")
BUCKET_NUMBERS = 1 << 24
"""Numbers sent together: few messages, and little memory in addition to the gradients."""
FAILURES = "failures"
"""Key of the store that counts the processes that have failed."""


class KeyStore(Protocol):
    """Part of torch's key-value store that is used; all processes reach it."""

    def set(self, key: str, value: str) -> None:
        """Stores a text."""

    def get(self, key: str) -> bytes:
        """Waits for a key and returns its text."""

    def check(self, keys: list[str]) -> bool:
        """Returns whether all keys are there."""

    def add(self, key: str, amount: int) -> int:
        """Adds to a number and returns it."""


@contextmanager
def join_processes(
    launch: Launch,
    device: torch.device,
    kind: "type[JoinedProcesses]",
    *,
    shards_optimizer: bool,
) -> Iterator[Processes]:
    """Meets the other processes; they part at the end."""
    # The first process that fails speaks for all; the others then end in silence.
    try:
        store = _meet(launch, device)
    except ProcessLost as error:
        raise _pick_error(launch, error) from error
    try:
        yield kind(launch, store, device, shards_optimizer=shards_optimizer)
        with collective_errors():
            dist.barrier()
            dist.destroy_process_group()
    except Interrupted as error:  # all stop together, and the first one reports it
        if launch.rank:
            if not launch.agent:  # else the agent waits for all, and not for the first to end
                wait_for_first_error()
            raise AnotherProcessFailed(error.exit_status) from error
        raise
    except BaseException as raised:
        failure = process_lost() if _is_of_transport(raised) else raised
        if isinstance(failure, ProcessLost) and launch.agent:
            raise _pick_error(launch, failure) from raised
        if not _fails_first(launch, store):
            wait_for_first_error()
            raise AnotherProcessFailed from raised
        if failure is raised:
            raise
        raise failure from raised


def _meet(launch: Launch, device: torch.device) -> KeyStore:
    """Starts the process group; returns the store that control goes over."""
    # torch waits for the others in C++, where Python's handlers of signals do not run: meanwhile a
    # signal ends the process as the system does. Nothing has been written yet.
    with collective_errors(), default_signals(), _silent_gloo():
        store, _, _ = next(rendezvous("env://", launch.rank, launch.world_size, timeout=TIMEOUT))
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=launch.rank,
            world_size=launch.world_size,
            timeout=TIMEOUT,
        )
    joined_store: KeyStore = store
    return joined_store


@contextmanager
def _silent_gloo() -> Iterator[None]:
    """Keeps off stderr what gloo's C++ writes of each connection that fails; an error follows."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _pick_error(launch: Launch, error: ProcessLost) -> TformerError:
    """An agent of ours is asked to restart, and says why; else this process says it."""
    if not launch.agent:
        return error
    # the agent's SIGTERM would come while Python shuts down, and leave a traceback
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return AnotherProcessFailed(RESTART_STATUS)


class JoinedProcesses(Processes):
    """One of several processes; see `Processes` for what each method means."""

    def __init__(
        self, launch: Launch, store: KeyStore, device: torch.device, *, shards_optimizer: bool
    ) -> None:
        self.rank = launch.rank
        self.world_size = launch.world_size
        self._launch = launch
        self._store = store
        self._device = device
        self._shards_optimizer = shards_optimizer
        self._n_waits = 0

    def first(self, work: Callable[[], Value]) -> Value:
        """Lets the first process work; its JSON value reaches the others over the store."""
        value: Value = json.loads(self._once(self.is_first, "", lambda: json.dumps(work())))
        return value

    def prepare_once(self, prepare: Callable[[], Value]) -> Value:
        """Prepares on each machine first in one process, then in the others."""
        values: list[Value] = []

        def prepare_first() -> str:
            values.append(prepare())
            return ""

        is_first_here = self._launch.local_rank == 0
        self._once(is_first_here, self._launch.machine, prepare_first)
        return values[0] if values else prepare()

    def largest(self, number: float) -> float:
        numbers = torch.tensor([number], dtype=torch.float64)
        with collective_errors():
            dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
        return float(numbers[0])

    def divide(
        self, items: Sequence[Item], compute: Callable[[Sequence[Item]], Sequence[Value]]
    ) -> Sequence[Value]:
        """Takes every n-th item; the values go over the store, exactly."""
        own: list[Value] | None = []
        try:
            if mine := items[self.rank :: self.world_size]:
                own = list(compute(mine))
        except StopRequested:
            own = None
        text = json.dumps(own)
        shares = [
            json.loads(self._once(self.rank == sender, "", lambda: text))
            for sender in range(self.world_size)
        ]
        if None in shares:
            raise StopRequested
        values: list[Value] = [
            shares[number % self.world_size][number // self.world_size]
            for number in range(len(items))
        ]
        return values

    def broadcast_weights(self, model: nn.Module) -> None:
        weights = model.state_dict()
        for name, tensor in self._broadcast(weights):
            weights[name].copy_(tensor)

    def broadcast_state(self, model: nn.Module, optimizer: Adam) -> None:
        """Sends weights and the optimizer's state; of a sharded one each keeps its share."""
        self.broadcast_weights(model)
        state = optimizer_tensors(optimizer, model)
        parameters = dict(model.named_parameters())
        owners = dict(zip(parameters, self._owners(list(parameters.values())), strict=True))
        optimizer.state.clear()
        for key, tensor in self._broadcast(state):
            name, _, kind = key.rpartition(":")
            if owners[name] in (self.rank, None):
                parameter = parameters[name]
                optimizer.state[parameter][kind] = tensor.to(parameter.device)

    def seed_step(self, seed: int, step: int) -> None:
        """Seeds torch for a step of this process: no state is needed to repeat the step."""
        drawn = np.random.SeedSequence([seed, step, self.rank]).generate_state(1, np.uint64)
        torch.manual_seed(int(drawn[0]))

    def share(self, batches: Sequence[AnyBatch]) -> list[Batch]:
        """Returns this process's part, as balanced as whole pairs allow."""
        return share_of(batches, self.rank, self.world_size)

    def backward_passes(self, model: nn.Module) -> BackwardPasses:
        return SummingPasses(model)

    def sums(self, *numbers: Tensor | float) -> tuple[Tensor | float, ...]:
        # Nothing waits for a GPU. One type in all processes: those without batches have only zeros
        unit = torch.ones((), dtype=torch.float64, device=self._device)
        total = torch.stack([unit * number for number in numbers])
        with collective_errors():
            dist.all_reduce(total)
        return tuple(total.unbind())

    def update(self, model: nn.Module, optimizer: Adam) -> None:
        """Steps the optimizer; if it is sharded, each process steps its share."""
        # Source: Rajbhandari et al. 2020 (ZeRO), stage 1. The optimizer passes over parameters
        # without a gradient and makes no state for them.
        if not self._shards_optimizer:
            optimizer.step()
            return
        parameters = list(model.parameters())
        owners = self._owners(parameters)
        for parameter, owner in zip(parameters, owners, strict=True):
            if owner != self.rank:
                parameter.grad = None
        optimizer.step()
        for owner in range(self.world_size):
            owned = [
                p.data for p, number in zip(parameters, owners, strict=True) if number == owner
            ]
            for bucket in buckets(owned):
                flat = torch.cat([tensor.flatten() for tensor in bucket])
                with collective_errors():
                    dist.broadcast(flat, owner)
                if owner != self.rank:
                    for tensor, part in zip(bucket, cut(flat, bucket), strict=True):
                        tensor.copy_(part)

    def optimizer_tensors(self, model: nn.Module, optimizer: Adam) -> dict[str, Tensor]:
        """Collects the shares of a sharded optimizer's state in the first process."""
        tensors = optimizer_tensors(optimizer, model)
        if not self._shards_optimizer:
            return tensors
        for sender in range(1, self.world_size):
            mine = tensors if sender == self.rank else {}
            received = dict(self._broadcast(mine, sender))
            if self.is_first:
                tensors |= received
        return tensors

    def _once(self, is_worker: bool, name: str, work: Callable[[], str]) -> str:
        """Lets one process work and the others of the same name wait for the text it returns."""
        self._n_waits += 1
        key = f"work/{self._n_waits}/{name}"
        if is_worker:
            text = work()
            with collective_errors():
                self._store.set(key, text)
            return text
        with collective_errors():
            while not self._store.check([key]):
                if self._store.check([FAILURES]):
                    raise AnotherProcessFailed
                time.sleep(POLL_SECONDS)
            return str(self._store.get(key), "utf-8")

    def _broadcast(
        self, tensors: dict[str, Tensor], sender: int = 0
    ) -> Iterator[tuple[str, Tensor]]:
        """Sends named tensors to all as bytes; yields them, on the CPU, one after the other."""
        described = [
            (name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in tensors.items()
        ]
        text = self._once(self.rank == sender, "", lambda: json.dumps(described))
        for name, dtype, shape in json.loads(text):
            if self.rank == sender:
                tensor = tensors[name].detach().cpu().contiguous()
            else:
                tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            with collective_errors():
                dist.broadcast(tensor.view(-1).view(torch.uint8), sender)
            yield name, tensor

    def _owners(self, parameters: Sequence[Tensor]) -> list[int | None]:
        """The process that updates each parameter: contiguous shares of like size; None: all."""
        if not self._shards_optimizer:
            return [None] * len(parameters)
        ends = list(accumulate(parameter.numel() for parameter in parameters))
        starts = [0, *ends[:-1]]
        return [start * self.world_size // max(1, ends[-1]) for start in starts]


def _is_of_transport(error: BaseException) -> bool:
    """Tells errors of gloo and NCCL, which sharded weights may meet in any pass, from others."""
    is_known = isinstance(error, dist.DistError)
    return is_known or (isinstance(error, RuntimeError) and "/gloo/" in str(error))


def _fails_first(launch: Launch, store: KeyStore) -> bool:
    """True if no other process has failed before; without the store one of a machine may."""
    try:
        return bool(store.add(FAILURES, 1) == 1)
    except RuntimeError:
        return launch.local_rank == 0


def buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Groups tensors that follow each other, up to `BUCKET_NUMBERS` where they are smaller."""
    bucket: list[Tensor] = []
    n_numbers = 0
    for tensor in tensors:
        if bucket and n_numbers + tensor.numel() > BUCKET_NUMBERS:
            yield bucket
            bucket, n_numbers = [], 0
        bucket.append(tensor)
        n_numbers += tensor.numel()
    if bucket:
        yield bucket


def cut(flat: Tensor, shapes: Sequence[Tensor]) -> list[Tensor]:
    """Cuts what was joined into views of the shapes that it came from."""
    parts = flat.split_with_sizes([tensor.numel() for tensor in shapes])
    return [part.view_as(tensor) for part, tensor in zip(parts, shapes, strict=True)]
