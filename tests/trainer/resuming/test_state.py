import json

import pytest
import torch

from tformer_cli.structure import StructureError
from tformer_cli.text.loading.loader import LoaderPosition
from tformer_cli.trainer.config import ValidationConfig
from tformer_cli.trainer.events import RolledBack
from tformer_cli.trainer.report_interval import LossHistory
from tformer_cli.trainer.resuming.state import (
    TrainingState,
    generator_tensors,
    generators_kept,
    restore_generators,
)

STATE = TrainingState(
    step=7,
    position=LoaderPosition(2, 3),
    tokens=99,
    seconds=1.5,
    validations=[{"step": 5, "bleu": 0.1 + 0.2}],
    fingerprints=["a"],
    tokens_per_batch=300,
    window={"start": 0.1, "n_cells": 3.0},
    losses=LossHistory(means=[0.1, 2.0], loss=0.3, n_target_tokens=4, since=5),
    rollbacks=[RolledBack(step=3, failed_step=4, problem="no", learning_rate_factor=0.5)],
)


def test_a_state_goes_through_json_unchanged():
    assert TrainingState.from_json(json.loads(json.dumps(STATE.to_json()))) == STATE
    assert (STATE.learning_rate_factor, TrainingState().learning_rate_factor) == (0.5, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"step": "7"},
        {"stpe": 7},
        {"position": {"epoch": 1.5}},
        {"position": 3},
        {"validations": [{"step": "x"}]},
        {"validations": None},
        {"fingerprints": [1]},
    ],
)
def test_what_is_no_state_is_refused(change):
    with pytest.raises(StructureError):
        TrainingState.from_json({**STATE.to_json(), **change})


@pytest.mark.parametrize(
    ("metric", "expected"), [("bleu", [20, 30, 10]), ("loss", [10, 30, 20]), ("chrf", [10, 20, 30])]
)
def test_best_steps_follow_the_metric_and_of_equals_the_earlier_is_better(metric, expected):
    validations = [
        {"step": 10, "bleu": 1.0, "loss": 1.0, "chrf": 5.0},
        {"step": 20, "bleu": 3.0, "loss": 3.0, "chrf": 5.0},
        {"step": 30, "bleu": 2.0, "loss": 2.0, "chrf": 5.0},
    ]
    state = TrainingState(step=30, validations=validations)
    config = ValidationConfig(metric=metric)
    assert state.best_steps(config) == expected
    assert state.validations_since_best(config) == (30 - expected[0]) // 10
    assert state.is_validated


def test_generators_go_back_to_where_they_were():
    tensors = generator_tensors(torch.device("cpu"))
    drawn = torch.rand(5)
    torch.rand(100)
    restore_generators(tensors, torch.device("cpu"))
    assert torch.equal(torch.rand(5), drawn)


def test_a_run_leaves_its_caller_the_generators_as_they_were():
    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    with generators_kept(torch.device("cpu")):
        torch.manual_seed(3)
        torch.rand(5)
    assert torch.equal(torch.rand(2), expected)
