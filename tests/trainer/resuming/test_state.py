"""The state of a run, its checkpoints and what a resumption checks."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tformer_cli.errors import ArtifactError, UnreadableError
from tformer_cli.structure import StructureError
from tformer_cli.text.loading.loader import LoaderPosition
from tformer_cli.trainer.config import ValidationConfig
from tformer_cli.trainer.events import RolledBack
from tformer_cli.trainer.report_interval import Diverged, LossHistory
from tformer_cli.trainer.resuming.checkpoints import Checkpoints
from tformer_cli.trainer.resuming.saving import roll_back, rollbacks_in_a_row
from tformer_cli.trainer.resuming.state import (
    CONDITIONS,
    TrainingState,
    generator_tensors,
    generators_kept,
    notes_of_changes,
    present_conditions,
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


def test_only_directories_named_by_a_step_are_checkpoints(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.steps() == []
    for name in ("step-000012", "step-1000000", "step-000002", "step-7", "step-x", "other"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-000099").write_text("somebody's file")
    assert checkpoints.steps() == [2, 12, 1000000]
    checkpoints.keep([12])
    assert checkpoints.steps() == [12]
    assert (tmp_path / "checkpoints" / "step-000099").read_text() == "somebody's file"


@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "optimizer.safetensors"])
def test_what_is_no_ordinary_file_is_neither_read_nor_waited_for(tmp_path, spoil, name):
    checkpoints = Checkpoints(tmp_path)
    tensors = {"weight": torch.ones(2)}
    checkpoints.save(TrainingState(step=7), tensors, tensors)
    checkpoints.check(7)
    why = spoil(checkpoints.path(7) / name)
    if "longer" in why and name != "state.json":
        kind, why = ArtifactError, "is damaged or not a safetensors file"
    else:
        kind, why = UnreadableError, rf"cannot be read \({why}\); try again, or remove .*step-"
    with pytest.raises(kind, match=f"{name}: {why}"):
        checkpoints.load_tensors(7, torch.device("cpu"))
    assert not checkpoints.is_sound(7)


def rollbacks(*pairs):
    return [
        RolledBack(step=step, failed_step=failed, problem="", learning_rate_factor=0.5)
        for step, failed in pairs
    ]


@pytest.mark.parametrize(
    ("earlier", "step", "expected"),
    [
        ([], 10, 0),
        ([(10, 15)], 10, 1),
        ([(10, 15)], 15, 1),
        ([(10, 15)], 20, 0),
        ([(10, 15), (10, 12), (10, 19)], 10, 3),
        ([(10, 15), (20, 25), (20, 21)], 20, 2),
        ([(10, 15), (5, 30)], 5, 2),
    ],
)
def test_returns_count_until_a_checkpoint_lies_beyond_the_step_that_failed(earlier, step, expected):
    assert rollbacks_in_a_row(rollbacks(*earlier), step) == expected


class Saver:
    """Of a run whose only checkpoint is that of step 0."""

    def go_back(self, step, fingerprints):
        return TrainingState(fingerprints=fingerprints)

    def save_rollback(self, state):
        self.saved = state


def test_who_computes_is_known_after_a_return():
    conditions = dict(zip(CONDITIONS, (3, True, True, True, "bfloat16", "cpu", 2), strict=True))
    state = TrainingState(step=7, fingerprints=["a"], **conditions)
    saver = Saver()
    back = roll_back(saver, state, Diverged("the loss is no number", 0), 3)
    assert back is saver.saved
    assert back.step == 0
    assert {name: getattr(back, name) for name in CONDITIONS} == conditions


NOW = {
    "world_size": 1,
    "by_kernels": True,
    "is_compiled": False,
    "shards_weights": False,
    "precision": "float32",
    "device": "cpu",
    "n_threads": 2,
}
BEGUN = TrainingState(step=5, **NOW)
CHANCE = "same data and steps, but different dropout and rounding"
ROUNDINGS = "same data and steps, but different rounding"


@pytest.mark.parametrize(
    ("before", "note"),
    [
        ({"world_size": 2}, f"a run of 2 processes resumes with 1; {CHANCE}"),
        (
            {"by_kernels": False},
            f"the run resumes with compiled kernels, unlike before; {CHANCE}",
        ),
        (
            {"is_compiled": True},
            f"the run resumes without torch.compile, unlike before; {CHANCE}",
        ),
        (
            {"shards_weights": True},
            f"the run resumes without training.shard_weights, unlike before; {CHANCE}",
        ),
        (
            {"precision": "bfloat16"},
            f"the run resumes in float32, before it was bfloat16; {ROUNDINGS}",
        ),
        (
            {"device": "cuda", "n_threads": 0},
            f"the run moves from cuda to cpu; {CHANCE}",
        ),
        ({"n_threads": 4}, f"the run resumes with 2 threads, before it had 4; {ROUNDINGS}"),
    ],
)
def test_each_change_is_said(before, note):
    assert notes_of_changes(replace(BEGUN, **before), NOW) == [note]


def test_nothing_is_said_of_what_is_the_same_or_unknown_or_of_a_new_run():
    unknown = {"precision": "", "device": "", "n_threads": 0}
    for state in (BEGUN, replace(BEGUN, **unknown), TrainingState(world_size=3)):
        assert notes_of_changes(state, NOW) == []


def test_the_present_conditions_are_fields_of_a_state(model, one_thread):
    from tformer_cli.artifacts.model_directory import load_model_directory

    three = SimpleNamespace(world_size=3, shards_weights=True)
    conditions = present_conditions(load_model_directory(model).model, "bfloat16", three)
    assert conditions.keys() == set(CONDITIONS)
    state = replace(TrainingState(), **conditions)
    assert (state.world_size, state.by_kernels, state.precision) == (3, False, "bfloat16")
    assert (state.device, state.n_threads) == ("cpu", 1)
