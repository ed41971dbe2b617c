import math
from itertools import pairwise

import pytest

from tformer_cli.trainer.config import TrainingConfig, ValidationConfig
from tformer_cli.trainer.optimizers.schedule import (
    batches_per_step,
    end_reason,
    learning_rate,
    share_done,
)
from tformer_cli.trainer.resuming.state import TrainingState


def rate(schedule, step, share=0.0, **changes):
    config = TrainingConfig(schedule=schedule, warmup_steps=4000, max_steps=100_000, **changes)
    return learning_rate(config, step, share, 512)


def test_noam_is_the_papers_formula():
    for step in (1, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert math.isclose(rate("noam", step, learning_rate=1.0), expected)
    assert math.isclose(rate("noam", 4000, learning_rate=1.0), 6.9877e-4, rel_tol=1e-4)


def test_inverse_sqrt_is_noams_curve_with_another_peak():
    for step in (1, 2000, 4000, 16_000):
        ratio = rate("inverse_sqrt", step, learning_rate=1e-3) / rate("noam", step)
        assert math.isclose(ratio, rate("inverse_sqrt", 1) / rate("noam", 1))
    assert math.isclose(rate("inverse_sqrt", 4000, learning_rate=1e-3), 1e-3)
    assert math.isclose(rate("inverse_sqrt", 16_000, learning_rate=1e-3), 5e-4)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_linear_and_cosine_rise_then_fall_to_nothing(schedule):
    assert math.isclose(rate(schedule, 1000, learning_rate=1.0), 0.25)
    assert math.isclose(rate(schedule, 50_000, 0.5, learning_rate=1.0), 0.5)
    assert rate(schedule, 100_000, 1.0) == pytest.approx(0.0, abs=1e-12)


def test_constant_stays_and_no_warm_up_means_none():
    assert rate("constant", 99_000, 0.99, learning_rate=0.5) == 0.5
    config = TrainingConfig(schedule="constant", warmup_steps=0, learning_rate=0.5)
    assert learning_rate(config, 1, 0.0, 512) == 0.5
    noam = TrainingConfig(schedule="noam", warmup_steps=0, learning_rate=1.0)
    assert learning_rate(noam, 1, 0.0, 256) == 1 / 16


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_step_from_rise_to_fall_is_small_and_the_last_step_still_learns(schedule):
    config = TrainingConfig(schedule=schedule, warmup_steps=20, max_steps=100, learning_rate=1.0)
    rates = [learning_rate(config, step, (step - 1) / 100, 512) for step in range(1, 101)]
    assert max(abs(later - earlier) for earlier, later in pairwise(rates)) <= 1 / 20 + 1e-9
    assert 0.0 < rates[-1] < 0.02
    assert 0.8 <= max(rates) <= 1.0


@pytest.mark.parametrize("schedule", ["noam", "inverse_sqrt", "linear", "cosine", "constant"])
def test_warm_up_fits_the_time_given_however_slow_the_machine(schedule):
    config = TrainingConfig(
        schedule=schedule, warmup_steps=4000, max_minutes=10.0, learning_rate=1.0, warmup_share=0.2
    )
    peak = 4000**-0.5 * 512**-0.5 if schedule == "noam" else 1.0
    for n_steps in (50, 1000, 5000):  # made within the ten minutes
        rates = [
            learning_rate(config, step, (step - 1) / n_steps, 512, 600.0 * (step - 1) / n_steps)
            for step in range(1, n_steps + 1)
        ]
        risen = rates.index(max(rates)) / n_steps
        assert 0.15 <= risen <= 0.24
        assert 0.78 * peak <= max(rates) <= 1.001 * peak


def test_time_does_not_touch_runs_of_another_limit_or_fast_ones():
    config = TrainingConfig(warmup_steps=100, max_steps=50)
    assert learning_rate(config, 7, 0.1, 512, 5.0) == learning_rate(config, 7, 0.1, 512)
    fast = TrainingConfig(warmup_steps=100, max_minutes=1.0)
    steady = TrainingConfig(warmup_steps=100)
    for step in (10, 99, 100, 5000):
        assert learning_rate(fast, step, 0.0, 512, step / 1000) == learning_rate(
            steady, step, 0.0, 512
        )


def test_batches_grow_from_each_share_on():
    growth = ((0.5, 2), (0.75, 5))
    config = TrainingConfig(max_steps=10, accumulate=3, batch_growth=growth)
    shares = (0.0, 0.49, 0.5, 0.74, 0.75, 1.0)
    assert [batches_per_step(config, share) for share in shares] == [3, 3, 6, 6, 15, 15]
    assert batches_per_step(TrainingConfig(accumulate=3), 0.9) == 3


@pytest.mark.parametrize(
    ("growth", "limit", "message"),
    [
        (((0.5, 2),), 0, "batch_growth: needs the run's end; give max_steps"),
        (((0.5, 2), (0.5, 4)), 9, r"shares must rise between 0 and 1, but 0\.5 follows 0\.5"),
        (((1.0, 2),), 9, r"but 1\.0 follows 0\.0"),
        (((0.5, 0),), 9, "factors must be at least 1, but one is 0"),
    ],
)
def test_growth_that_makes_no_sense_is_an_error(growth, limit, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(max_steps=limit, batch_growth=growth)


NEVER = ValidationConfig()


@pytest.mark.parametrize(
    ("limit", "half", "over"),
    [
        ({"max_steps": 10}, {"step": 5}, {"step": 10}),
        ({"max_tokens": 600}, {"tokens": 300}, {"tokens": 610}),
        ({"max_minutes": 0.5}, {"seconds": 15.0}, {"seconds": 30.0}),
        (
            {"max_minutes": 0.5},
            {"seconds": 8.0, "seconds_to_end": 7.0},
            {"seconds": 23.0, "seconds_to_end": 7.0},
        ),
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
