"""Weights divided among processes: a training is that of one process, and so are its files."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.recipes import tiny_translator
from tests.trainer.processes.jobs import (
    Jobs,
    assert_close,
    environment,
    metrics,
    statuses,
    weights,
)
from tests.watched_training import Watcher
from tests.zoo import recipe_of, tformer
from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.errors import RecipeError
from tformer_cli.model.adapter_config import AdapterConfig
from tformer_cli.train import train as workflow
from tformer_cli.trainer.config import StartConfig, TrainingConfig
from tformer_cli.trainer.events import RunStarted
from tformer_cli.trainer.processes.group import Processes
from tformer_cli.trainer.resuming.checkpoints import Checkpoints

KINDS = ["translate", "variant", "gpt", "llama", "masked", "classifier", "tagger"]
SHARDED = ["--set", "training.shard_weights=true"]
WHOLE = ["--set", "training.shard_weights=false"]
SETTINGS = (
    "training.max_steps=6", "training.report_every=1", "training.checkpoint_every=2",
    "training.warmup_steps=1", "training.learning_rate=0.001", 'training.precision="float32"',
    "validation.every=3", "validation.max_sentences=0", "model.dropout=0.0", "model.bias=false",
)  # fmt: skip
"""A gradient that is 0 but for rounding would be scaled up by Adam: no biases of keys."""
OTHERS = {
    # a batch of three texts or less, which fall to one of two processes or to both
    "alone": ("translate", "training.tokens_per_batch=8"),
    "accumulated": ("masked", "training.accumulate=3"),
    "recomputed": ("translate", "training.activation_checkpointing=true"),
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


class ShardedJobs(Jobs):
    """Trainings of models of the zoo with divided weights."""

    def __init__(self, directory, inputs):
        super().__init__(directory)
        self.inputs = inputs

    def add_kind(self, name, kind, *starts, settings=()):
        """Adds starts of one run, each (number of processes, faults, further words)."""
        recipe = self.directory / f"{kind}.toml"
        recipe.write_text(recipe_of(kind, self.inputs))
        words = [word for pair in (*SETTINGS, *settings) for word in ("--set", pair)]
        for n, faults, *more in starts:
            options = (*words, *SHARDED, *more, "--device", "cpu")
            self.add(name, n, *options, recipe=recipe, **faults)


STOP = {"end": ["SIGTERM", 0, 3]}


@pytest.fixture(scope="module")
def ended(directory, zoo):
    """What became of runs of one process and of two."""
    jobs = ShardedJobs(directory, zoo.inputs)
    for n in (1, 2):
        for kind in ("translate", "gpt", "masked"):
            jobs.add_kind(f"{kind}-{n}", kind, (n, {}))
        jobs.add_kind(f"alone-{n}", "translate", (n, {}), settings=[OTHERS["alone"][1]])
    jobs.add_kind("two-one", "translate", (2, STOP), (1, {}))
    jobs.add_kind("parts-whole", "translate", (2, STOP), (2, {}, *WHOLE))
    jobs.add_kind("whole-parts", "translate", (2, STOP, *WHOLE), (2, {}))
    return jobs.do()


@pytest.fixture(scope="module")
def all_ended(ended, directory, zoo):
    """The same of runs that take longer together than a test may by default."""
    jobs = ShardedJobs(directory, zoo.inputs)
    for n in (1, 2):
        for kind in KINDS:
            if f"{kind}-{n}" not in ended:
                jobs.add_kind(f"{kind}-{n}", kind, (n, {}))
        for name, (kind, setting) in OTHERS.items():
            if f"{name}-{n}" not in ended:
                jobs.add_kind(f"{name}-{n}", kind, (n, {}), settings=[setting])
        for bad in (1, 4):
            jobs.add_kind(f"spoilt-{bad}-{n}", "translate", (n, {"nan": [n - 1, bad]}))
    jobs.add_kind("three", "translate", (3, {}))
    jobs.add_kind("one-two", "translate", (1, STOP), (2, {}))
    jobs.add_kind("killed", "translate", (2, {"end": ["SIGKILL", 1, 5, "pass"]}), (2, {}))
    return {**ended, **jobs.do()}


def assert_like(ended, directory, name, other):
    assert [set(statuses(ended[run][-1])) for run in (name, other)] == [{0}, {0}], ended[name]
    assert_close(directory / name, directory / other)
    for key in ("loss", "gradient_norm"):
        expected = pytest.approx(metrics(directory / other, key), rel=1e-5)
        assert metrics(directory / name, key) == expected
    for key in ("tokens", "padding", "step"):
        assert metrics(directory / name, key) == metrics(directory / other, key)


def log_of(run):
    return list(map(json.loads, (run / "metrics.jsonl").read_text().splitlines()))


@pytest.mark.parametrize("name", ["translate", "gpt", "masked", "alone"])
def test_two_processes_with_parts_come_to_the_weights_of_one(ended, directory, name):
    assert_like(ended, directory, f"{name}-2", f"{name}-1")
    ours, theirs = (log_of(directory / f"{name}-{n}") for n in (2, 1))
    assert [line["kind"] for line in ours] == [line["kind"] for line in theirs]
    for line, other in zip(ours, theirs, strict=True):
        for key in ("perplexity", "accuracy", "bleu", "is_best"):
            if key in other:
                assert line[key] == pytest.approx(other[key], rel=1e-5), key


@pytest.mark.long
@pytest.mark.parametrize("name", [*KINDS, *OTHERS])
def test_so_do_those_of_every_kind(all_ended, directory, name):
    assert_like(all_ended, directory, f"{name}-2", f"{name}-1")


@pytest.mark.long
def test_so_do_three(all_ended, directory):
    assert_like(all_ended, directory, "three", "translate-1")


def test_some_steps_leave_a_process_without_examples(directory, ended):
    assert ended["alone-2"]
    reports = [line for line in log_of(directory / "alone-2") if line["kind"] == "report"]
    assert any(line["padding"] == 0.0 for line in reports), "of one pair there is none"


def assert_goes_on(ended, directory, name):
    assert set(statuses(ended[name][0])) == {143}
    assert "resumes with" in ended[name][1][0][2]
    assert_like(ended, directory, name, "translate-1")


@pytest.mark.parametrize("name", ["parts-whole", "whole-parts"])
def test_a_run_goes_on_with_and_without_parts(ended, directory, name):
    assert_goes_on(ended, directory, name)
    assert "training.shard_weights, unlike before" in ended[name][1][0][2]


def test_a_run_of_two_processes_goes_on_with_one(ended, directory):
    assert_goes_on(ended, directory, "two-one")


@pytest.mark.long
def test_a_run_of_one_process_goes_on_with_two(all_ended, directory):
    assert_goes_on(all_ended, directory, "one-two")


def test_checkpoints_hold_whole_tensors_as_those_of_one_process(ended, directory):
    assert ended["translate-2"]
    for step in (4, 6):
        for kind in ("model", "optimizer"):
            file = f"checkpoints/step-{step:06}/{kind}.safetensors"
            ours, theirs = (load_tensors(directory / f"translate-{n}" / file) for n in (2, 1))
            assert ours.keys() == theirs.keys()
            for key, tensor in theirs.items():
                assert ours[key].dtype == tensor.dtype
                if not key.startswith("generator"):
                    assert torch.allclose(ours[key], tensor, rtol=0.0, atol=1e-5), key


def test_a_model_of_parts_translates_as_that_of_one_process(ended, directory, zoo):
    assert ended["translate-2"]
    outputs = [
        tformer("translate", directory / f"translate-{n}", "-i", zoo.inputs / "text.en").stdout
        for n in (1, 2)
    ]
    assert outputs[0] == outputs[1] != ""


@pytest.mark.long
@pytest.mark.parametrize(("bad", "back"), [(1, 0), (4, 3)])
def test_what_is_no_number_sends_all_back_to_a_checkpoint_or_to_the_start(
    all_ended, directory, bad, back
):
    names = [f"spoilt-{bad}-{n}" for n in (2, 1)]
    assert_like(all_ended, directory, *names)
    for name in names:
        lines = log_of(directory / name)
        assert [line["step"] for line in lines if line["kind"] == "rollback"] == [back]


@pytest.mark.long
def test_a_process_that_is_killed_in_a_pass_ends_the_others_with_one_line(all_ended, directory):
    killed, resumed = all_ended["killed"]
    assert statuses(killed) == [1, -9]
    (line,) = [line for line in killed[0][2].splitlines() if line.startswith("error: ")]
    assert "another training process has ended" in line
    assert statuses(resumed) == [0, 0]
    ours, theirs = weights(directory / "killed"), weights(directory / "translate-2")
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


def test_each_process_holds_its_part_and_one_or_two_whole_layers_at_a_time():
    script = Path(__file__).with_name("sharded_parts.py")
    done = subprocess.run(
        [sys.executable, script], check=True, capture_output=True, text=True, env=environment()
    )
    for n_numbers, n_weights, n_gradients, n_moments, n_layers in json.loads(done.stdout):
        assert n_weights == n_gradients == n_moments / 2 == pytest.approx(n_numbers / 2, rel=0.02)
        assert 1 <= n_layers <= 2


@pytest.mark.parametrize(
    "others",
    [
        {"optimizer": "muon"}, {"optimizer": "normuon"}, {"average": "ema"}, {"compile": True},
        {"inspect_every": 5}, {"tokens_per_batch": 0},
        {"optimizer": "adamw", "weight_decay": 0.1, "cautious_decay": True},
    ],
)  # fmt: skip
def test_what_was_not_tried_with_parts_is_refused(others):
    assert TrainingConfig(**others)
    *_, name = others
    with pytest.raises(ValueError, match=f"^shard_weights: does not work with {name}"):
        TrainingConfig(shard_weights=True, **others)


def test_with_one_process_there_is_nothing_to_divide(tmp_path, kernels):
    watcher = Watcher()
    recipe = tiny_translator(tmp_path, training={"max_steps": 1, "shard_weights": True})()
    workflow.train(recipe, tmp_path / "run", device="cpu", observers=[watcher])
    (started,) = watcher.of(RunStarted)
    assert "training.shard_weights has no effect with one process" in started.notes
    assert "without compiled kernels" not in " ".join(started.notes)
    assert Checkpoints(tmp_path / "run").load_state(1).by_kernels


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"adapter": AdapterConfig(rank=2), "start": StartConfig(model="x")}, "an adapter"),
     ({"start": StartConfig(model="x", frozen=("encoder.*",))}, "model.frozen")],
)  # fmt: skip
def test_so_are_adapters_and_frozen_weights(directory, changes, name):
    recipe = tiny_translator(directory, training={"max_steps": 1})()
    recipe = replace(recipe, training=replace(recipe.training, shard_weights=True))
    workflow._check_sharing(recipe, Processes())
    with pytest.raises(RecipeError, match=f"shard_weights: does not work with {name}; omit"):
        workflow._check_sharing(replace(recipe, **changes), Processes())
