"""torch's elastic agent, started by `tformer train --processes`: it starts and restarts processes.

One agent runs on each machine. Those of several machines meet at one of them, and start their
processes anew together when a process is lost or a machine comes or goes. Each process is the same
command as the agent's (see `launch.launched`), which resumes from the newest checkpoint.
"""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from tformer_cli.errors import AnotherProcessFailed, Interrupted, TformerError, UsageError
from tformer_cli.runtime import n_processors
from tformer_cli.trainer.processes.launch import AGENT, RESTART_STATUS, RESUMES, Group

MAX_RESTARTS = 3
"""How often lost processes are started again; changes of machines do not count."""
STOP_SECONDS = 600
"""Time to finish a step and write a checkpoint when the agent is asked to stop."""
LAST_CALL_SECONDS = 10
"""How long the least number of machines waits for more; those that come later join as well."""
RUN_ID = "tformer"
"""Name under which the agents of several machines meet; the place is the user's choice."""
_STOPPED = tuple(
    status for number in (signal.SIGINT, signal.SIGTERM) for status in (128 + number, -number)
)
"""Exit statuses of a process that was asked to stop."""


def run_group(
    group: Group, arguments: Sequence[str], mark: Path, on_restart: Callable[[str], None]
) -> None:
    environment = {AGENT: str(os.getpid())}
    # else the dead processes' addresses stay in the agent's store, and the new ones wait for them
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    if "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = str(max(1, n_processors() // group.n_processes))
    with _quiet_agent(), _environment(environment), _one_line_errors(group.meeting_point):
        agent = _Agent(_worker_spec(group, arguments), mark, on_restart)
        is_stopped = False
        try:
            result = agent.run()
        except SignalException as stopping:
            is_stopped = True
            raise Interrupted(
                "stopped; the same command resumes from the last checkpoint", int(stopping.sigval)
            ) from None
        finally:
            if not is_stopped:  # that would end the other machines' agents, too
                with suppress(RendezvousError):
                    agent.get_worker_group().spec.rdzv_handler.shutdown()
        _check(result)


def is_worth_a_restart(statuses: Collection[int]) -> bool:
    """Returns whether processes were lost, rather than that one has said why it failed."""
    others = [status for status in statuses if status not in _STOPPED]
    return bool(others) and all(status < 0 or status == RESTART_STATUS for status in others)


def shell_status(status: int) -> int:
    """Returns the exit status that a shell shows."""
    return 128 - status if status < 0 else status


def _check(result: RunResult | None) -> None:
    if result is None:  # the other machines have ended the run before this one could join it
        raise RendezvousClosedError
    if result.is_failed():
        statuses = _statuses(result)
        if is_worth_a_restart(statuses):
            raise TformerError(
                f"--processes: {_reason(statuses)} and {MAX_RESTARTS} restarts did not help; the "
                "last checkpoint is kept, the same command resumes there"
            )
        raise AnotherProcessFailed(min(shell_status(status) for status in statuses))


class _Agent(LocalElasticAgent):
    """Restarts processes that were lost, and no others."""

    def __init__(self, spec: WorkerSpec, mark: Path, on_restart: Callable[[str], None]) -> None:
        super().__init__(spec, logs_specs=DefaultLogsSpecs(), shutdown_timeout=STOP_SECONDS)
        self._mark, self._mark_before = mark, _identity(mark)
        self._on_restart = on_restart

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        if _identity(self._mark) != self._mark_before:
            os.environ[RESUMES] = "1"  # which the processes inherit
        ids: dict[int, Any] = super()._start_workers(worker_group)
        return ids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.is_failed():
            statuses = _statuses(result)
            if not is_worth_a_restart(statuses):
                self._remaining_restarts = 0
            elif self._remaining_restarts:
                n_restarts = MAX_RESTARTS - self._remaining_restarts + 1
                self._on_restart(
                    f"{_reason(statuses)}; starting all again from the last checkpoint "
                    f"(restart {n_restarts} of {MAX_RESTARTS})"
                )
        return result

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        try:
            super()._shutdown(death_sig, timeout)
        except SignalException:  # asked twice
            super()._shutdown(signal.SIGKILL, timeout)
            raise


def _worker_spec(group: Group, arguments: Sequence[str]) -> WorkerSpec:
    alone = not group.meeting_point
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint="localhost:0" if alone else group.meeting_point,
        run_id=str(uuid.uuid4()) if alone else RUN_ID,
        min_nodes=group.min_machines,
        max_nodes=group.max_machines,
        local_addr="localhost" if alone else None,
        last_call_timeout=LAST_CALL_SECONDS,
    )
    return WorkerSpec(
        role="training",
        local_world_size=group.n_processes,
        entrypoint=sys.executable,
        # the agent puts each process's number in the place of ${local_rank}
        args=("-m", "tformer_cli", *(argument.replace("$", "$$") for argument in arguments)),
        rdzv_handler=get_rendezvous_handler(parameters),
        max_restarts=MAX_RESTARTS,
        monitor_interval=0.1,
        local_addr=parameters.local_addr,
    )


def _statuses(result: RunResult) -> list[int]:
    return [failure.exitcode for failure in result.failures.values()]


def _reason(statuses: Sequence[int]) -> str:
    signals = [-status for status in statuses if status < 0 and status not in _STOPPED]
    if not signals:
        return "a process of another machine was lost"
    return f"a process was ended by {signal.Signals(signals[0]).name}"


def _identity(path: Path) -> tuple[int, int] | None:
    """Changes whenever the file is replaced."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Sets variables for the processes that are started meanwhile."""
    before = dict(os.environ)
    os.environ |= values
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """Keeps the agent's log off stderr: what it has to say becomes one line."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _one_line_errors(meeting_point: str) -> Iterator[None]:
    try:
        yield
    except RendezvousClosedError:
        raise TformerError(
            f"--meet {meeting_point}: the run has ended on the other machines; see their messages"
        ) from None
    except RendezvousConnectionError:
        raise UsageError(
            f"--meet {meeting_point}: cannot be reached; start the command on that machine, too, "
            "and let its port through"
        ) from None
    except RendezvousError as error:
        raise TformerError(
            f"--meet {meeting_point}: the machines have not met ({type(error).__name__}); start "
            "the same command on all of them within 15 minutes"
        ) from None
