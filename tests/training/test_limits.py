import pytest

from tformer_cli.training.config import TrainingConfig, ValidationConfig
from tformer_cli.training.limits import end_reason, share_done
from tformer_cli.training.state import TrainingState

NEVER = ValidationConfig()


@pytest.mark.parametrize(
    ("limit", "half", "over"),
    [
        ({"max_steps": 10}, {"step": 5}, {"step": 10}),
        ({"max_tokens": 600}, {"tokens": 300}, {"tokens": 610}),
        ({"max_minutes": 0.5}, {"seconds": 15.0}, {"seconds": 30.0}),
    ],
)
def test_each_limit_has_its_share_and_its_reason(limit, half, over):
    config = TrainingConfig(**limit)
    assert share_done(config, TrainingState(**half), 0.0) == 0.5
    assert end_reason(config, NEVER, TrainingState(**half), 0.0) == ""
    assert share_done(config, TrainingState(**over), 0.0) == 1.0
    name, value = next(iter(limit.items()))
    assert end_reason(config, NEVER, TrainingState(**over), 0.0) == f"{name} = {value} is reached"


def test_epochs_count_with_their_fraction():
    config = TrainingConfig(max_epochs=4)
    assert share_done(config, TrainingState(), 3.5) == 0.875
    assert end_reason(config, NEVER, TrainingState(), 3.99) == ""
    assert end_reason(config, NEVER, TrainingState(), 4.0) == "max_epochs = 4 is reached"


def test_the_nearest_limit_decides_and_without_one_nothing_is_done():
    config = TrainingConfig(max_steps=10, max_tokens=1000)
    assert share_done(config, TrainingState(step=2, tokens=900), 0.0) == 0.9
    assert share_done(TrainingConfig(), TrainingState(step=99), 7.0) == 0.0


def test_patience_ends_after_validations_without_a_new_best():
    validation = ValidationConfig(metric="bleu", patience=2)
    state = TrainingState()
    found = []
    for step, bleu in enumerate((1.0, 3.0, 3.0, 2.0, 1.0), start=1):
        state.step = step
        is_best = state.add_validation({"bleu": bleu}, validation)
        found.append((is_best, bool(end_reason(TrainingConfig(), validation, state, 0.0))))
    assert found == [(True, False), (True, False), (False, False), (False, True), (False, True)]
