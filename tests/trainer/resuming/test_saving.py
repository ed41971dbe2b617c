"""Checkpoints that a thread writes while training goes on."""

import errno
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from tests.trainer.processes.jobs import environment
from tests.watched_training import sha256
from tformer_cli.errors import ArtifactError, TformerError
from tformer_cli.files.atomic import not_writable
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.recipe import load_recipe
from tformer_cli.train.train import train
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.optimizers.optimizer import MovingAverage, make_optimizer
from tformer_cli.trainer.resuming import saving
from tformer_cli.trainer.resuming.checkpoints import Checkpoints
from tformer_cli.trainer.resuming.saving import RunSaver
from tformer_cli.trainer.resuming.state import TrainingState

LATEST = 60.0
"""Seconds after which a test that waits has failed."""


def change_weights(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)


@pytest.fixture
def make(tmp_path):
    """Makes a saver with a model after one step of training, as often as asked the same."""

    def make_saver(name="run"):
        torch.manual_seed(1)
        shape = ModelConfig(d_model=8, n_heads=2, d_ff=8, n_encoder_layers=1, n_decoder_layers=1)
        model = Transformer(shape, 20)
        config = TrainingConfig(max_steps=9, checkpoint_every=1, average_checkpoints=3)
        optimizer = make_optimizer(model, config)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        average = MovingAverage(model, 0.9)
        checkpoints = Checkpoints(tmp_path / name)
        return RunSaver(model, optimizer, checkpoints, config, None, average=average), model

    return make_saver


@pytest.fixture
def held(monkeypatch):
    """Holds every write of a checkpoint until it is released; returns (begun, released)."""
    begun, released, save = Event(), Event(), Checkpoints.save

    def saving_late(self, *arguments):
        begun.set()
        assert released.wait(LATEST)
        save(self, *arguments)

    monkeypatch.setattr(Checkpoints, "save", saving_late)
    yield begun, released
    released.set()


def test_what_a_thread_writes_is_byte_for_byte_what_training_would_have_waited_for(
    make, tmp_path, monkeypatch, held
):
    saver, model = make("thread")
    state, published = TrainingState(step=1), []
    saver.save(state, lambda weights: published.append(dict(weights)))
    expected = {name: tensor.clone() for name, tensor in saver._average.tensors().items()}
    change_weights(model)
    change_weights(saver._average.model)
    state.step, state.tokens = 2, 99
    assert saver.newest_write().step == 0, "the write is held, and nobody waits"
    held[1].set()
    saver.wait()
    assert saver.newest_write().step == 1
    assert saver.checkpoints.is_sound(1), "its checksums, which were computed from memory"
    assert all(torch.equal(published[0][name], expected[name]) for name in expected)
    monkeypatch.setattr(saving, "COPY_SHARE", 0.0)
    plain, _ = make("plain")
    plain.save(TrainingState(step=1))
    assert plain.newest_write().step == 1, "without room for a copy it has waited"
    files = sorted(saver.checkpoints.path(1).iterdir())
    assert [file.name for file in files] == [
        "average.safetensors", "model.safetensors", "optimizer.safetensors", "state.json",
    ]  # fmt: skip
    for file in files:
        assert sha256(file) == sha256(plain.checkpoints.path(1) / file.name)


def test_a_second_write_waits_for_the_first(make, held):
    begun, released = held
    saver, _ = make()
    saver.save(TrainingState(step=1))
    second = Thread(target=saver.save, args=(TrainingState(step=2),))
    second.start()
    assert begun.wait(LATEST)
    second.join(0.1)
    assert second.is_alive()
    assert saver.checkpoints.steps() == []
    released.set()
    second.join(LATEST)
    assert saver.newest_write().step == 1
    saver.wait()
    assert saver.checkpoints.steps() == [1, 2]


@pytest.fixture
def full_disk(monkeypatch):
    """Lets every checkpoint fail as on a full disk."""

    def failing(self, state, *_):
        raise not_writable(self.path(state.step), OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(Checkpoints, "save", failing)


MESSAGE = r"step-000001: cannot be written \(no space left on device\)"


@pytest.mark.parametrize(
    "ask",
    [
        RunSaver.wait,
        lambda saver: saver.save(TrainingState(step=2)),
        lambda saver: saver.go_back(1, []),
        lambda saver: saver.sound_averaged_steps(TrainingState(step=2)),
    ],
)
def test_whoever_needs_a_checkpoint_hears_that_it_could_not_be_written(make, full_disk, ask):
    saver, _ = make()
    saver.save(TrainingState(step=1))
    with pytest.raises(ArtifactError, match=MESSAGE) as failed:
        ask(saver)
    assert failed.value.exit_status == TformerError.exit_status
    assert saver.checkpoints.steps() == []


def test_a_step_hears_of_it_as_soon_as_it_has_failed(make, full_disk):
    saver, _ = make()
    saver.save(TrainingState(step=1))
    saver._writing.exception(LATEST)
    with pytest.raises(ArtifactError, match=MESSAGE):
        saver.newest_write()


def test_an_error_of_the_training_is_raised_after_the_write_and_before_its_error(make, full_disk):
    saver, _ = make()
    saver.save(TrainingState(step=1))
    with pytest.raises(KeyError, match="training") as failed, saver.finish_writes():
        raise KeyError("training")
    assert "no space left" in str(failed.value.__cause__)


def test_so_is_one_before_an_unforeseen_error_of_the_write(make, monkeypatch):
    monkeypatch.setattr(Checkpoints, "save", lambda *_: {}["file"])
    saver, _ = make()
    saver.save(TrainingState(step=1))
    with pytest.raises(ValueError, match="training") as failed, saver.finish_writes():
        raise ValueError("training")
    assert isinstance(failed.value.__cause__, KeyError)


def test_a_second_interrupt_does_not_wait(make, held):
    saver, _ = make()
    saver.save(TrainingState(step=1))
    with pytest.raises(KeyboardInterrupt), saver.finish_writes():
        raise KeyboardInterrupt
    assert not saver._writing.done()


@pytest.mark.parametrize("moment", ["held", "busy"])
def test_nor_does_the_program_and_the_half_written_part_is_no_checkpoint(tmp_path, moment):
    script = Path(__file__).with_name("interrupted_twice.py")
    words = [sys.executable, script, tmp_path, moment]
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=LATEST, env=environment()
    )
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert "FATAL" not in done.stderr
    run = tmp_path / "run"
    (partial,) = (run / "checkpoints").glob("step-000002.*")
    assert Checkpoints(run).steps() == []
    train(load_recipe(str(run / "recipe.toml")), run)
    assert not partial.exists()
    assert Checkpoints(run).steps() == [2, 4]


def test_the_end_of_a_run_waits_for_its_last_checkpoint(make, held):
    begun, released = held
    saver, _ = make()
    for ending in (None, KeyError("training")):
        released.clear()
        step = saver.newest_write().step + 1

        def end(step=step, ending=ending):
            with saver.finish_writes():
                saver.save(TrainingState(step=step))
                if ending is not None:
                    raise ending

        def release():
            assert begun.wait(LATEST)
            released.set()

        Thread(target=release).start()
        if ending is None:
            end()
        else:
            with pytest.raises(KeyError, match="training"):
                end()
        assert saver.checkpoints.is_sound(step)
