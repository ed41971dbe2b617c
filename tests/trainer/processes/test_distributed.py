import json
import signal
import subprocess
import sys
import time

import pytest
import torch

from tests.trainer.processes.jobs import (
    Jobs,
    assert_close,
    assert_one_line,
    environment,
    metrics,
    statuses,
    weights,
)
from tests.zoo import RECIPES, recipe_of
from tformer_cli.artifacts.tensors import load_tensors

DROPOUT = ["--set", "model.dropout=0.3"]
MUON = ["--set", 'training.optimizer="muon"']
NORMUON = ["--set", 'training.optimizer="normuon"']
AVERAGED = ["--set", 'training.average="ema"']
SHARDED = ["--set", "training.shard_optimizer=true"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def ended(directory):
    """What became of the processes of each run, by its name, one entry a start."""
    jobs = Jobs(directory)
    jobs.add("one", 1)
    jobs.add("two", 2)
    jobs.add("bad", 2, "--set", "model.n_heads=3")
    jobs.add("one", 2)
    return jobs.do()


@pytest.fixture(scope="module")
def all_ended(ended, directory):
    """The same of runs that take longer together than a test may by default."""
    jobs = Jobs(directory)
    jobs.add("sharded", 2, *SHARDED)
    jobs.add("muon", 2, *MUON)
    jobs.add("muon-sharded", 2, *MUON, *SHARDED)
    jobs.add("normuon", 2, *NORMUON)
    jobs.add("normuon-sharded", 2, *NORMUON, *SHARDED)
    jobs.add("averaged", 1, *AVERAGED)
    jobs.add("averaged-two", 2, *AVERAGED, *SHARDED, end=["SIGTERM", 1, 5])
    jobs.add("averaged-two", 2, *AVERAGED, *SHARDED)
    jobs.add("one-two", 1, end=["SIGTERM", 0, 3])
    jobs.add("one-two", 2, *SHARDED)
    jobs.add("two-one", 2, *SHARDED, end=["SIGTERM", 1, 3])
    jobs.add("two-one", 1)
    jobs.add("whole", 2, *DROPOUT)
    jobs.add("killed", 2, *DROPOUT, end=["SIGKILL", 1, 6])
    jobs.add("killed", 2, *DROPOUT)
    jobs.add("spoilt", 1, nan=[0, 6])
    jobs.add("spoilt-two", 2, nan=[1, 6])
    jobs.add("misspelt", 2, "--max-step", "3")
    jobs.add("missing", 2, "--set", 'data.valid=[{tsv="missing.tsv"}]')
    return {**ended, **jobs.do()}


@pytest.fixture(scope="module")
def kinds(directory, zoo):
    """What became of short runs of every kind, by the name of its recipe and the processes."""
    jobs = Jobs(directory)
    for name in RECIPES:
        recipe = directory / f"{name}.toml"
        recipe.write_text(recipe_of(name, zoo.inputs))
        for n in (1, 2):
            options = (
                "training.max_steps=3", "training.report_every=1", "validation.every=2",
                "validation.max_sentences=0", "model.dropout=0.0",
            )  # fmt: skip
            words = [word for option in options for word in ("--set", option)]
            jobs.add(f"{name}-{n}", n, *words, "--device", "cpu", recipe=recipe)
    return jobs.do()


def assert_like_one_process(ended, directory, name):
    assert set(statuses(ended[name][-1])) == {0}, ended[name]
    assert_close(directory / name, directory / "one")
    for key in ("loss", "gradient_norm"):
        expected = pytest.approx(metrics(directory / "one", key), rel=1e-5)
        assert metrics(directory / name, key) == expected
    for key in ("tokens", "padding", "step"):
        assert metrics(directory / name, key) == metrics(directory / "one", key)


def test_two_processes_come_to_the_weights_of_one(ended, directory):
    assert_like_one_process(ended, directory, "two")


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "memory"])
def test_two_processes_train_and_validate_every_kind_as_one_does(kinds, directory, name):
    runs = [f"{name}-{n}" for n in (1, 2)]
    assert [statuses(kinds[run][0]) for run in runs] == [[0], [0, 0]], kinds[runs[1]]
    alone, shared = (
        list(map(json.loads, (directory / run / "metrics.jsonl").read_text().splitlines()))
        for run in runs
    )
    assert [line["kind"] for line in shared] == [line["kind"] for line in alone]
    for ours, theirs in zip(shared, alone, strict=True):
        for key in ("loss", "gradient_norm", "perplexity", "accuracy", "bleu", "bits_per_byte"):
            if key in theirs:
                assert ours[key] == pytest.approx(theirs[key], rel=1e-4), key


def test_a_memory_is_refused_with_several_processes(kinds, directory):
    assert_one_line(kinds["memory-2"][0], "model.memory: works only with one process")


@pytest.mark.long
@pytest.mark.parametrize("name", ["sharded", "one-two", "two-one"])
def test_the_number_of_processes_does_not_change_the_weights(all_ended, directory, name):
    assert_like_one_process(all_ended, directory, name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "unsharded"),
    [("sharded", "two"), ("muon-sharded", "muon"), ("normuon-sharded", "normuon")],
)
def test_a_sharded_optimizer_changes_nothing_and_is_saved_whole(
    all_ended, directory, name, unsharded
):
    assert set(statuses(all_ended[name][0])) == {0}
    file = "checkpoints/step-000012/{}.safetensors"
    for kind in ("model", "optimizer"):
        shared = load_tensors(directory / name / file.format(kind))
        plain = load_tensors(directory / unsharded / file.format(kind))
        assert shared.keys() == plain.keys()
        for key, tensor in plain.items():
            assert torch.equal(shared[key], tensor), key


@pytest.mark.long
def test_the_moving_average_is_that_of_one_process_and_resumes(all_ended, directory):
    stopped, resumed = all_ended["averaged-two"]
    assert (statuses(stopped), statuses(resumed)) == ([143, 143], [0, 0])
    assert_close(directory / "averaged-two", directory / "averaged")
    file = "checkpoints/step-000012/average.safetensors"
    ours, theirs = (load_tensors(directory / n / file) for n in ("averaged-two", "averaged"))
    for name, tensor in theirs.items():
        assert torch.allclose(ours[name], tensor, rtol=0.0, atol=1e-5), name


def test_the_heads_are_followed_once_whatever_the_number_of_processes(ended, directory):
    ours, theirs = (
        [json.loads(line) for line in (directory / name / "heads.jsonl").read_text().splitlines()]
        for name in ("two", "one")
    )
    assert [line["step"] for line in ours if line["id"] == "cross.0.1"] == [0, 6, 12]
    assert len(ours) == len(theirs) == 18
    for line, other in zip(ours, theirs, strict=True):
        assert line["id"] == other["id"]
        assert line["metrics"] == pytest.approx(other["metrics"], abs=1e-4)


def test_only_the_first_process_speaks(ended, directory):
    first, second = ended["two"][0]
    assert first[1] == f"{directory / 'two'}\n"
    assert "step 12, epoch " in first[2]
    assert second[1:] == ["", ""]


@pytest.mark.long
def test_a_signal_to_one_process_stops_all_after_the_same_step(all_ended, directory):
    stopped, resumed = all_ended["two-one"]
    assert statuses(stopped) == [143, 143]
    assert stopped[0][2].splitlines()[-1].startswith("error: stopped at step ")
    assert stopped[1][2] == ""
    assert "a run of 2 processes resumes with 1" in resumed[0][2]
    assert "a run of 1 process resumes with 2" in all_ended["one-two"][1][0][2]
    assert metrics(directory / "two-one", "step") == list(range(1, 13))


@pytest.mark.long
def test_a_killed_process_ends_the_others_with_one_line_and_the_run_resumes_exactly(
    all_ended, directory
):
    killed, resumed = all_ended["killed"]
    assert statuses(killed) == [1, -9]
    errors = [line for line in killed[0][2].splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "another training process has ended" in errors[0]
    assert statuses(resumed) == [0, 0]
    assert "processes resumes with" not in resumed[0][2]
    ours, theirs = weights(directory / "killed"), weights(directory / "whole")
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


@pytest.mark.long
def test_what_is_no_number_in_one_process_sends_all_back_as_it_would_one(all_ended, directory):
    runs = "spoilt", "spoilt-two"
    assert [statuses(all_ended[run][0]) for run in runs] == [[0], [0, 0]]
    rollbacks = []
    for run in runs:
        lines = map(json.loads, (directory / run / "metrics.jsonl").read_text().splitlines())
        rollbacks.append([line for line in lines if line["kind"] == "rollback"])
        assert [line["step"] for line in rollbacks[-1]] == [4]
    assert rollbacks[0] == rollbacks[1]
    assert all_ended["spoilt-two"][0][1][2] == ""
    assert_close(directory / "spoilt-two", directory / "spoilt")
    spoilt, whole = weights(directory / "spoilt"), weights(directory / "one")
    assert any(not torch.allclose(spoilt[name], whole[name], atol=1e-4) for name in whole)


def test_what_fails_in_all_is_one_line(ended, directory):
    assert_one_line(ended["bad"][0], "model.n_heads")
    assert not (directory / "bad").exists()


@pytest.mark.long
@pytest.mark.parametrize(("name", "message"), [("misspelt", "--max-steps"), ("missing", "missing")])
def test_options_and_data_that_fail_in_all_are_one_line(all_ended, directory, name, message):
    assert_one_line(all_ended[name][0], message)
    assert not (directory / name).exists()


def test_a_finished_run_says_so_once(ended, directory):
    first, second = ended["one"][1]
    assert first[:2] == [0, f"{directory / 'one'}\n"]
    assert "is finished" in first[2]
    assert second == [0, "", ""]


@pytest.mark.long
def test_sigterm_to_torchrun_leaves_a_run_that_resumes(ended, directory):
    jobs = Jobs(directory)
    jobs.add("launched", 2)
    run = directory / "launched"
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2 -m tformer_cli"
    command = [sys.executable, *launcher.split(), *jobs.jobs[0]["arguments"]]
    with (directory / "torchrun.txt").open("w") as file:
        started = subprocess.Popen(command, env=environment(), stdout=file, stderr=file)
        while not (run / "metrics.jsonl").is_file() and started.poll() is None:
            time.sleep(0.01)
        started.send_signal(signal.SIGTERM)
        assert started.wait() != 0
    assert "error: stopped at step " in (directory / "torchrun.txt").read_text()
    done = subprocess.run(command, check=False, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{run}\n"
    assert_close(run, directory / "one")
