"""Data parallelism: a step's batches divided between processes, their gradients summed.

torch's DistributedDataParallel (Li et al. 2020, PyTorch Distributed) groups parameters into buckets
and sums each as soon as its gradients are there, while the backward pass still computes. Here it
sums over tokens, where by default it takes the mean over processes, whatever their shares.

The step stays what it is for one process: the same sentence pairs, whatever the number of
processes. Each takes a part with about as many tokens as any other's.
"""

import getpass
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from tformer_cli.errors import ProcessLost
from tformer_cli.text.batching import AnyBatch, Batch, PlannedBatch
from tformer_cli.text.tokenizer import PAD_ID
from tformer_cli.trainer.gradients import BackwardPasses
from tformer_cli.trainer.loss import Loss

BUCKET_MB = 25.0
"""Size of the buckets that are summed together, torch's default."""


class SummingPasses(BackwardPasses):
    """Backward passes; the last one of a process sums the gradients of all processes.

    A pass that does not fit in memory is the one thing that DistributedDataParallel cannot repeat:
    some of its buckets have been sent by then, which the others do not send again. Those hold this
    process's whole gradient, so their sums are kept, and the repeated pass sends the others only.
    """

    def __init__(self, model: nn.Module, bucket_mb: float = BUCKET_MB) -> None:
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._bucket_mb = bucket_mb
        # Unused wherever there are batches, so that torch does not warn that none is unused.
        self._anchor = nn.Parameter(torch.zeros(1, device=self._trained[0].device))
        self._sent: list[Future[Tensor]] = []
        """Sums of the step's buckets, in their order; the same in all processes."""
        self._n_kept = 0
        """Buckets that the step's passes before a repetition have sent."""
        self._is_lost = False
        self._wrapped = self._wrap()

    def add(self, compute: Callable[[], Loss], n_target_tokens: int, *, is_last: bool) -> Loss:
        """Adds a part's gradient; of the last one all processes' gradients become their sum."""
        with nullcontext() if is_last else self._wrapped.no_sync():
            loss: Loss = self._wrapped(compute)
        with self._lost_processes():
            (loss.smoothed / n_target_tokens).backward()  # type: ignore[no-untyped-call]
        if is_last:
            self._forget()
        return loss

    def add_nothing(self) -> None:
        """Adds zeros: torch fills in for parameters that a pass does not use."""
        with self._lost_processes():
            self._wrapped(lambda: 0.0 * self._anchor.sum()).backward()
        self._forget()

    def start_again(self) -> None:
        """Keeps the sums of the step so far; the rest will be sent again."""
        self._n_kept = len(self._sent)
        # the old one still waits for the rest of its backward pass; without it its hooks are gone
        del self._wrapped.reducer, self._wrapped.logger
        self._wrapped = self._wrap()

    def _forget(self) -> None:
        self._sent.clear()
        self._n_kept = 0

    def _wrap(self) -> DistributedDataParallel:
        wrapped = DistributedDataParallel(
            _Computation([*self._trained, self._anchor]),
            bucket_cap_mb=self._bucket_mb,
            init_sync=False,
            gradient_as_bucket_view=True,
            # Parameters may be unused where a process has no batches. It also keeps the buckets as
            # they are: else torch groups anew after the first step, by the order in which gradients
            # were ready; from three processes on sums are then rounded otherwise, and a resumed run
            # would not have the bits of an uninterrupted one; nor could a pass that did not fit be
            # repeated. It costs a walk over the graph a step: 0.3 ms for the base model.
            find_unused_parameters=True,
        )
        wrapped.register_comm_hook(None, self._sum)
        # DistributedDataParallel loads torch's compiler, which makes a folder for what it compiles
        with suppress(OSError, KeyError):  # it is not empty, or the user has no name
            Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}").rmdir()
        return wrapped

    def _sum(
        self,
        _: object,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> Future[Tensor]:
        """Sums a bucket of gradients, called by torch for each in the same order."""
        index = bucket.index()
        if index < self._n_kept:
            kept: Future[Tensor] = self._sent[index]
            return kept
        try:
            work = dist.all_reduce(bucket.buffer(), async_op=True)
        except RuntimeError:
            self._is_lost = True
            raise
        future: Future[list[Tensor]] = work.get_future()
        summed = future.then(self._value)
        self._sent.append(summed)
        return summed

    def _value(self, done: Future[list[Tensor]]) -> Tensor:
        try:
            return done.value()[0]
        except RuntimeError:
            self._is_lost = True
            raise

    @contextmanager
    def _lost_processes(self) -> Iterator[None]:
        """Distinguishes the loss of another process from other errors of a backward pass."""
        try:
            yield
        except RuntimeError as error:
            if self._is_lost:
                raise process_lost() from error
            raise


class _Computation(nn.Module):
    """The forward pass as DistributedDataParallel wants it: a call of what has the parameters."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__()
        self.trained = nn.ParameterList(parameters)

    def forward(self, compute: Callable[[], Loss | Tensor]) -> Loss | Tensor:
        return compute()


def process_lost() -> ProcessLost:
    return ProcessLost(
        "train: another training process has ended or cannot be reached; the last checkpoint is "
        "kept: start all processes again"
    )


@contextmanager
def collective_errors() -> Iterator[None]:
    """Converts the loss of another process to a one-line error."""
    try:
        yield
    except RuntimeError as error:
        raise process_lost() from error


def share_of(batches: Sequence[AnyBatch], rank: int, world_size: int) -> list[Batch]:
    """Returns the part of a step's batches that falls to one process."""
    # Where the batches can be dealt out evenly, each process takes whole ones. Else the pairs of
    # all batches are thought of as one row, which is cut where each process has its share of the
    # tokens of both sides, to within one pair. Every pair falls to exactly one process; one that
    # gets none (there are fewer pairs than processes) has an empty list.
    if len(batches) % world_size == 0:
        return [_make_batch(batch) for batch in batches[rank::world_size]]
    tokens = [_tokens_of_pairs(batch) for batch in batches]
    n_before = torch.cat(tokens).cumsum(0) - torch.cat(tokens)
    n_tokens = int(sum(int(numbers.sum()) for numbers in tokens))
    # a pair belongs to the process whose share of the tokens contains its first token
    owners = (n_before * world_size) // max(1, n_tokens)
    parts = owners.split_with_sizes([len(numbers) for numbers in tokens])
    return list(_rows(batches, parts, rank))


def _make_batch(batch: AnyBatch, rows: Tensor | None = None) -> Batch:
    """Builds a batch, or a part of it."""
    if isinstance(batch, PlannedBatch):
        return batch.make(np.arange(batch.n_sentences) if rows is None else rows.numpy())
    return batch if rows is None else _without_empty_columns(batch, rows)


def first_pair(batch: AnyBatch) -> Batch:
    """Builds a batch of only the first pair of another."""
    return _make_batch(batch, torch.zeros(1, dtype=torch.int64))


def _tokens_of_pairs(batch: AnyBatch) -> Tensor:
    """(B,) tokens of both sides of each pair, padding excluded."""
    if isinstance(batch, PlannedBatch):
        return torch.from_numpy((batch.source_lengths + batch.target_lengths).astype(np.int64))
    return batch.source_mask.sum(1) + (batch.target_output != PAD_ID).sum(1)


def _rows(batches: Sequence[AnyBatch], owners: Sequence[Tensor], rank: int) -> Iterator[Batch]:
    for batch, numbers in zip(batches, owners, strict=True):
        rows = (numbers == rank).nonzero().squeeze(1)
        if len(rows):
            yield _make_batch(batch, rows)


def _without_empty_columns(batch: Batch, rows: Tensor) -> Batch:
    """Takes some pairs of a batch, and no more columns than the longest of them fill."""
    source_mask = batch.source_mask[rows]
    target_input, target_output = batch.target_input[rows], batch.target_output[rows]
    n_source = int(source_mask.sum(1).max())
    per_token = batch.source.shape[1] // max(1, source_mask.shape[1])  # above 1 of images
    # What is predicted may have gaps; after the last token of either there is only padding
    is_used = (target_input != PAD_ID) | (target_output != PAD_ID)
    n_target = int(is_used.any(0).nonzero().max()) + 1
    return Batch(
        source=batch.source[rows, : n_source * per_token],
        source_mask=source_mask[:, :n_source],
        target_input=target_input[:, :n_target],
        target_output=target_output[:, :n_target],
    )
