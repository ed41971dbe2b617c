import math
from itertools import product
from statistics import fmean, stdev

import numpy as np
import pytest

from tests.plugins.corpora_tools.comparison.systems import FIRST, REFERENCES, SECOND, THIRD
from tformer_cli.metrics.scores import make_metric
from tformer_cli.metrics.significance import MeasuredMetric, TestSettings, paired_test
from tformer_cli.plugins.corpora_tools.comparison.groups import (
    SINGLE,
    Sample,
    critical_t,
    estimate,
    test_systems,
    two_sided_p,
)
from tformer_cli.plugins.corpora_tools.comparison.labels import compare_labelings

SETTINGS = TestSettings(samples=60)
# Two-sided points of 1 % and 0.1 %, likewise
SMALL = {5: (4.032, 6.869), 10: (3.169, 4.587), 20: (2.845, 3.850), 60: (2.660, 3.460)}
# Two-sided 5 % points of Student's t, as printed in every table of it
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 10: 2.228, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("degrees", "t"), TABLE.items())
def test_t_is_that_of_the_printed_tables(degrees, t):
    assert critical_t(degrees) == pytest.approx(t, abs=6e-4)
    assert two_sided_p(t, degrees) == pytest.approx(0.05, abs=5e-5)


@pytest.mark.parametrize(("degrees", "points"), SMALL.items())
def test_small_p_are_those_of_the_printed_tables(degrees, points):
    assert [two_sided_p(t, degrees) for t in points] == pytest.approx([0.01, 0.001], rel=3e-3)


def test_p_of_degrees_between_those_of_the_tables_lies_between_and_follows_the_density():
    # The derivative of p is minus twice the density, with any degrees of freedom
    for degrees, t in product((1.5, 2.3, 7.7, 40.2), (0.5, 2.0, 4.0)):
        slope = (two_sided_p(t + 1e-4, degrees) - two_sided_p(t - 1e-4, degrees)) / 2e-4
        log_norm = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
        density = math.exp(log_norm) / math.sqrt(degrees * math.pi)
        density *= (1 + t * t / degrees) ** (-(degrees + 1) / 2)
        assert slope == pytest.approx(-2 * density, rel=1e-5)


def test_p_is_exact_where_there_is_a_formula():
    for t in (0.0, 0.3, 2.0, 50.0):
        assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-9)
        assert two_sided_p(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-9)
    assert two_sided_p(1.96, 1e6) == pytest.approx(math.erfc(1.96 / math.sqrt(2)), abs=1e-5)


def test_without_sentences_it_is_welchs_test():
    # By hand: s² = 2 and 2, error √(2/2 + 2/2), t = 3/√2, (1 + 1)² / (1 + 1) = 2 degrees of freedom
    change = estimate(Sample(values=(4.0, 6.0)), Sample(values=(1.0, 3.0)))
    assert (change.value, change.degrees) == pytest.approx((3.0, 2.0))
    assert change.p_value == pytest.approx(1 - 3 / math.sqrt(4 + 9))
    assert change.interval == pytest.approx(4.303 * math.sqrt(2), rel=1e-3)


def test_the_interval_of_a_mean_adds_those_of_seeds_and_sentences_as_squares():
    # By hand: t = 4.303 of 2 degrees, s² / n = 1 / 3; t = 1.984 of 99 degrees, v = 0.25
    drawn = np.array([-0.5, 0.5]) * math.sqrt(0.5)
    own = estimate(Sample(values=(1.0, 2.0, 3.0), drawn=drawn, n_sentences=100))
    assert own.interval == pytest.approx(math.hypot(4.303 / math.sqrt(3), 1.984 / 2), rel=1e-3)
    seeds = estimate(Sample(values=(1.0, 2.0, 3.0)))
    assert seeds.interval == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)
    assert own.interval > seeds.interval


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
@pytest.mark.parametrize("sentences", [0.01, 0.2, 1.0, 20.0])
def test_the_interval_holds_the_mean_in_95_of_100_cases(n_seeds, sentences):
    """The variance over sentences is that over the mean of the seeds times `sentences`."""
    generator = np.random.default_rng(3)
    error = math.sqrt(sentences / n_seeds)
    held = 0
    for _ in range(1000):
        # Sentences move all seeds alike, and resamples of them have the same spread
        values = generator.normal(0.0, 1.0, n_seeds) + generator.normal(0.0, error)
        drawn = generator.normal(0.0, error, 200)
        sample = Sample(values=values.tolist(), drawn=drawn, n_sentences=1000)
        held += abs(sample.mean) <= estimate(sample).interval
    # 1,000 times 95 % is 950, give or take 7; with few seeds the interval is a little too wide
    assert 930 <= held <= 996


def simulate_scores(generator, n_seeds, n_sentences=80, gain=0.0):
    """Scores (2, n_seeds, N) of two systems: sentences of their own difficulty, seeds of theirs."""
    difficulty = generator.normal(0.0, 1.0, n_sentences)
    taste = generator.normal(0.0, 0.4, (2, 1, n_sentences))
    seeds = generator.normal(0.0, 0.3, (2, n_seeds, 1))
    noise = generator.normal(0.0, 0.5, (2, n_seeds, n_sentences))
    scores = difficulty + taste + seeds + noise
    scores[1] += gain
    return scores


def p_values(generator, n_times, n_seeds, gain=0.0):
    """p of the test and of a plain bootstrap of seeds and sentences, on simulated systems."""
    for _ in range(n_times):
        scores = simulate_scores(generator, n_seeds, gain=gain)
        n_sentences = scores.shape[-1]
        places = generator.integers(n_sentences, size=(100, n_sentences))
        base, other = (
            Sample(
                values=own.mean(axis=1).tolist(),
                drawn=own.mean(axis=0)[places].mean(axis=1),
                n_sentences=n_sentences,
            )
            for own in scores
        )
        chosen = generator.integers(n_seeds, size=(2, 100, n_seeds))
        drawn = [
            np.array([own[s][:, p].mean() for s, p in zip(seeds, places, strict=True)])
            for own, seeds in zip(scores, chosen, strict=True)
        ]
        share = float((drawn[1] - drawn[0] > 0.0).mean())
        yield estimate(other, base).p_value, 2.0 * min(share, 1.0 - share)


def test_equal_systems_are_rarely_called_different_which_a_bootstrap_of_three_seeds_does_not_do():
    tested, drawn = np.array([*p_values(np.random.default_rng(1), 300, 3)]).T
    # 300 times 5 % is 15, give or take 3.8
    assert 0.015 < (tested <= 0.05).mean() < 0.085
    assert (drawn <= 0.05).mean() > 0.10


def test_a_clear_difference_is_found_with_three_seeds():
    tested, _ = np.array([*p_values(np.random.default_rng(2), 30, 3, gain=2.0)]).T
    assert (tested <= 0.05).mean() > 0.9


def test_translations_are_scored_by_hand_alike():
    metric = MeasuredMetric(make_metric("chrf"), [REFERENCES])
    systems = [[FIRST, SECOND], [THIRD, REFERENCES, FIRST]]
    (tested,) = test_systems(systems, [metric], SETTINGS)
    score = make_metric("chrf").corpus_score
    for own, runs in zip(tested.scores, systems, strict=True):
        values = [score(list(run), [list(REFERENCES)]).score for run in runs]
        assert own.values == pytest.approx(values)
        assert (own.value, own.deviation) == pytest.approx((fmean(values), stdev(values)))
    # The draws are those of `paired_test` for each run, by the same seed
    generator = np.random.default_rng(SETTINGS.seed)
    places = generator.choice(60, size=(60, 60), replace=True)
    drawn = [
        fmean(score([run[i] for i in draw], [[REFERENCES[i] for i in draw]]).score for run in runs)
        for draw, runs in product(places, systems)
    ]
    v = np.var(np.array(drawn[1::2]) - np.array(drawn[::2]), ddof=1)
    spread = [stdev(own.values) ** 2 / len(own.values) for own in tested.scores]
    t = (tested.scores[1].value - tested.scores[0].value) / math.sqrt(sum(spread) + v)
    degrees = (sum(spread) + v) ** 2 / (spread[0] ** 2 + spread[1] ** 2 / 2 + v**2 / 59)
    assert tested.scores[1].degrees == pytest.approx(degrees, rel=1e-4)
    assert tested.scores[1].p_value == pytest.approx(two_sided_p(t, degrees), rel=1e-4)


def test_single_runs_keep_sacrebleus_test_and_groups_do_not_judge_them():
    metrics = [MeasuredMetric(make_metric("bleu"), [REFERENCES])]
    alone = test_systems([[FIRST], [SECOND]], metrics, SETTINGS)
    assert alone == paired_test([FIRST, SECOND], metrics, SETTINGS)
    (mixed,) = test_systems([[FIRST], [SECOND], [SECOND, THIRD]], metrics, SETTINGS)
    assert mixed.scores[1].p_value == alone[0].scores[1].p_value
    assert mixed.scores[1].interval == pytest.approx(alone[0].scores[1].interval, rel=0.2)
    assert (mixed.scores[2].p_value, mixed.scores[2].untested) == (None, SINGLE)
    (same,) = test_systems([[FIRST, FIRST], [FIRST, FIRST]], metrics, SETTINGS)
    assert same.scores[1].p_value is None or same.scores[1].p_value == 1.0
    assert not same.scores[1].is_significant


def test_labels_of_several_runs_are_means():
    right = ["a", "b"] * 20
    good, bad = right.copy(), ["a"] * 40
    half = right[:20] + ["a"] * 20
    compared = compare_labelings({"base": [bad, half], "new": [good, good, half]}, right)
    accuracy = compared.systems[1].measures[0]
    assert accuracy.values == (100.0, 100.0, 75.0)
    assert (accuracy.baseline, accuracy.value) == pytest.approx((62.5, 275 / 3))
    assert accuracy.low < accuracy.difference < accuracy.high
    wins = compared.systems[1].wins
    assert (wins.better, wins.worse, wins.equal) == (20, 0, 20)
