"""Systems beside each other: scores, words, labels, and what is measured of them."""

import json
import math
import os
import re
import subprocess
import sys

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRFScore
from sacrebleu.significance import PairedTest

from tests.plugins.corpora_tools.comparison.systems import (
    FIRST,
    REFERENCES,
    SECOND,
    SOURCE,
    SYSTEMS,
)
from tformer_cli.errors import DataError
from tformer_cli.metrics.labels import score_labels
from tformer_cli.metrics.scores import bleu, make_metric, ter
from tformer_cli.metrics.significance import (
    MeasuredMetric,
    TestSettings,
    Wins,
    compare_labels,
    paired_test,
)
from tformer_cli.plugins.corpora_tools.comparison.compare import (
    FREQUENCIES,
    TestSet,
    bucket_labels,
    bucket_of,
    compare_systems,
    frequencies,
    word_f1,
    words_of,
)
from tformer_cli.plugins.corpora_tools.comparison.labels import compare_labelings


def compare_all(metrics=("bleu", "ter"), systems=SYSTEMS, n_examples=3, references=REFERENCES):
    test_set = TestSet(
        name="tiny",
        references=(references,),
        systems={name: (lines,) for name, lines in systems.items()},
        source=SOURCE[: len(references)],
    )
    return compare_systems(
        test_set,
        [make_metric(name) for name in metrics],
        TestSettings(samples=50),
        tokenize=make_metric("bleu").tokenizer,
        n_examples=n_examples,
    )


def test_wins_losses_and_draws_are_counted_by_sentence_whichever_way_is_better():
    comparison = compare_all()
    for metric in comparison.metrics:
        # the second is worse where i % 4; the third better where i % 3 == 1, cut where i % 10 == 0
        assert [score.wins for score in metric.scores] == [
            None,
            Wins(better=0, worse=45, equal=15),
            Wins(better=18, worse=24, equal=18),
        ]
    turned = compare_all(systems={"second": SYSTEMS["second"], "first": FIRST})
    for metric in turned.metrics:
        assert metric.scores[1].wins == Wins(better=45, worse=0, equal=15)


def test_scores_are_those_of_evaluate():
    by_bleu, by_ter = compare_all().metrics
    for number, lines in enumerate(SYSTEMS.values()):
        assert by_bleu.scores[number].value == pytest.approx(bleu(lines, [REFERENCES]).value)
        assert by_ter.scores[number].value == pytest.approx(ter(lines, [REFERENCES]).value)
    assert (by_bleu.less_is_better, by_ter.less_is_better) == (False, True)


def test_lengths_are_words_of_the_reference_and_scores_those_of_the_part():
    references = ("a b c", "a b c d e f g h i j k", "x y z")
    systems = {"one": ("a b c", "a b c d e f g h i j l", "x y w"), "two": references}
    comparison = compare_all(systems=systems, references=references)
    short, middle = comparison.lengths
    assert (short.label, short.size, middle.label, middle.size) == ("<10", 2, "10–19", 1)
    part = [systems["one"][i] for i in (0, 2)]
    assert short.values[0] == pytest.approx(bleu(part, [["a b c", "x y z"]]).value)
    assert middle.values[1] == pytest.approx(100.0)


def test_sentences_that_differ_most_come_first_and_best_before_worst():
    references = tuple(f"one two three four five {i}" for i in range(5))
    base = (*references[:2], "one two three four", "zzz", references[4])
    other = (references[0], "yyy", "one two three four five 2", references[3], "xxx two")
    result = compare_all(
        systems={"base": base, "other": other}, references=references, n_examples=2
    )
    assert [difference.line for difference in result.differences] == [4, 3, 2, 5]
    first = result.differences[0]
    assert (first.baseline_text, first.text, first.source) == ("zzz", references[3], "Satz 3")
    assert first.value > first.baseline_value
    none = compare_all(systems={"base": base, "other": other}, references=references, n_examples=0)
    assert none.differences == ()


def test_equal_systems_differ_nowhere():
    comparison = compare_all(systems={"one": FIRST, "again": FIRST})
    assert comparison.differences == ()
    # as sacreBLEU's: no difference at all has the smallest p-value of its bootstrap
    assert comparison.metrics[0].scores[1].wins == Wins(better=0, worse=0, equal=60)


RIGHT = list("aabbccabca") * 4
OLD = [*"abbbccabcb"] * 4
NEW = [*"aabbcaabcc"] * 4


def test_scores_changes_and_wins():
    comparison = compare_labelings({"old": [OLD], "new": [[f" {x} " for x in NEW]]}, RIGHT, seed=3)
    baseline, new = comparison.systems
    for system, labels in ((baseline, OLD), (new, NEW)):
        scores = score_labels(labels, RIGHT, sorted(set(RIGHT)))
        values = [measure.value for measure in system.measures]
        assert values == pytest.approx([100 * scores.accuracy, 100 * scores.macro_f1])
    assert list(new.measures) == compare_labels(OLD, NEW, RIGHT, seed=3)
    better = sum(n == r != o for n, o, r in zip(NEW, OLD, RIGHT, strict=True))
    worse = sum(o == r != n for n, o, r in zip(NEW, OLD, RIGHT, strict=True))
    assert (new.wins.better, new.wins.worse, new.wins.equal) == (better, worse, 40 - better - worse)
    assert (baseline.wins.better, baseline.wins.worse) == (0, 0)
    record = comparison.record()
    assert record["systems"][0]["wins"] is None
    assert record["systems"][0]["measures"][0]["p_value"] is None
    assert record["systems"][1]["measures"][1]["measure"] == "macro_f1"


def test_an_example_without_a_right_label_is_named():
    with pytest.raises(DataError, match="line 2 of the reference: has no label"):
        compare_labelings({"a": [["x", "y"]], "b": [["x", "y"]]}, ["x", " "])
    with pytest.raises(DataError, match="the reference: has no label"):
        compare_labelings({"a": [[]], "b": [[]]}, [])


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_scores_of_texts_parts_and_sentences_are_sacrebleus_public_ones(name):
    measured = MeasuredMetric(make_metric(name), [REFERENCES, SECOND])
    plain = make_metric(name)
    for lines in SYSTEMS.values():
        whole = plain.corpus_score(list(lines), [list(REFERENCES), list(SECOND)])
        assert measured.score(lines) == pytest.approx(whole.score)
        part = plain.corpus_score(
            [lines[i] for i in (3, 9, 40)],
            [[stream[i] for i in (3, 9, 40)] for stream in (REFERENCES, SECOND)],
        )
        assert measured.score(lines, [3, 9, 40]) == pytest.approx(part.score)
        by_sentence = BLEU(effective_order=True) if name == "bleu" else plain
        expected = [
            by_sentence.sentence_score(line, list(references)).score
            for line, *references in zip(lines, REFERENCES, SECOND, strict=True)
        ]
        assert measured.sentence_scores(lines) == pytest.approx(expected)
    assert measured.less_is_better == (name == "ter")
    assert measured.score(SECOND, []) == 0.0


def test_a_text_is_read_once(monkeypatch):
    metric = make_metric("bleu")
    calls = []
    tokenizer = metric.tokenizer
    metric.tokenizer = lambda line: calls.append(line) or tokenizer(line)
    measured = MeasuredMetric(metric, [REFERENCES])
    measured.score(SECOND)
    n_calls = len(calls)
    assert n_calls >= len(SECOND)
    measured.sentence_scores(SECOND)
    measured.score(SECOND, [1])
    assert len(calls) == n_calls


TRAINING = ["the cat sat on the mat .", "the dog sat .", "a cat and a dog sat on the old mat ."]
TRAINING += ["the the the the"]
ANSWERS = ["the cat sat on the mat .", "a bird sang on the mat", "dogs bark at the cat ."]
WRITTEN = [
    ["the cat sat on mat mat .", "the bird sang on a a mat", "the the dog barks ."],
    ["a cat sits on the mat .", "a bird sang", "dogs bark at the cat ."],
]
# F1 by compare-mt 0.2.10, `FreqWordBucketer(freq_data=TRAINING).calc_statistics`
COMPARE_MT_RESULTS = [
    {"0": 50.0, "2": 75.0, "3": 100.0, "5–9": 75.0},
    {"0": 90.9090909090909, "2": 76.92307692307692, "3": 80.0, "5–9": 66.66666666666666},
]
SIZES = {"0": 5, "2": 7, "3": 3, "5–9": 4}


def as_it_is(line):
    return line


@pytest.mark.parametrize(
    ("system", "expected"), list(zip(WRITTEN, COMPARE_MT_RESULTS, strict=True))
)
def test_f1_is_that_of_compare_mt(system, expected):
    ours, theirs = words_of(system, as_it_is), words_of(ANSWERS, as_it_is)
    counts = frequencies(TRAINING, [ours, theirs], as_it_is)
    f1, sizes = word_f1(ours, theirs, counts)
    by_label = dict(zip(bucket_labels(FREQUENCIES), zip(f1, sizes, strict=True), strict=True))
    assert {label: size for label, (_, size) in by_label.items() if size} == SIZES
    assert {label: f1 for label, (f1, size) in by_label.items() if size} == pytest.approx(expected)


def test_words_of_other_texts_are_not_kept_and_case_may_be_ignored():
    wanted = [[["the", "cat"], ["bird"]]]
    counts = frequencies(["The the THE dog", "Cat"], wanted, as_it_is, lowercase=True)
    assert counts == {"the": 3, "cat": 1, "bird": 0}
    assert words_of(["The Cat"], as_it_is, lowercase=True) == [["the", "cat"]]


def test_buckets_begin_at_their_edges():
    labels = bucket_labels(FREQUENCIES)
    assert labels == ["0", "1", "2", "3", "4", "5–9", "10–99", "100–999", "1000+"]
    placed = {n: labels[bucket_of(n, FREQUENCIES)] for n in (0, 1, 4, 5, 9, 10, 999, 1000, 5000)}
    assert placed == {
        0: "0", 1: "1", 4: "4", 5: "5–9", 9: "5–9", 10: "10–99", 999: "100–999", 1000: "1000+",
        5000: "1000+",
    }  # fmt: skip
    assert bucket_labels((10, 20)) == ["<10", "10–19", "20+"]


METRICS = ("bleu", "chrf", "ter")
OPTIONS = {"paired-bootstrap": "bs", "paired-approximate-randomization": "ar"}


def results(name, samples, seed, metrics=METRICS):
    measured = [MeasuredMetric(make_metric(metric), [REFERENCES]) for metric in metrics]
    settings = TestSettings(name=name, samples=samples, seed=seed)
    return paired_test(list(SYSTEMS.values()), measured, settings)


@pytest.mark.parametrize("name", OPTIONS)
def test_p_values_are_those_of_the_sacrebleu_command(tmp_path, name):
    files = []
    for stem, lines in {"ref": REFERENCES, **SYSTEMS}.items():
        (tmp_path / stem).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        files.append(stem)
    short = OPTIONS[name]
    command = [
        *(sys.executable, "-m", "sacrebleu", files[0], "-i", *files[1:], "-m", *METRICS),
        *("-w", "4", "-f", "latex"),
        *(f"--paired-{short}", f"--paired-{short}-n", "200"),
    ]
    env = {**os.environ, "SACREBLEU_SEED": "77"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=env
    )
    theirs = re.findall(r"p = (\d\.\d+)", done.stdout)
    metrics = results(name, 200, 77)
    # sacreBLEU lists all metrics of a system, then the next system
    ours = [f"{metric.scores[place].p_value:.4f}" for place in (1, 2) for metric in metrics]
    assert len(theirs) == 6
    assert ours == theirs
    assert len(set(ours)) > 2
    for metric in metrics:
        for score in metric.scores:
            assert f"{score.value:.4f}" in done.stdout


@pytest.mark.parametrize("name", OPTIONS)
def test_all_numbers_are_those_of_sacrebleus_own_function(monkeypatch, name):
    monkeypatch.setenv("SACREBLEU_SEED", "5")
    metrics = {metric: make_metric(metric) for metric in METRICS}
    signatures, theirs = PairedTest(
        list(SYSTEMS.items()),
        metrics,
        [list(REFERENCES)],
        test_type=OPTIONS[name],
        n_samples=100,
        n_ar_confidence=-1 if name == "paired-bootstrap" else 1000,
    )()
    for metric in results(name, 100, 5):
        assert metric.signature == str(signatures[metric.name])
        assert [vars(score) for score in metric.scores] == [
            {
                "value": their.score,
                "mean": pytest.approx(float(their.mean)),
                "interval": pytest.approx(float(their.ci)),
                "p_value": their.p_value,
                "equals_baseline": False if number else None,
                "untested": "",
                "wins": None,
            }
            for number, their in enumerate(theirs[metric.name])
        ]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_system_that_is_the_baseline_again_is_never_significant(name):
    first = SYSTEMS["first"]
    spaced = [line.replace(" ", "  ") for line in first]  # the same to every metric
    texts = [first, list(first), spaced, *SYSTEMS.values()]
    measured = [MeasuredMetric(make_metric(metric), [REFERENCES]) for metric in ("bleu", "chrf")]
    for row in paired_test(texts[:3] + texts[4:], measured, TestSettings(name=name, samples=50)):
        assert [score.equals_baseline for score in row.scores] == [None, True, True, False, False]
        assert [score.untested for score in row.scores] == [
            *("", *["no sentence differs from the baseline"] * 2, "", "")
        ]
        assert [score.p_value is None for score in row.scores] == [True, True, True, False, False]
        assert [score.is_significant for score in row.scores[:4]] == [False, False, False, True]


SENTENCE, CHANGED, SHORT = "The old cat sat here.", "The old dog sat there.", "A cat."
ZERO = "the change is 0 in every resample"
DEGENERATE = {
    "too short for BLEU": ([SHORT, "Yes."] * 9, ["A dog.", "Yes."] * 9, [SHORT, "Yes."] * 9, ZERO),
    "empty": ([""] * 9, ["No."] * 9, ["a b c d e"] * 8 + ["f"], ZERO),
    "one line": ([SENTENCE], [CHANGED], [SENTENCE], "one distinct sentence is too few for a test"),
    "one line 50 times": (
        *([SENTENCE] * 50, [CHANGED] * 50, [SENTENCE] * 50),
        "one distinct sentence is too few for a test",
    ),
    "one other line": (
        *(["a b c d e"] * 9 + [line] for line in (SENTENCE, CHANGED, SENTENCE)),
        "only one sentence differs from the baseline",
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("case", DEGENERATE)
def test_what_a_test_says_nothing_about_has_no_p_value(case, name):
    baseline, system, reference, reason = DEGENERATE[case]
    measured = [MeasuredMetric(make_metric("bleu"), [reference])]
    settings = TestSettings(name=name, samples=50)
    (metric,) = paired_test([baseline, system], measured, settings)
    assert metric.scores[0].untested == ""
    if case == "one other line" and name == "paired-bootstrap":
        assert metric.scores[1].p_value > 0.05  # a draw may have it several times
        return
    assert (metric.scores[1].p_value, metric.scores[1].untested) == (None, reason)
    assert not metric.scores[1].is_significant
    assert bool(metric.hint) == (reason == ZERO)


def test_a_score_that_is_not_a_number_is_not_tested(monkeypatch):
    metric = make_metric("chrf")
    monkeypatch.setattr(
        metric, "_compute_score_from_stats", lambda stats: CHRFScore(math.nan, 6, 0, 2)
    )
    (tested,) = paired_test(
        list(SYSTEMS.values()), [MeasuredMetric(metric, [REFERENCES])], TestSettings(samples=9)
    )
    assert [score.untested for score in tested.scores] == ["", *["a score is not a number"] * 2]


def test_one_system_has_the_confidence_interval_of_the_sacrebleu_command(tmp_path):
    for stem, lines in {"ref": REFERENCES, "a": SYSTEMS["third"]}.items():
        (tmp_path / stem).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "sacrebleu", "ref", "-i", "a", "-m", *METRICS, "-w", "4"),
        *("--confidence", "--confidence-n", "200"),
    ]
    env = {**os.environ, "SACREBLEU_SEED": "77"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=env
    )
    measured = [MeasuredMetric(make_metric(metric), [REFERENCES]) for metric in METRICS]
    settings = TestSettings(samples=200, seed=77)
    metrics = paired_test([SYSTEMS["third"]], measured, settings)
    for ours, theirs in zip(metrics, json.loads(done.stdout), strict=True):
        (score,) = ours.scores
        assert ours.signature == theirs["signature"]
        assert round(score.value, 4) == theirs["score"]
        assert round(score.mean, 4) == theirs["confidence_mean"]
        assert round(score.interval, 4) == theirs["confidence_var"]
        assert (score.p_value, score.is_significant) == (None, False)


def test_the_seed_is_not_left_in_the_environment(monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    before = results("paired-bootstrap", 50, 1, ["bleu"])
    assert "SACREBLEU_SEED" not in os.environ
    assert "|seed:1|" in before[0].signature
    monkeypatch.setenv("SACREBLEU_SEED", "3")
    assert results("paired-bootstrap", 50, 1, ["bleu"]) == before
    assert os.environ["SACREBLEU_SEED"] == "3"


@pytest.mark.parametrize("settings", [{"seed": 0}, {"samples": -1}])
def test_a_seed_that_would_draw_anything_is_refused(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))}: must be at least"):
        TestSettings(**settings)


def test_the_number_of_samples_is_sacrebleus_own_by_default():
    assert TestSettings().n_samples == 1000
    assert TestSettings(name="paired-approximate-randomization").n_samples == 10000
    assert TestSettings(samples=7).n_samples == 7
