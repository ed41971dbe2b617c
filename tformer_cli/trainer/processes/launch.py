"""Rank and world size that an agent gives each process (no torch is imported here).

The agent is torch's: `torchrun`, or the one that `tformer train --processes` starts (`agent`).
"""

import ctypes
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tformer_cli.errors import TformerError, UsageError

AGENT, RESUMES = "TFORMER_AGENT", "TFORMER_RESUMES"
"""Environment of the processes of an agent of ours: its process id; "1" if the run has begun."""
RESTART_STATUS = 75
"""Exit status that asks an agent of ours for a restart: the others have been lost."""
PATIENCE_SECONDS = 10.0
"""Seconds that a silent process waits for the launcher to end all processes."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The place of this process among those that train together."""

    rank: int = 0
    """Its number, from 0, over all machines."""
    local_rank: int = 0
    """Its number on its machine; also the number of its GPU."""
    world_size: int = 1
    local_world_size: int = 1
    """Number of processes on its machine."""
    machine: str = "0"
    agent: int = 0
    """Process id of the agent of ours that has started it and restarts lost ones (0: none)."""
    resumes: bool = False
    """True if this agent's processes have begun the run before, so that it must not start over."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Processes that train together."""

    n_processes: int
    min_machines: int = 1
    """Machines without which the run waits."""
    max_machines: int = 1
    """Machines that it is not larger than."""
    meeting_point: str = ""
    """HOST:PORT of one of the machines, where all meet."""


def read_launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """Reads the place of this process; without torchrun it is a single one."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in environment for name in names):
        return Launch()
    try:
        rank, local_rank, world_size = (int(environment[name]) for name in names[:3])
    except ValueError:
        rank, local_rank, world_size = -1, -1, 0
    if not 0 <= local_rank <= rank < world_size:
        shown = ", ".join(f"{name}={environment[name]}" for name in names[:3])
        raise UsageError(f"{shown}: the process has no rank; start it with torchrun")
    return Launch(
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        local_world_size=int(environment.get("LOCAL_WORLD_SIZE", "1")),
        machine=environment.get("GROUP_RANK", "0"),
        agent=int(environment.get(AGENT, "0")),
        resumes=environment.get(RESUMES) == "1",
    )


def end_with_agent(agent: int) -> None:
    """Has the system kill this process when its agent dies, so that it stops training."""
    # The other machines' agents then notice the loss and restart without this one. Only Linux can.
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != agent:  # it has died before
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_first_error() -> None:
    """Waits, so that another process that failed can say why."""
    # The launcher ends all processes as soon as the first one has ended; this one then with them.
    time.sleep(PATIENCE_SECONDS)


@contextmanager
def one_error_per_node() -> Iterator[None]:
    """Lets the first process of each machine report errors that occur in all of them."""
    # For errors before the rendezvous: later, the first process that fails reports. A process that
    # is still alive after the timeout was the only one with its error, so it reports, too.
    try:
        yield
    except TformerError:
        if read_launch().local_rank:
            wait_for_first_error()
        raise
