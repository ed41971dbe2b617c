"""What `torchrun` tells each process that it starts (no torch is imported here)."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tformer_cli.errors import AnotherProcessFailed, TformerError, UsageError


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The place of this process among those that train together."""

    rank: int = 0
    """Its number, from 0, over all machines."""
    local_rank: int = 0
    """Its number on its machine, and that of its GPU."""
    world_size: int = 1
    """How many processes there are."""
    local_world_size: int = 1
    """How many there are on its machine."""
    machine: str = "0"
    """Which machine it is on."""


def launched(environment: Mapping[str, str] = os.environ) -> Launch:
    """Reads the place of this process; one that torchrun has not started is alone.

    Raises:
        UsageError: if the variables are there but make no sense.
    """
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in environment for name in names):
        return Launch()
    try:
        rank, local_rank, world_size = (int(environment[name]) for name in names[:3])
    except ValueError:
        rank, local_rank, world_size = -1, -1, 0
    if not 0 <= local_rank <= rank < world_size:
        shown = ", ".join(f"{name}={environment[name]}" for name in names[:3])
        raise UsageError(f"no place among processes ({shown}): start them with torchrun")
    return Launch(
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        local_world_size=int(environment.get("LOCAL_WORLD_SIZE", "1")),
        machine=environment.get("GROUP_RANK", "0"),
    )


@contextmanager
def one_speaks_for_a_machine() -> Iterator[None]:
    """Lets errors of what all processes do alike through from the first of each machine alone.

    For what comes before the processes have met: afterwards the first that fails speaks.

    Raises:
        AnotherProcessFailed: in place of the error, in the others.
    """
    launch = launched()
    try:
        yield
    except TformerError as error:
        if launch.local_rank:
            raise AnotherProcessFailed(error.exit_status) from error
        raise
