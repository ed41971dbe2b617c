"""torch's elastic agent, started by `tformer train --processes`: it starts and restarts processes.

One agent runs on each machine. The agents of several machines rendezvous at one of them, and
restart their processes together when a process dies or a machine joins or leaves. Each process is
the agent's own command (see `launch.read_launch`), which resumes from the newest checkpoint.
"""

import fcntl
import ipaddress
import logging
import os
import signal
import socket
import struct
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from tformer_cli.errors import AnotherProcessFailed, Interrupted, TformerError, UsageError
from tformer_cli.files.atomic import scratch_directory
from tformer_cli.runtime import n_processors
from tformer_cli.trainer.processes.launch import AGENT, RESTART_STATUS, RESUMES, Group

MAX_RESTARTS = 3
"""Maximum number of restarts after lost processes; changes of machines do not count."""
STOP_SECONDS = 600
"""Time to finish a step and write a checkpoint when the agent is asked to stop."""
LAST_CALL_SECONDS = 10
"""Time to wait for more than the minimum number of machines; later ones join as well."""
RUN_ID = "tformer"
"""Name under which the agents of several machines meet; the place is the user's choice."""
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
"""Variable that names the network interface of gloo."""
ANYWHERE = ("192.0.2.1", 9)
"""An address of no machine (RFC 5737); the way to it is the default route."""
SIOCGIFADDR = 0x8915
"""Linux's request for the address of an interface (netdevice(7))."""
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
    place = Place(address="localhost", is_meeting_point=True)
    if group.meeting_point:
        place = find_place(group.meeting_point)
        if place.interface and GLOO_INTERFACE not in os.environ:
            environment[GLOO_INTERFACE] = place.interface  # else gloo asks for the host's name
    with (
        _quiet_agent(),
        _environment(environment),
        _one_line_errors(group.meeting_point),
        scratch_directory() as logs,  # the agent's own stays
    ):
        agent = _Agent(_worker_spec(group, arguments, place), mark, on_restart, logs)
        is_stopped = False
        try:
            result = agent.run()
        except SignalException as stopping:
            is_stopped = True
            raise Interrupted(
                "stopped; run the same command again to resume from the last checkpoint",
                int(stopping.sigval),
            ) from None
        finally:
            if not is_stopped:  # that would end the other machines' agents, too
                with suppress(RendezvousError):
                    agent.get_worker_group().spec.rdzv_handler.shutdown()
        _check(result, place if group.meeting_point else None)


@dataclass(frozen=True, kw_only=True)
class Place:
    """This machine among those that meet."""

    address: str
    """The address that the others reach it at."""
    is_meeting_point: bool
    interface: str = ""
    """Network interface with this address; empty: the loopback, or unknown."""


def find_place(meeting_point: str) -> Place:
    """Finds the address of this machine by the route to the meeting point."""
    # Not by the host's own name, which Debian's installer writes down as 127.0.1.1
    host, port = parse_rendezvous_endpoint(meeting_point, default_port=0)
    try:
        family, _, _, _, there = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        own = _source_address(family, there)
    except OSError as error:
        reason = str(error.strerror or error).lower()
        raise UsageError(
            f"--meet {meeting_point}: cannot be reached ({reason}); give an address that all "
            "machines reach"
        ) from None
    is_loopback = ipaddress.ip_address(own.partition("%")[0]).is_loopback
    is_meeting_point = is_loopback or own == there[0]
    interfaces = _interfaces()
    if os.environ.get(GLOO_INTERFACE) in interfaces:
        own = interfaces[os.environ[GLOO_INTERFACE]]
    elif is_loopback and host not in ("localhost", there[0]):  # the others know it by that name
        own = _outward_address(meeting_point, interfaces) or own
    interface = next((name for name, address in interfaces.items() if address == own), "")
    return Place(address=own, is_meeting_point=is_meeting_point, interface=interface)


def _source_address(family: int, there: tuple[Any, ...]) -> str:
    """Returns the address of this machine on the route to another; nothing is sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as probing:
        probing.connect(there)
        return str(probing.getsockname()[0])


def _outward_address(meeting_point: str, interfaces: Mapping[str, str]) -> str:
    """Returns the address of this machine on its default route, or its only one."""
    with suppress(OSError):
        return _source_address(socket.AF_INET, ANYWHERE)
    if len(interfaces) > 1:
        raise UsageError(
            f"--meet {meeting_point}: this name is a loopback address on this machine, which has "
            f"several others ({', '.join(interfaces.values())}); name one that all machines reach"
        )
    return next(iter(interfaces.values()), "")


def _interfaces() -> dict[str, str]:
    """Returns the IPv4 address of each network interface that has one but the loopback."""
    addresses = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()))
                addresses[name] = socket.inet_ntoa(answer[20:24])
    return {name: address for name, address in addresses.items() if not address.startswith("127.")}


def is_worth_a_restart(statuses: Collection[int]) -> bool:
    """Returns whether processes were lost, rather than one having reported an error."""
    others = [status for status in statuses if status not in _STOPPED]
    return bool(others) and all(status < 0 or status == RESTART_STATUS for status in others)


def shell_status(status: int) -> int:
    """Returns the exit status that a shell shows."""
    return 128 - status if status < 0 else status


def _check(result: RunResult | None, place: Place | None) -> None:
    if result is None:  # the other machines have ended the run before this one could join it
        raise RendezvousClosedError
    if result.is_failed():
        statuses = _statuses(result)
        if is_worth_a_restart(statuses):
            # If only one process is lost, the system has killed it, and the network works
            hint = (
                f"; if the machines cannot reach this one at {place.address}, set "
                f"{GLOO_INTERFACE} or NCCL_SOCKET_IFNAME to the interface that they share"
                if place is not None and RESTART_STATUS in statuses
                else ""
            )
            raise TformerError(
                f"--processes: {_reason(statuses)} and {MAX_RESTARTS} restarts did not help; the "
                f"last checkpoint is kept: run the same command again to resume there{hint}"
            )
        raise AnotherProcessFailed(min(shell_status(status) for status in statuses))


class _Agent(LocalElasticAgent):
    """Restarts processes that were lost, and no others."""

    def __init__(
        self, spec: WorkerSpec, mark: Path, on_restart: Callable[[str], None], logs: Path
    ) -> None:
        specs = DefaultLogsSpecs(log_dir=str(logs))
        super().__init__(spec, logs_specs=specs, shutdown_timeout=STOP_SECONDS)
        self._mark, self._mark_before = mark, _identity(mark)
        self._on_restart = on_restart

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        if _identity(self._mark) != self._mark_before:
            os.environ[RESUMES] = "1"  # which the processes inherit
        ids: dict[int, Any] = super()._start_workers(worker_group)
        return ids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state == WorkerState.HEALTHY and worker_group.spec.rdzv_handler.is_closed():
            raise RendezvousClosedError  # else these processes would wait for the lost ones
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


def _worker_spec(group: Group, arguments: Sequence[str], place: Place) -> WorkerSpec:
    return WorkerSpec(
        role="training",
        local_world_size=group.n_processes,
        entrypoint=sys.executable,
        # the agent puts each process's number in the place of ${local_rank}
        args=("-m", "tformer_cli", *(argument.replace("$", "$$") for argument in arguments)),
        rdzv_handler=_handler(group, place),
        max_restarts=MAX_RESTARTS,
        monitor_interval=0.1,
        local_addr=place.address,
    )


def _handler(group: Group, place: Place) -> RendezvousHandler:
    """Returns the rendezvous with the other machines."""
    alone = not group.meeting_point

    def make(*, is_host: bool) -> RendezvousHandler:
        return get_rendezvous_handler(
            RendezvousParameters(
                backend="c10d",
                endpoint="localhost:0" if alone else group.meeting_point,
                run_id=str(uuid.uuid4()) if alone else RUN_ID,
                min_nodes=group.min_machines,
                max_nodes=group.max_machines,
                local_addr=place.address,
                last_call_timeout=LAST_CALL_SECONDS,
                is_host=is_host,
            )
        )

    if place.is_meeting_point:
        with suppress(
            RendezvousConnectionError
        ):  # another agent of this machine may have been first
            return make(is_host=True)
    return make(is_host=False)


def _statuses(result: RunResult) -> list[int]:
    return [failure.exitcode for failure in result.failures.values()]


def _reason(statuses: Sequence[int]) -> str:
    signals = [-status for status in statuses if status < 0 and status not in _STOPPED]
    if not signals:
        return "a process on another machine was lost"
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
            f"--meet {meeting_point}: the machines did not connect ({type(error).__name__}); "
            "start the same command on all of them within 15 minutes"
        ) from None
