"""Trains in forked processes that meet each other as under torchrun; a script for tests.

Standard input holds JSON: a list of jobs, done one after the other. A job has `arguments` of the
program, the `run` directory, `n` processes, and two faults. `end`: [] or [signal name, rank, step],
with which one process sends itself a signal as it begins a step; with "pass" as a fourth item,
within its first layer. `nan`: [] or [rank, step]: that process's loss of that step is NaN, the
first time it is made. Standard output gets a list of jobs, each a list of [exit status, standard
output, standard error] of its processes.
"""

import json
import math
import os
import signal
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401 - DistributedDataParallel would import it in every process
from torch.distributed import TCPStore

import tformer_cli.train.train  # noqa: F401 - imported once, before forking
from tformer_cli.cli.app import main as program
from tformer_cli.model.feed_forward import FeedForward
from tformer_cli.trainer import gradients, speed
from tformer_cli.trainer.loss import Loss
from tformer_cli.trainer.processes.distributed import JoinedProcesses
from tformer_cli.trainer.processes.group import Processes


def end_at_step(kind: type[Processes], name: str, last: int, moment: str = "") -> None:
    """Lets this process send itself a signal: no machine is too busy for that."""
    seed_step, feed_forward = kind.seed_step, FeedForward.forward

    def end(*_: object) -> None:
        os.kill(os.getpid(), signal.Signals[name])

    def seed_and_end(self: Processes, seed: int, step: int) -> None:
        seed_step(self, seed, step)
        if step == last:
            FeedForward.forward = end if moment else feed_forward  # type: ignore[method-assign]
            None if moment else end()

    kind.seed_step = seed_and_end  # type: ignore[method-assign]


def spoil_step(kind: type[Processes], bad: int) -> None:
    """Makes this process's part of a step end in NaN, once."""
    seed_step, batch_loss = kind.seed_step, gradients.batch_loss
    state = {"step": 0, "is_spoilt": False}

    def seed(self: Processes, seed: int, step: int) -> None:
        seed_step(self, seed, step)
        state["step"] = step

    def spoil(*arguments: object, **settings: object) -> Loss:
        loss = batch_loss(*arguments, **settings)
        if state["step"] == bad and not state["is_spoilt"]:
            state["is_spoilt"] = True
            return loss._replace(smoothed=loss.smoothed * math.nan)
        return loss

    kind.seed_step, gradients.batch_loss = seed, spoil  # type: ignore[method-assign]


def start(job: dict, rank: int, port: int, streams: tuple[Path, Path]) -> int:
    pid = os.fork()
    if pid:
        return pid
    n, end, bad = job["n"], job["end"], job["nan"]
    kind = JoinedProcesses if n > 1 else Processes
    if end and rank == end[1]:
        end_at_step(kind, end[0], *end[2:])
    if bad and rank == bad[0]:
        spoil_step(kind, bad[1])
    for descriptor, path in zip((1, 2), streams, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), descriptor)
    if n > 1:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n}
        os.environ |= {name: str(number) for name, number in place.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none"}
    status = 1
    sys.argv[1:] = job["arguments"]
    try:
        program()
    except SystemExit as exiting:
        status = exiting.code if isinstance(exiting.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait_for(pids: list[int]) -> list[int]:
    """Waits for all; as torchrun does, ends the others when one has failed."""
    statuses: dict[int, int] = {}
    while len(statuses) < len(pids):
        pid, status = os.wait()
        statuses[pid] = os.waitstatus_to_exitcode(status)
        if statuses[pid]:
            for other in set(pids) - statuses.keys():
                os.kill(other, signal.SIGTERM)
    return [statuses[pid] for pid in pids]


def do(job: dict) -> list[list]:
    run = Path(job["run"])
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # as torchrun keeps it
    streams = [
        (run.with_name(f"{run.name}-{rank}.out"), run.with_name(f"{run.name}-{rank}.err"))
        for rank in range(job["n"])
    ]
    pids = [start(job, rank, store.port, streams[rank]) for rank in range(job["n"])]
    statuses = wait_for(pids)
    return [
        [status, out.read_text(), err.read_text()]
        for status, (out, err) in zip(statuses, streams, strict=True)
    ]


if __name__ == "__main__":
    speed._ALL_SECONDS = 0.0  # as in all tests
    json.dump([do(job) for job in json.load(sys.stdin)], sys.stdout)
