"""Trainings that are watched, stopped and resumed."""

import hashlib
import os
import signal

import pytest

from tformer_cli.errors import Interrupted
from tformer_cli.train.train import train
from tformer_cli.trainer.events import StepReport


class Watcher:
    """Collects events, and does something at some of them."""

    def __init__(self, action=None, when=lambda event: False):
        self.events, self._action, self._when = [], action, when

    def notify(self, event):
        self.events.append(event)
        if self._when(event):
            self._action()

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def at(step, action):
    """Watches, and does something when a step is reported."""
    return Watcher(action, lambda event: isinstance(event, StepReport) and event.step == step)


def crash(*ignored):
    raise KeyError("the power is cut")


def crash_at(recipe, run, step):
    """Trains until a step is reported."""
    with pytest.raises(KeyError, match="power"):
        train(recipe, run, observers=[at(step, crash)])


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest(run):
    """Of the weights that a run has published."""
    return sha256(run / "model.safetensors")


def check_a_stop_leaves_no_trace(recipe, directory, step):
    """Trains at once and, by SIGINT, in two parts; both end with the same bytes."""
    whole, parts = directory / "whole", directory / "parts"
    train(recipe, whole, device="cpu")
    with pytest.raises(Interrupted):
        train(recipe, parts, device="cpu", observers=[at(step, interrupt)])
    train(recipe, parts, device="cpu")
    assert digest(parts) == digest(whole)
