"""Rank and world size that `torchrun` gives each process (no torch is imported here)."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tformer_cli.errors import TformerError, UsageError

PATIENCE_SECONDS = 10.0
"""Seconds that a silent process waits for the launcher to end all processes."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The place of this process among those that train together."""

    rank: int = 0
    """Its number, from 0, over all machines."""
    local_rank: int = 0
    """Its number on its machine, and that of its GPU."""
    world_size: int = 1
    """Number of processes."""
    local_world_size: int = 1
    """Number of processes on its machine."""
    machine: str = "0"
    """Its machine."""


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
        raise UsageError(f"{shown}: the process has no rank; start processes with torchrun")
    return Launch(
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        local_world_size=int(environment.get("LOCAL_WORLD_SIZE", "1")),
        machine=environment.get("GROUP_RANK", "0"),
    )


def let_others_speak() -> None:
    """Waits, so that a process that fails beside this one can say why.

    The launcher ends all processes as soon as the first one has ended; this one then with them.
    """
    time.sleep(PATIENCE_SECONDS)


@contextmanager
def one_speaks_for_a_machine() -> Iterator[None]:
    """Lets the first process of each machine speak for what fails in all alike.

    For what comes before the processes have met: afterwards the first that fails speaks. A process
    that still lives when the time for it is over was alone with its error, and speaks, too.
    """
    try:
        yield
    except TformerError:
        if launched().local_rank:
            let_others_speak()
        raise
