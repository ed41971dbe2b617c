"""Differences that are no chance, and errors of alignments."""

import os
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from tformer_cli.inspect.alignment import symmetrize
from tformer_cli.metrics.alignment_error import (
    AlignmentCounts,
    best_single_links,
    diagonal_links,
)
from tformer_cli.metrics.labels import score_labels
from tformer_cli.metrics.resampling import draws
from tformer_cli.metrics.scores import bleu, chrf
from tformer_cli.metrics.significance import PairedScores, compare_labels, compare_losses, p_text
from tformer_cli.text.pharaoh import GoldLinks, parse_links

REFERENCES = [[f"the cat number {i} sat on the old mat" for i in range(30)]]


def test_one_sentence_proves_nothing():
    single = np.array([2.0])
    (result,) = compare_losses(single, np.array([[3.0]]), np.array([4]))
    assert (result.difference, result.p_value) == (0.25, 1.0)
    several = np.full(30, 2.0)
    (result,) = compare_losses(several, several[None] + 1.0, np.full(30, 4))
    assert result.p_value < 0.01
    assert compare_labels(["a"], ["b"], ["b"])[0].p_value == 1.0
    before = PairedScores([REFERENCES[0][0]], [REFERENCES[0][:1]], n_resamples=20)
    assert before.compare(["a dog"])[0].p_value == 1.0


def test_scores_are_sacrebleus_own_on_the_text_and_on_a_draw():
    baseline = [line.replace("old", "new") if i % 3 else line for i, line in enumerate(*REFERENCES)]
    worse = [line.replace("sat", "lay") if i % 2 else line for i, line in enumerate(baseline)]
    paired = PairedScores(baseline, REFERENCES, n_resamples=50, seed=4)
    found_bleu, found_chrf = paired.compare(worse)
    assert found_bleu.value == pytest.approx(bleu(worse, REFERENCES).value)
    assert found_bleu.baseline == pytest.approx(bleu(baseline, REFERENCES).value)
    assert found_chrf.value == pytest.approx(chrf(worse, REFERENCES).value)
    assert paired.signatures["BLEU"] == bleu(worse, REFERENCES).signature
    drawn = []
    for counts in draws(30, 50, 4):
        lines = np.repeat(np.arange(30), counts)
        streams = [[REFERENCES[0][i] for i in lines]]
        scores = [BLEU().corpus_score([t[i] for i in lines], streams) for t in (baseline, worse)]
        drawn.append(scores[1].score - scores[0].score)
    assert found_bleu.low == pytest.approx(np.quantile(drawn, 0.025))
    assert found_bleu.p_value == (1 + sum(d >= 0 for d in drawn)) / 51


def test_no_difference_has_p_one_and_a_clear_one_the_smallest():
    paired = PairedScores(REFERENCES[0], REFERENCES, n_resamples=99)
    assert {d.p_value for d in paired.compare(REFERENCES[0])} == {1.0}
    assert {d.p_value for d in paired.compare(["x"] * 30)} == {0.01}


def test_losses_are_compared_per_token_and_the_same_for_the_same_seed():
    generator = np.random.default_rng(0)
    n_tokens = generator.integers(3, 30, size=200)
    baseline = n_tokens * generator.uniform(1, 2, size=200)
    noise = generator.normal(size=(2, 200))
    others = np.stack((baseline + noise[0], baseline + n_tokens * (0.3 + 0.1 * noise[1])))
    chance, clear = compare_losses(baseline, others, n_tokens, seed=7)
    assert clear.difference == pytest.approx(((others[1] - baseline).sum()) / n_tokens.sum())
    assert clear.low < clear.difference < clear.high
    assert clear.p_value == 1 / 1001
    assert 0.01 < chance.p_value <= 1.0
    (undefined,) = compare_losses(baseline, np.full((1, 200), np.nan), n_tokens)
    assert undefined.p_value == 1.0
    assert [chance, clear] == compare_losses(baseline, others, n_tokens, seed=7)
    assert chance != compare_losses(baseline, others, n_tokens, seed=8)[0]


def test_labels_are_compared_as_they_are_scored():
    generator = np.random.default_rng(3)
    names = np.array(["a", "b", "c"])
    right = names[generator.integers(3, size=80)].tolist()
    first = [label if generator.random() < 0.5 else "b" for label in right]
    second = [label if generator.random() < 0.8 else "c" for label in right]
    accuracy, macro = compare_labels(first, second, right, n_resamples=40, seed=9)
    for labels, place in ((first, "baseline"), (second, "value")):
        scores = score_labels(labels, right, names.tolist())
        assert getattr(accuracy, place) == pytest.approx(100 * scores.accuracy)
        assert getattr(macro, place) == pytest.approx(100 * scores.macro_f1)
    drawn = []
    for counts in draws(80, 40, 9):
        chosen = np.repeat(np.arange(80), counts)
        ends = [
            score_labels([labels[i] for i in chosen], [right[i] for i in chosen], names.tolist())
            for labels in (first, second)
        ]
        drawn.append(100 * (ends[1].macro_f1 - ends[0].macro_f1))
    assert macro.low == pytest.approx(np.quantile(drawn, 0.025))
    assert macro.p_value == (1 + sum(d * macro.difference <= 0 for d in drawn)) / 41
    assert {difference.p_value for difference in compare_labels(first, first, right)} == {1.0}


def gold(line):
    return parse_links(line, "gold:1")


def count_links(*sentences):
    counts = AlignmentCounts()
    for links, line in sentences:
        counts.add(links, gold(line))
    return counts


@pytest.mark.parametrize(
    ("links", "line", "expected"),
    [
        ({(0, 0), (1, 1)}, "0-0 1-1", (0.0, 1.0, 1.0)),
        ({(0, 1), (1, 0)}, "0-0 1-1", (1.0, 0.0, 0.0)),
        (set(), "0-0", (1.0, 1.0, 0.0)),
        ({(0, 0), (0, 1)}, "0-0 0?1", (0.0, 1.0, 1.0)),  # possible links are no errors
        ({(0, 1)}, "0-0 0?1", (0.5, 1.0, 0.0)),  # nor do they make up for sure ones
        ({(0, 0), (2, 2)}, "0-0 1-1", (0.5, 0.5, 0.5)),
    ],
)
def test_measures_of_known_cases(links, line, expected):
    counts = count_links((links, line))
    assert (counts.error_rate, counts.precision, counts.recall) == pytest.approx(expected)


def test_sums_are_of_the_corpus_and_lines_must_correspond():
    right = count_links(({(0, 0)}, "0-0"), ({(1, 2), (2, 1)}, "1-2 2-1 3?3"))
    assert (right.n_links, right.sure, right.error_rate) == (3, 3, 0.0)
    assert count_links(({(1, 2), (2, 1)}, "0-0"), ({(0, 0)}, "1-2 2-1 3?3")).error_rate == 1.0


def test_floor_and_ceiling():
    assert diagonal_links(3, 5) == {(0, 0), (1, 1), (1, 2), (2, 3), (2, 4)}
    assert diagonal_links(5, 1) == {(0, 0)}
    assert diagonal_links(0, 2) == diagonal_links(2, 0) == set()
    assert best_single_links(gold("0?0 1-0 2?1 3-3 4-3")) == {(1, 0), (2, 1), (3, 3)}
    assert best_single_links(GoldLinks(frozenset(), frozenset())) == set()


FOLDER = os.environ.get("TFORMER_ALIGNMENTS")
PUBLISHED = {
    "giza": {"forward": 8.0, "reverse": 9.8, "intersection": 7.6, "union": 9.9, "grow-diag": 5.9},
    "fastalign": {
        "forward": 16.4,
        "reverse": 15.9,
        "intersection": 11.2,
        "union": 19.5,
        "grow-diag": 10.5,
    },
}
"""AER of the outputs of GIZA++ and fast_align on the WPT 2003 test set, as published with them."""


@pytest.mark.skipif(FOLDER is None, reason="TFORMER_ALIGNMENTS names no folder of alignments")
@pytest.mark.parametrize("aligner", PUBLISHED)
def test_published_error_rates_of_classic_aligners(aligner):
    folder = Path(FOLDER) / "hansards-en-fr"

    def read(name):
        lines = (folder / f"{name}.pharaoh").read_text(encoding="utf-8").splitlines()
        return [parse_links(line, name) for line in lines]

    forward = [line.sure for line in read(f"sys.{aligner}.forward")]
    reverse = [{(s, t) for t, s in line.sure} for line in read(f"sys.{aligner}.reverse")]
    answers = read("gold")
    for method, published in PUBLISHED[aligner].items():
        counts = AlignmentCounts()
        for there, back, answer in zip(forward, reverse, answers, strict=True):
            alone = {"forward": there, "reverse": back}.get(method)
            counts.add(symmetrize(method, there, back) if alone is None else alone, answer)
        assert 100 * counts.error_rate == pytest.approx(published, abs=0.1), method


@pytest.mark.parametrize(
    ("p_value", "text"),
    [
        (1.0, "1.0000"),
        (0.00014, "0.0001"),
        (0.0001, "0.0001"),
        (0.00009, "<0.0001"),
        (0.0, "<0.0001"),
    ],
)
def test_no_p_is_shown_as_zero(p_value, text):
    assert p_text(p_value) == text
