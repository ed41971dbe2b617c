"""What can happen to a run, made to happen: the run goes on, and ends as if nothing had been."""

import errno
import json
import math
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from tests.recipes import SHAPE, recipe_maker
from tests.slowly import slowly
from tests.watched_training import Watcher, at, crash, digest
from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.errors import ArtifactError, DataError, Interrupted, RecipeError, TformerError
from tformer_cli.files import atomic
from tformer_cli.files.atomic import lock_directory
from tformer_cli.text.config import CorpusConfig
from tformer_cli.train import train as workflow
from tformer_cli.train.train import train
from tformer_cli.trainer import gradients, memory, report_interval, validation
from tformer_cli.trainer.events import BatchSplit, RolledBack, RunEnded, RunStarted, StepReport
from tformer_cli.trainer.resuming.checkpoints import Checkpoints
from tformer_cli.trainer.resuming.saving import RunSaver
from tformer_cli.trainer.trainer import Trainer

LINES = [f"line number {number} of {number * 7}" for number in range(80)]


@pytest.fixture(scope="module", autouse=True)
def every_test_on_one_thread(one_thread):
    """Trainings here are small, and compared bit for bit."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def data(tmp_path):
    """Two aligned files."""
    for side in ("source", "target"):
        (tmp_path / side).write_text("".join(f"{line} {side[0]}\n" for line in LINES))
    return tmp_path


@pytest.fixture
def recipe(cache, data):
    files = [{"source": "source", "target": "target"}]
    make = recipe_maker(
        data,
        data={"train": files, "valid": files, "cache_directory": cache},
        tokenizer={"vocab_size": 300, "bpe_dropout": 0.1},
        model={**SHAPE, "n_encoder_layers": 1, "n_decoder_layers": 1},
        training={
            "precision": "float32", "tokens_per_batch": 300, "max_steps": 12, "warmup_steps": 8,
            "report_every": 4, "checkpoint_every": 3, "average_checkpoints": 3,
        },
        validation={"every": 5, "max_sentences": 2, "patience": 50, "metric": "loss"},
        decoding={"max_length": 8},
    )  # fmt: skip
    return make()


def change_recipe(recipe, **keys):
    return replace(recipe, training=replace(recipe.training, **keys))


def train_until_crash(recipe, run, watcher=None):
    with pytest.raises(KeyError, match="power"):
        train(recipe, run, observers=[watcher or at(8, crash)])


def result(run):
    """What two runs that are the same have in common: weights, and all that was reported."""
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for entry in entries:
        for name in ("seconds", "tokens_per_second", "hardware_share"):
            entry.pop(name, None)
    return digest(run), entries


@pytest.fixture(scope="module")
def known():
    """What runs that nothing interrupts come to, by a name of each: one run serves all tests."""
    return {}


@pytest.fixture
def expected(recipe, tmp_path, known):
    """The result of a run that nothing has interrupted."""
    if "result" not in known:
        train(recipe, tmp_path / "whole")
        known["result"] = result(tmp_path / "whole")
    return known["result"]


@pytest.fixture
def bad_steps(monkeypatch):
    """Makes the loss of chosen batches no number, by their place in the data; returns the set."""
    chosen, place = set(), [None]
    next_batches, true_loss = Trainer._next_batches, gradients.projected_loss

    def noting(self, batches, n_batches):
        group = next_batches(self, batches, n_batches)
        place[0] = self.state.position
        return group

    def loss(hidden, *others):
        return true_loss(hidden * math.nan if place[0] in chosen else hidden, *others)

    monkeypatch.setattr(Trainer, "_next_batches", noting)
    monkeypatch.setattr(gradients, "projected_loss", loss)
    return chosen


@pytest.fixture
def places(recipe, tmp_path, monkeypatch, known):
    """Where the data stand after each step of an undisturbed run."""
    if "places" in known:
        return known["places"]
    positions, next_batches = [], Trainer._next_batches

    def noting(self, batches, n_batches):
        group = next_batches(self, batches, n_batches)
        positions.append(self.state.position)
        return group

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_next_batches", noting)
        train(recipe, tmp_path / "undisturbed")
    known["places"] = positions
    return positions


def test_a_bad_batch_sends_the_run_back_once_and_is_left_out(recipe, tmp_path, places, bad_steps):
    bad_steps.add(places[7])
    watcher = Watcher()
    state = train(
        change_recipe(recipe, report_every=1), tmp_path / "run", observers=[watcher]
    ).state
    (event,) = watcher.of(RolledBack)
    assert (event.step, event.failed_step, event.learning_rate_factor) == (6, 8, 0.5)
    assert state.step == 12
    rates = {e.step: e.learning_rate for e in watcher.of(StepReport)}
    assert rates[8] == 0.5 * recipe.training.learning_rate
    entries = result(tmp_path / "run")[1]
    assert [e["step"] for e in entries if e["kind"] == "report"] == list(range(1, 13))
    (logged,) = [e for e in entries if e["kind"] == "rollback"]
    assert logged["problem"] == "the loss or its gradient is NaN or infinity"
    assert entries.index(logged) == 7


MOMENTS = "before", "between", "after", "log", "later"


@pytest.mark.parametrize(
    ("moment", "bad"),
    [
        *product(MOMENTS, [(7, 11)]), ("between", (1, 2, 3)),
        *slowly(*((key, (1, 2, 3)) for key in MOMENTS if key != "between"), ("after", (0, 1, 2))),
    ],
)  # fmt: skip
def test_a_run_killed_around_a_rollback_ends_as_an_uninterrupted_one(
    recipe, tmp_path, monkeypatch, known, places, bad_steps, bad, moment
):
    bad_steps.update(places[i] for i in bad)
    if bad not in known:
        train(recipe, tmp_path / "whole")
        known[bad] = result(tmp_path / "whole")
    save_rollback = RunSaver.save_rollback
    with monkeypatch.context() as patch:
        watcher = Watcher(crash, lambda event: moment == "later" and type(event) is RolledBack)
        if moment == "before":
            patch.setattr(RunSaver, "save_rollback", crash)
        if moment == "between":
            patch.setattr(Checkpoints, "save_state", crash)
            patch.setattr(Checkpoints, "save", crash) if bad[0] < 3 else None
        if moment == "after":
            patch.setattr(RunSaver, "save_rollback", lambda *a: (save_rollback(*a), crash()))
        if moment == "log":
            patch.setattr("tformer_cli.trainer.run_logs.MetricsLog._cut", _crash_in_rollback())
        train_until_crash(recipe, tmp_path / "run", watcher)
    train(recipe, tmp_path / "run")
    assert result(tmp_path / "run") == known[bad]


def test_a_moving_average_goes_back_with_the_weights_and_splits_with_the_batches(
    recipe, tmp_path, monkeypatch, places, bad_steps
):
    recipe = change_recipe(recipe, average="ema")
    bad_steps.update(places[i] for i in (1, 10))
    add = memory.add_gradients

    def adding(model, batches, window, **settings):
        if max(batch.n_cells for batch in batches) > 200:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        add(model, batches, window, **settings)

    monkeypatch.setattr(memory, "add_gradients", adding)
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(RunSaver, "save_rollback", crash)
        train_until_crash(recipe, tmp_path / "run", Watcher())
    train_until_crash(recipe, tmp_path / "run")
    train(recipe, tmp_path / "run")
    assert result(tmp_path / "run") == result(tmp_path / "whole")
    last = "checkpoints/step-000012/average.safetensors"
    for name, tensor in load_tensors(tmp_path / "whole" / last).items():
        assert torch.isfinite(tensor).all(), name
        assert torch.equal(load_tensors(tmp_path / "run" / last)[name], tensor), name


def _crash_in_rollback():
    from tformer_cli.trainer.run_logs import MetricsLog

    cut = MetricsLog._cut

    def cutting(self, step, validated, rollbacks):
        if rollbacks is None:
            crash()
        cut(self, step, validated, rollbacks)

    return cutting


def test_a_run_that_fails_again_and_again_gives_up_and_stays_whole(
    recipe, tmp_path, places, monkeypatch
):
    run, true_loss, n_calls = tmp_path / "run", gradients.projected_loss, [0]

    def loss(hidden, *others):
        n_calls[0] += 1
        return true_loss(hidden * (math.nan if n_calls[0] > 7 else 1.0), *others)

    watcher = Watcher()
    with monkeypatch.context() as patch:
        patch.setattr(gradients, "projected_loss", loss)
        with pytest.raises(
            TformerError, match="NaN or infinity after a rollback, 3 times in"
        ) as failed:
            train(recipe, run, observers=[watcher])
    assert failed.value.exit_status == 1
    assert "\n" not in str(failed.value)
    factors = [event.learning_rate_factor for event in watcher.of(RolledBack)]
    assert factors == [0.5, 0.25, 0.125]
    assert Checkpoints(run).steps()[-1] == 6
    assert train(recipe, run).state.step == 12


def test_a_diverging_loss_rolls_back_before_the_suspect_batches(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(report_interval, "JUDGED_STEPS", 4)
    monkeypatch.setattr(report_interval, "LEARNED", 100.0)
    true_loss, n_calls = gradients.projected_loss, [0]

    def loss(*arguments):
        n_calls[0] += 1
        sums = true_loss(*arguments)
        bad = 9 <= n_calls[0] <= 12
        return sums._replace(smoothed=sums.smoothed + 10.0 * len(arguments[2]) * bad)

    monkeypatch.setattr(gradients, "projected_loss", loss)
    recipe = replace(recipe, validation=replace(recipe.validation, every=10))
    watcher = Watcher()
    train(change_recipe(recipe, max_steps=14), tmp_path / "run", observers=[watcher])
    (event,) = watcher.of(RolledBack)
    assert event.problem.startswith("the loss rose from ")
    assert (event.step, event.failed_step) == (6, 12), "step 9 lies within the bad mean"


def test_without_rollbacks_a_run_gives_up_at_once(recipe, tmp_path, places, bad_steps):
    bad_steps.add(places[7])
    with pytest.raises(
        TformerError, match=r"step 8: the .* NaN or infinity; lower training.learning"
    ):
        train(change_recipe(recipe, max_rollbacks=0), tmp_path / "run")
    assert Checkpoints(tmp_path / "run").steps() == [3, 5, 6]


def test_out_of_memory_splits_batches_with_one_warning(recipe, tmp_path, monkeypatch):
    add, n_failed = memory.add_gradients, [0]

    def adding(model, batches, window, **settings):
        if max(batch.n_cells for batch in batches) > 200:
            n_failed[0] += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        add(model, batches, window, **settings)

    monkeypatch.setattr(memory, "add_gradients", adding)
    watcher = Watcher()
    assert train(recipe, tmp_path / "run", observers=[watcher]).state.step == 12
    assert len(watcher.of(BatchSplit)) == 1
    assert n_failed[0] > 1


@pytest.fixture
def disk(tmp_path):
    """A file system of its own; yields a function that mounts it anew with options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    if os.name != "posix" or not mount("size=10m"):
        pytest.skip("file systems cannot be mounted here")
    yield lambda options: mount(f"remount,{options}")
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("kilobytes", [100, 300, *slowly(200, 400)])
def test_a_full_disk_leaves_a_run_that_resumes_when_there_is_room(
    recipe, tmp_path, expected, disk, kilobytes
):
    assert disk(f"size={kilobytes}k")
    with pytest.raises(TformerError, match=r"no space left on device|cannot be written"):
        train(recipe, tmp_path / "disk" / "run")
    assert disk("size=10m")
    train(recipe, tmp_path / "disk" / "run")
    assert result(tmp_path / "disk" / "run") == expected


def test_a_read_only_run_directory_is_refused_and_resumes_when_writable(
    recipe, tmp_path, expected, disk
):
    run = tmp_path / "disk" / "run"
    train_until_crash(recipe, run)
    assert disk("ro")
    with pytest.raises(ArtifactError, match="read-only file system") as refused:
        train(recipe, run)
    assert refused.value.exit_status == 2
    assert disk("rw")
    train(recipe, run)
    assert result(run) == expected


@pytest.mark.parametrize("change", [lambda f: f.unlink(), lambda f: f.write_text("other\n" * 80)])
def test_data_that_change_during_a_run_do_not_touch_it(recipe, data, expected, change):
    train(recipe, data / "run", observers=[at(4, lambda: change(data / "target"))])
    assert result(data / "run") == expected


def test_missing_or_changed_data_are_named_before_a_resumption(recipe, data, expected):
    run, content = data / "run", (data / "target").read_text()
    train_until_crash(recipe, run)
    (data / "target").unlink()
    with pytest.raises(DataError, match=str(data / "target")) as gone:
        train(recipe, run)
    assert gone.value.exit_status == 2
    (data / "target").write_text("other\n" * 80)
    with pytest.raises(
        DataError, match=r"source, target.*: the data have changed since the run began"
    ):
        train(recipe, run)
    (data / "target").write_text(content)
    train(recipe, run)
    assert result(run) == expected


def test_missing_or_changed_data_of_a_finished_run_are_named(recipe, data):
    valid = {"source": "valid", "target": "valid"}
    (data / "valid").write_text("line 1 of 2\nline 3 of 4\nline 5 of 6\n")
    config = replace(recipe.data, valid=(CorpusConfig(**valid),))
    recipe, run = replace(recipe, data=config), data / "run"
    recipe = change_recipe(recipe, max_steps=1)
    done = train(recipe, run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    for name, where in (("target", r"source, target.*"), ("valid", r"data\.valid")):
        content = (data / name).read_text()
        (data / name).write_text(content.replace("1", "7"))
        with pytest.raises(DataError, match=f"^{where}: the data have changed since") as other:
            train(recipe, run)
        (data / name).unlink()
        with pytest.raises(DataError, match=f"no such file {data / name}") as gone:
            train(recipe, run)
        assert other.value.exit_status == gone.value.exit_status == 2
        (data / name).write_text(content)
    again = train(recipe, run)
    assert (again.was_finished, again.state) == (True, done.state)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.parametrize("n_flushes", [13, 31, *slowly(7, 22)])
def test_a_kill_while_a_checkpoint_is_written_leaves_no_trace(
    recipe, tmp_path, expected, n_flushes
):
    run = tmp_path / "run"
    child = os.fork()
    if not child:
        signal.alarm(120)  # a fork may wait for a lock that another thread held
        n_left = [n_flushes]

        def flush(path):
            n_left[0] -= 1
            if not n_left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        atomic.flush_file = flush
        try:
            train(recipe, run)
        finally:
            os._exit(3)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert not (run / "checkpoints" / "step-000012").exists()
    train(recipe, run)
    assert result(run) == expected
    assert not list(run.rglob("*.partial"))


def test_a_kill_during_a_slow_write_leaves_the_checkpoint_before(
    recipe, tmp_path, expected, monkeypatch
):
    run = tmp_path / "run"
    child = os.fork()
    if not child:
        signal.alarm(120)

        def flush_slowly(path):
            if "step-000006" in str(path):
                time.sleep(120)

        monkeypatch.setattr(atomic, "flush_file", flush_slowly)
        try:
            train(recipe, run, observers=[at(8, lambda: os.kill(os.getpid(), signal.SIGKILL))])
        finally:
            os._exit(3)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert [path.suffix for path in (run / "checkpoints").iterdir()].count(".partial") == 1
    assert Checkpoints(run).steps() == [3, 5]
    assert Checkpoints(run).is_sound(5)
    train(recipe, run)
    assert result(run) == expected
    assert not list(run.rglob("*.partial"))


@pytest.mark.parametrize("step", [3, 6, 12])
def test_a_write_that_fails_ends_the_run_with_its_line_and_leaves_the_one_before(
    recipe, tmp_path, expected, monkeypatch, step
):
    run, save = tmp_path / "run", Checkpoints.save

    def failing(self, state, *groups):
        if state.step == step:
            raise atomic.not_writable(self.path(step), OSError(errno.ENOSPC, "no space left"))
        save(self, state, *groups)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", failing)
        with pytest.raises(TformerError, match=rf"step-0000{step:02}: cannot be wri") as failed:
            train(recipe, run)
    assert failed.value.exit_status == 1
    assert Checkpoints(run).steps() == [due for due in (3, 5, 6, 9, 10) if due < step][-3:]
    train(recipe, run)
    assert result(run) == expected


def test_a_signal_waits_for_the_write_that_its_line_names(recipe, tmp_path, monkeypatch, expected):
    run, save = tmp_path / "run", Checkpoints.save

    def saving_late(self, *arguments):
        time.sleep(0.3)
        save(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", saving_late)
        with pytest.raises(Interrupted, match=r"stopped at step 8 .*step-000008"):
            train(recipe, run, observers=[at(8, lambda: signal.raise_signal(signal.SIGTERM))])
    assert Checkpoints(run).is_sound(8)
    train(recipe, run)
    assert result(run) == expected


def test_a_second_training_in_the_directory_is_refused_and_the_first_unharmed(
    recipe, tmp_path, expected
):
    run = tmp_path / "run"

    def second():
        with pytest.raises(
            ArtifactError, match="another training process uses this directory"
        ) as refused:
            train(recipe, run)
        assert refused.value.exit_status == 2

    train(recipe, run, observers=[at(8, second)])
    assert result(run) == expected


def test_one_of_two_that_make_the_directory_at_once_leaves_it_to_the_other(
    recipe, tmp_path, monkeypatch
):
    run, make_directory = tmp_path / "run", workflow.make_directory
    with ExitStack() as first:

        def make_and_lose(path):
            make_directory(path)
            first.enter_context(lock_directory(path))

        monkeypatch.setattr(workflow, "make_directory", make_and_lose)
        with pytest.raises(ArtifactError, match="another training process uses this directory"):
            train(recipe, run)
        assert run.is_dir()


@pytest.mark.parametrize("keys", [{}, {"average": "none", "keep_last": 1, "keep_best": 0}])
def test_after_a_stop_a_run_goes_back_to_where_an_uninterrupted_one_does(
    recipe, tmp_path, places, bad_steps, keys
):
    recipe, run = change_recipe(recipe, **keys), tmp_path / "run"
    bad_steps.add(places[8])
    train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, run, observers=[at(8, lambda: signal.raise_signal(signal.SIGTERM))])
    assert Checkpoints(run).steps()[-2:] == [6, 8]
    watcher = Watcher()
    train(recipe, run, observers=[watcher])
    assert [event.step for event in watcher.of(RolledBack)] == [6]
    assert result(run) == result(tmp_path / "whole")


def test_a_checkpoint_that_may_be_the_only_one_is_there_all_the_time(recipe, tmp_path, monkeypatch):
    recipe = change_recipe(recipe, average="none", keep_last=1, keep_best=0, max_steps=10)
    step, rename, vanished = Checkpoints(tmp_path / "run").path(10), Path.rename, []

    def renaming(self, target):
        was_there = step.exists()
        renamed = rename(self, target)
        vanished.append(was_there and not step.exists())
        return renamed

    monkeypatch.setattr(Path, "rename", renaming)
    train(recipe, tmp_path / "run")
    assert step.exists()
    assert vanished
    assert not any(vanished)


def flip(file):
    """Turns round one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def cut(file):
    os.truncate(file, 50)


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (flip, "model.safetensors"), (cut, "optimizer.safetensors"), (cut, "state.json"),
        *slowly((cut, "model.safetensors"), (flip, "optimizer.safetensors"), (flip, "state.json")),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_passed_over(recipe, tmp_path, expected, file, damage):
    run = tmp_path / "run"
    train_until_crash(recipe, run)
    assert Checkpoints(run).steps()[-2:] == [5, 6]
    damage(Checkpoints(run).path(6) / file)
    watcher = Watcher()
    train(recipe, run, observers=[watcher])
    (started,) = watcher.of(RunStarted)
    assert (
        started.step,
        "resuming from step 5, a later checkpoint is damaged" in started.notes[-1],
    ) == (5, True)
    assert result(run) == expected


def test_a_damaged_checkpoint_is_omitted_from_the_average_with_a_warning(recipe, tmp_path):
    run = tmp_path / "run"
    damaged = Checkpoints(run).path(6) / "model.safetensors"
    watcher = at(12, lambda: flip(damaged))
    # without validation: with scores the best checkpoint may take the place of the average
    data = replace(recipe.data, valid=())
    unscored = replace(
        recipe, data=data, validation=replace(recipe.validation, patience=0, metric="bleu")
    )
    train(unscored, run, observers=[watcher])
    (ended,) = watcher.of(RunEnded)
    assert ended.averaged_steps == (9, 12)
    assert str(damaged) in ended.damaged[0]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_stop_during_a_validation_is_obeyed_and_leaves_no_trace(
    recipe, tmp_path, monkeypatch, expected, number
):
    n_validations, loss = [0], validation.mean_loss

    def losing(*arguments):
        n_validations[0] += 1
        if n_validations[0] == number:
            signal.raise_signal(signal.SIGTERM)
            sums = loss(*arguments)
            raise AssertionError(sums)
        return loss(*arguments)

    monkeypatch.setattr(validation, "mean_loss", losing)
    with pytest.raises(Interrupted) as stopped:
        train(recipe, tmp_path / "run")
    assert stopped.value.exit_status == 143
    train(recipe, tmp_path / "run")
    assert result(tmp_path / "run") == expected


def test_fresh_checks_recipe_and_data_before_it_removes_a_run(recipe, data, expected):
    run = data / "run"
    train(recipe, run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    bad = replace(
        recipe, data=replace(recipe.data, train=(replace(recipe.data.train[0], target="none"),))
    )
    with pytest.raises(DataError, match="none"):
        train(bad, run, fresh=True)
    bad = replace(recipe, tokenizer=replace(recipe.tokenizer, path="nowhere"))
    with pytest.raises(TformerError, match="nowhere"):
        train(bad, run, fresh=True)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before
    other = change_recipe(recipe, max_steps=5)
    assert train(other, run, fresh=True).state.step == 5


def test_a_budget_that_the_run_finds_is_kept_for_resumptions(recipe, tmp_path, monkeypatch):
    recipe = change_recipe(recipe, tokens_per_batch=0)
    free = [3_000_000]
    monkeypatch.setattr("tformer_cli.trainer.batch_budget.free_memory", lambda: free[0])
    train(recipe, tmp_path / "whole")
    watcher = at(8, crash)
    train_until_crash(recipe, tmp_path / "run", watcher)
    assert "the most that fit in memory" in watcher.of(RunStarted)[0].notes[-1]
    free[0] = 30_000_000
    state = train(recipe, tmp_path / "run").state
    assert 20 < state.tokens_per_batch < 600
    assert result(tmp_path / "run") == result(tmp_path / "whole")
    free[0] = 1000
    with pytest.raises(RecipeError, match=r"the longest pair, .* does not fit in memory"):
        train(recipe, tmp_path / "other")
