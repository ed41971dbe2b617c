"""Messages between processes: few and large, with an error of one line if no answer comes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor

from tformer_cli.errors import TformerError

BUCKET_NUMBERS = 1 << 24
"""Numbers that are sent together: few messages, and little memory beside the gradients."""


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


@contextmanager
def talking() -> Iterator[None]:
    """Turns the loss of another process into an error of one line.

    Raises:
        TformerError: if the others cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:
        raise TformerError(
            "torchrun: another training process has ended or cannot be reached; start all of "
            "them again, the last checkpoint is kept"
        ) from error
