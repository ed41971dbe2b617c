"""Real processes under torch's elastic agent, on loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from tests.recipes import tiny_translator
from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.trainer.processes.agent import is_worth_a_restart

pytestmark = pytest.mark.long

DEADLINE = 120.0


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("agent") / "tiny.toml"
    make = tiny_translator(
        path.parent,
        model={"dropout": 0.1},
        training={"max_steps": 120, "report_every": 5, "checkpoint_every": 20},
        validation={"every": 60},
    )
    path.write_text(make().to_toml())
    return path


@pytest.fixture(autouse=True)
def ended():
    """Ends what a failed test has left; its processes end with it."""
    yield
    for group in Group.started:
        group.process.kill()
        group.process.communicate()
    Group.started.clear()


class Group:
    """A `tformer train --processes` that runs."""

    started: ClassVar = []

    def __init__(self, recipe, run, n, *options):
        command = [sys.executable, "-m", "tformer_cli", "train", str(recipe), "-o", str(run)]
        self.messages = run.with_name(f"{run.name}-{len(list(run.parent.iterdir()))}.txt")
        root = str(Path(__file__).parents[3])
        self.scratch = run.with_name(f"{run.name}-scratch")
        self.scratch.mkdir(exist_ok=True)
        with self.messages.open("w") as file:
            self.process = subprocess.Popen(
                [*command, "--processes", str(n), "--threads", "1", *options],
                env={
                    **os.environ,
                    "PYTHONPATH": root,
                    "OMP_NUM_THREADS": "1",
                    "TMPDIR": str(self.scratch),
                },
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        Group.started.append(self)

    def workers(self):
        """Process ids of the processes that train, by rank."""
        pids = {}
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in children.read_text().split() if children.exists() else ():
            try:
                variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            except ProcessLookupError:  # it has just ended
                continue
            values = dict(line.split("=", 1) for line in variables if "=" in line)
            if "RANK" in values:
                pids[int(values["RANK"])] = int(pid)
        return pids

    def end(self):
        """Waits for the end; exit status, standard output and messages."""
        output, _ = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, output, self.messages.read_text()


def step_of(run):
    """The last step that the run has reported."""
    try:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        return max((json.loads(line).get("step", 0) for line in lines), default=0)
    except (OSError, ValueError):
        return 0


def wait_for_step(run, step):
    end = time.monotonic() + DEADLINE
    while step_of(run) < step:
        assert time.monotonic() < end
        time.sleep(0.01)


def assert_same_bits(run, other):
    for file in ("model", "optimizer"):
        name = f"checkpoints/step-000120/{file}.safetensors"
        ours, theirs = load_tensors(run / name), load_tensors(other / name)
        assert ours.keys() == theirs.keys()
        for key, tensor in theirs.items():
            assert torch.equal(ours[key], tensor), key


@pytest.fixture(scope="module")
def whole(recipe):
    run = recipe.parent / "whole"
    group = Group(recipe, run, 3)
    status, output, messages = group.end()
    assert (status, output) == (0, f"{run}\n"), messages
    assert list(group.scratch.iterdir()) == []
    assert "error: " not in messages
    assert messages.count("starting: ") == 1
    return run


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_process_is_restarted_and_the_bits_are_those_of_an_uninterrupted_run(
    recipe, whole, rank
):
    run = recipe.parent / f"killed-{rank}"
    group = Group(recipe, run, 3)
    wait_for_step(run, 50)
    os.kill(group.workers()[rank], signal.SIGKILL)
    status, output, messages = group.end()
    assert (status, output) == (0, f"{run}\n"), messages
    assert "a process was ended by SIGKILL; starting all again" in messages
    assert "error: " not in messages
    assert "Traceback" not in messages
    assert_same_bits(run, whole)


def test_sigterm_saves_and_the_number_of_processes_may_change(recipe, whole):
    run = recipe.parent / "changed"
    for n, step in ((3, 30), (2, 70)):
        group = Group(recipe, run, n)
        wait_for_step(run, step)
        group.process.send_signal(signal.SIGTERM)
        status, output, messages = group.end()
        assert (status, output) == (143, ""), messages
        errors = [line for line in messages.splitlines() if line.startswith("error: ")]
        assert errors == [
            "error: stopped; run the same command again to resume from the last checkpoint"
        ]
        assert "stopped at step " in messages
    status, _, messages = Group(recipe, run, 4).end()
    assert status == 0, messages
    assert "a run of 2 processes resumes with 4" in messages
    ours, theirs = (load_tensors(r / "model.safetensors") for r in (run, whole))
    assert ours.keys() == theirs.keys()
    assert step_of(run) == 120


def test_an_error_is_said_once_and_not_tried_again(recipe):
    run = recipe.parent / "bad"
    bad = ("--set", 'data.valid=[{tsv="missing.tsv"}]')
    status, output, messages = Group(recipe, run, 3, *bad).end()
    assert (status, output) == (2, "")
    assert messages.count("\n") == 1
    assert messages.startswith("error: ")
    assert "missing.tsv" in messages


def test_a_run_whose_processes_die_again_and_again_ends_with_one_error(recipe):
    run = recipe.parent / "dying"
    group = Group(recipe, run, 2)
    killed = set()
    while group.process.poll() is None:
        for pid in group.workers().values():
            if pid not in killed:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    status, _, messages = group.end()
    assert status == 1
    assert messages.count("starting all again") == 3
    assert messages.count("error: ") == 1
    assert messages.splitlines()[-1].startswith(
        "error: --processes: a process was ended by SIGKILL"
    )


def test_processes_end_with_their_agent(recipe):
    run = recipe.parent / "orphans"
    group = Group(recipe, run, 2)
    wait_for_step(run, 5)
    workers = group.workers()
    group.process.kill()
    group.end()
    end = time.monotonic() + DEADLINE
    while any(Path(f"/proc/{pid}/stat").exists() for pid in workers.values()):
        assert time.monotonic() < end
        time.sleep(0.05)


def free_port():
    with socket.socket() as probing:
        probing.bind(("127.0.0.1", 0))
        return probing.getsockname()[1]


def test_machines_may_go_and_come(recipe):
    run = recipe.parent / "machines"
    port = free_port()
    options = ("--nodes", "1:2", "--meet", f"127.0.0.1:{port}", "--set", "training.max_steps=50000")
    host = Group(recipe, run, 1, *options)
    wait_for_step(run, 5)  # alone
    guest = Group(recipe, run, 1, *options)
    end = time.monotonic() + DEADLINE
    messages = (host.messages, guest.messages)
    while not any("1 process resumes with 2" in file.read_text() for file in messages):
        assert time.monotonic() < end
        time.sleep(0.05)
    wait_for_step(run, step_of(run) + 40)  # behind a checkpoint of both, whoever writes it
    guest.process.kill()
    guest.end()
    end = time.monotonic() + DEADLINE
    while "2 processes resumes with 1" not in host.messages.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    wait_for_step(run, step_of(run) + 20)
    host.process.send_signal(signal.SIGTERM)
    status, _, messages = host.end()
    assert status == 143, messages
    assert messages.count("error: ") == 1
    assert "error: " not in guest.messages.read_text()


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([-9], True), ([75, -9], True), ([75], True), ([75, 143], True), ([-11, -15], True),
        ([2, 143], False), ([1, -9], False), ([143, 143], False), ([-15, 143], False),
        ([130], False),
    ],
)  # fmt: skip
def test_lost_processes_are_restarted_and_those_that_have_failed_or_stopped_are_not(
    statuses, expected
):
    assert is_worth_a_restart(statuses) == expected
