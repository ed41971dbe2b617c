"""How torch's threads wait: they sleep while other programs want the processors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tformer_cli.fast.native.threads import (
    MOST_QUIET_SECONDS,
    QUIET_SECONDS,
    Neighbors,
    waited_seconds,
)
from tformer_cli.runtime import bound_waiting, waiting_is_chosen

needs_linux = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="only Linux says how long threads wait"
)
PROGRAM = """
import hashlib, os, time, torch
from tformer_cli.cli.options import prepare_torch
prepare_torch(2)
prepare_torch(2)
values = torch.linspace(-1.0, 1.0, 512 * 512).view(512, 512)
end = time.monotonic() + 0.4
while time.monotonic() < end:
    values @ values
print(len(os.listdir("/proc/self/task")), hashlib.sha256((values @ values).numpy()).hexdigest())
"""


def run(**environment):
    """Threads of a process that multiplies for a while, and the digest of a product."""
    chosen = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    kept = {name: value for name, value in os.environ.items() if name not in chosen}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=kept | environment, stdout=subprocess.PIPE, check=True
    )
    n_threads, digest = found.stdout.split()
    return int(n_threads), digest


@needs_linux
def test_a_sleeping_team_is_added_once_and_changes_no_byte():
    chosen, digest = run(OMP_WAIT_POLICY="passive")
    added, same = run()
    # who watches, who holds the team, and the team, which is larger than the processors are many
    assert added - chosen == 2 + os.cpu_count()
    assert same == digest


def test_a_command_bounds_the_spinning(tmp_path):
    """The OpenMP library itself tells what it was set to when torch loaded it."""
    command = [sys.executable, "-m", "tformer_cli", "train", "quickstart", "--dry-run"]
    kept = {name: value for name, value in os.environ.items() if "SPIN" not in name}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=kept | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "GOMP_SPINCOUNT = '3000'" in done.stderr


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_what_the_user_says_of_waiting_stays(name):
    environment = {name: "7"}
    bound_waiting(environment)
    assert environment == {name: "7"}
    assert waiting_is_chosen(environment)
    ours: dict[str, str] = {}
    bound_waiting(ours)
    assert ours
    assert not waiting_is_chosen(ours)


@needs_linux
def test_the_time_that_threads_wait_is_counted():
    assert 0.0 <= waited_seconds() <= waited_seconds()
    assert waited_seconds(Path("/nowhere")) == 0.0


def test_others_are_there_until_it_was_quiet_for_a_while():
    neighbors = Neighbors()
    assert neighbors.are_there, "before anything is known"
    neighbors.after(10.0, 0.5)
    neighbors.after(10.0 + 0.9 * QUIET_SECONDS, 0.0)
    assert neighbors.are_there
    neighbors.after(10.0 + QUIET_SECONDS, 0.0)
    assert not neighbors.are_there
    neighbors.after(20.5, 0.3)
    assert neighbors.are_there, "at once"


def test_the_wait_is_longer_if_others_come_back():
    neighbors, now = Neighbors(), 0.0
    waits = []
    for _ in range(10):
        neighbors.after(now, 1.0)
        start = now
        while neighbors.are_there:
            now += 0.5
            neighbors.after(now, 0.0)
        waits.append(now - start)
        now += 0.5
    assert waits[:3] == [QUIET_SECONDS, 2 * QUIET_SECONDS, 4 * QUIET_SECONDS]
    assert waits[-1] == MOST_QUIET_SECONDS
    neighbors.after(now + 1000.0, 1.0)
    neighbors.after(now + 1000.0 + QUIET_SECONDS, 0.0)
    assert not neighbors.are_there, "after a long quiet all is forgotten"
