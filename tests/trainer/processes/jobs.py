"""Trainings in several processes, and how their results compare."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.recipes import tiny_translator
from tformer_cli.artifacts.tensors import load_tensors


def environment():
    root = str(Path(__file__).parents[3])
    return {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}


class Jobs:
    """Trainings to do together in one script, whose start is what costs time."""

    def __init__(self, directory):
        self.directory, self.jobs = directory, []
        self.recipe = directory / "tiny.toml"
        make = tiny_translator(
            directory,
            # No biases: the gradient of a key's bias is 0 but for rounding, which Adam scales up.
            # No ReLU: a unit that is 0 but for rounding would learn from a token, or not.
            model={"dropout": 0.0, "bias": False, "activation": "gelu"},
            training={
                "accumulate": 3, "max_steps": 12, "report_every": 1, "checkpoint_every": 4,
                "inspect_every": 6, "average_checkpoints": 2,
            },
            validation={"every": 6},
        )  # fmt: skip
        self.recipe.write_text(make().to_toml())

    def add(self, name, n, *options, end=(), nan=(), recipe=None):
        run = str(self.directory / name)
        arguments = ["train", str(recipe or self.recipe), "-o", run, "--threads", "1", *options]
        job = {"name": name, "arguments": arguments, "run": run, "n": n, "end": end, "nan": nan}
        self.jobs.append(job)

    def do(self):
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("forked_processes.py"))],
            input=json.dumps(self.jobs),
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        )
        ended = {}
        for job, processes in zip(self.jobs, json.loads(done.stdout), strict=True):
            ended.setdefault(job["name"], []).append(processes)
        return ended


def weights(run):
    return load_tensors(run / "model.safetensors")


def assert_close(run, other):
    ours, theirs = weights(run), weights(other)
    for name, tensor in theirs.items():
        assert torch.allclose(ours[name], tensor, rtol=0.0, atol=1e-5), name


def metrics(run, key):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [entry[key] for entry in map(json.loads, lines) if entry["kind"] == "report"]


def statuses(start):
    return [process[0] for process in start]


def assert_one_line(start, message):
    text = "".join(process[2] for process in start)
    assert text.count("\n") == 1
    assert text.startswith("error: ")
    assert message in text
    assert 2 in statuses(start), "whichever fails first speaks, and the others are ended"
    assert 0 not in statuses(start)
