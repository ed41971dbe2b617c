import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("forked_passes.py")


@cache
def gradients(n, scenario="plain"):
    """What each of n processes found: digests and samples of its gradients, by step."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(n), scenario],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2]), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def digests(found):
    return {digest for process in found for digest, _ in process["steps"]}


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_all_steps_and_processes_have_the_same_bits_and_the_sum_is_that_of_one(n):
    found = gradients(n)
    assert len(digests(found)) == 1
    [one] = gradients(1)
    assert found[0]["steps"][0][1] == pytest.approx(one["steps"][0][1], abs=1e-6)


def test_processes_without_batches_add_zeros():
    found = gradients(4, "few")
    assert [process["parts"] for process in found].count([0, 0, 0]) >= 1
    assert len(digests(found)) == 1
    [one] = gradients(1, "few")
    assert found[0]["steps"][0][1] == pytest.approx(one["steps"][0][1], abs=1e-6)


def test_a_last_pass_that_does_not_fit_is_repeated_by_its_process_alone():
    assert [process["parts"][0] for process in gradients(3)] == [1, 2, 1]
    found = gradients(3, "memory")
    assert [process["parts"] for process in found] == [[1, 1, 1], [2, 2, 2], [2, 2, 2]]
    assert found[2]["n_sent"][0] > 0  # others had been given a part of the gradient by then
    steps = [[digest for digest, _ in process["steps"]] for process in found]
    assert steps[0] == steps[1] == steps[2]
    [one] = gradients(1)
    for _, sample in found[2]["steps"]:
        assert sample == pytest.approx(one["steps"][0][1], abs=1e-6)
