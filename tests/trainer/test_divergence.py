import random

import pytest

from tformer_cli.trainer.report_interval import (
    JUDGED_STEPS,
    REMEMBERED,
    Diverged,
    LossHistory,
    highest_mean,
    uniform_loss,
)

GUESS = uniform_loss(0.1, 8000)


def feed(history, means, start=0, tokens=1000):
    for number, mean in enumerate(means, start=start + 1):
        history.add(number * JUDGED_STEPS, mean * tokens, tokens, GUESS)


def falling(noise=0.3):
    draw = random.Random(3)
    return [1.5 + 8.0 / (1 + 0.3 * i) + draw.uniform(-noise, noise) for i in range(200)]


def test_a_run_that_learns_noisily_is_never_called_diverged():
    history = LossHistory()
    feed(history, falling())
    assert len(history.means) == REMEMBERED


def test_the_start_may_rise_as_it_likes():
    feed(LossHistory(), [GUESS + 1, GUESS, GUESS + 6, GUESS + 12])


@pytest.mark.parametrize("good", [5, 50])
def test_losing_half_of_what_was_learned_is_a_divergence(good):
    history = LossHistory()
    feed(history, falling()[:good])
    best = min(history.means)
    with pytest.raises(Diverged, match="the loss rose from ") as seen:
        feed(history, [highest_mean(best, GUESS) + 0.01], start=good)
    assert seen.value.last_good_step == good * JUDGED_STEPS
    assert 1.0 <= highest_mean(best, GUESS) - best < GUESS


def test_a_mean_over_few_steps_is_not_judged_but_waited_for():
    history = LossHistory()
    feed(history, [1.0])
    history.add(JUDGED_STEPS + 1, 90.0, 10, GUESS)  # one odd batch
    history.add(2 * JUDGED_STEPS, 190.0, 190, GUESS)
    assert history.means == [1.0, 280 / 200]


def test_a_guesser_loses_the_logarithm_of_the_vocabulary():
    assert uniform_loss(0.0, 1000) == pytest.approx(6.907755)
    assert 0.0 < uniform_loss(0.1, 1000) < 6.9
