import pytest

from tformer_cli.training.events import PaceMeasured
from tformer_cli.training.pace import Pace


def told(steps):
    """All that is told of (step, seconds, share done), one after another."""
    pace = Pace()
    return [event for step in steps if (event := pace.after_step(*step)) is not None]


def test_the_first_step_does_not_count_and_the_pace_is_told_once():
    # 5 s of loading code, then half a second a step
    steps = [(step, 5.0 + 0.5 * (step - 1), step / 400) for step in range(1, 50)]
    assert told(steps) == [PaceMeasured(step=0, n_steps=400, seconds=pytest.approx(200.0))]


@pytest.mark.parametrize(("seconds_a_step", "last"), [(0.01, 101), (0.5, 5), (30.0, 5)])
def test_a_second_and_four_steps_are_measured_at_least(seconds_a_step, last):
    pace = Pace()
    for step in range(1, last):
        assert pace.after_step(step, seconds_a_step * step, step / 1000) is None
        assert pace.is_measuring
    event = pace.after_step(last, seconds_a_step * last + 1e-6, last / 1000)
    assert event is not None
    assert event.seconds == pytest.approx(1000 * seconds_a_step, rel=1e-3)
    assert not pace.is_measuring


def test_a_resumption_foresees_what_is_left():
    steps = [(step, 100.0 + (step - 301), step / 400) for step in range(301, 320)]
    assert told(steps) == [PaceMeasured(step=300, n_steps=100, seconds=pytest.approx(100.0))]


def test_nothing_is_foreseen_of_a_run_without_a_limit():
    assert told([(step, float(step), 0.0) for step in range(1, 50)]) == []


def test_a_rollback_in_the_first_steps_does_no_harm():
    steps = [1, 2, 3, 1, 2, 3, 4, 5, 6]
    events = told([(step, float(i), step / 100) for i, step in enumerate(steps)])
    assert [event.step for event in events] == [0]
