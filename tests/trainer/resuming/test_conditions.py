from dataclasses import replace

import pytest

from tformer_cli.trainer.resuming.state import (
    CONDITIONS,
    TrainingState,
    notes_of_changes,
    present_conditions,
)

NOW = {
    "world_size": 1,
    "by_kernels": True,
    "precision": "float32",
    "device": "cpu",
    "n_threads": 2,
}
STATE = TrainingState(step=5, **NOW)
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
    assert notes_of_changes(replace(STATE, **before), NOW) == [note]


def test_nothing_is_said_of_what_is_the_same_or_unknown_or_of_a_new_run():
    unknown = {"precision": "", "device": "", "n_threads": 0}
    for state in (STATE, replace(STATE, **unknown), TrainingState(world_size=3)):
        assert notes_of_changes(state, NOW) == []


def test_the_present_conditions_are_fields_of_a_state(model, one_thread):
    from tformer_cli.artifacts.model_directory import load_model_directory

    found = present_conditions(load_model_directory(model).model, "bfloat16", 3)
    assert found.keys() == set(CONDITIONS)
    state = replace(TrainingState(), **found)
    assert (state.world_size, state.by_kernels, state.precision) == (3, False, "bfloat16")
    assert (state.device, state.n_threads) == ("cpu", 1)
