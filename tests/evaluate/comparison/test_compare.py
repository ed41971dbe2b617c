import pytest

from tests.evaluate.comparison.systems import FIRST, REFERENCES, SOURCE, SYSTEMS
from tformer_cli.evaluate.comparison.compare import (
    TestSet,
    compare_systems,
)
from tformer_cli.evaluate.comparison.paired_tests import TestSettings, Wins
from tformer_cli.metrics.scores import bleu, make_metric, ter


def compared(metrics=("bleu", "ter"), systems=SYSTEMS, n_examples=3, references=REFERENCES):
    test_set = TestSet(
        name="tiny",
        references=(references,),
        systems=systems,
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
    found = compared()
    for metric in found.metrics:
        # the second is worse where i % 4; the third better where i % 3 == 1, cut where i % 10 == 0
        assert [score.wins for score in metric.scores] == [
            None,
            Wins(better=0, worse=45, equal=15),
            Wins(better=18, worse=24, equal=18),
        ]
    turned = compared(systems={"second": SYSTEMS["second"], "first": FIRST})
    for metric in turned.metrics:
        assert metric.scores[1].wins == Wins(better=45, worse=0, equal=15)


def test_scores_are_those_of_evaluate():
    by_bleu, by_ter = compared().metrics
    for number, lines in enumerate(SYSTEMS.values()):
        assert by_bleu.scores[number].value == pytest.approx(bleu(lines, [REFERENCES]).value)
        assert by_ter.scores[number].value == pytest.approx(ter(lines, [REFERENCES]).value)
    assert (by_bleu.less_is_better, by_ter.less_is_better) == (False, True)


def test_lengths_are_words_of_the_reference_and_scores_those_of_the_part():
    references = ("a b c", "a b c d e f g h i j k", "x y z")
    systems = {"one": ("a b c", "a b c d e f g h i j l", "x y w"), "two": references}
    found = compared(systems=systems, references=references)
    short, middle = found.lengths
    assert (short.label, short.size, middle.label, middle.size) == ("<10", 2, "10–19", 1)
    one = [systems["one"][i] for i in (0, 2)]
    assert short.values[0] == pytest.approx(bleu(one, [["a b c", "x y z"]]).value)
    assert middle.values[1] == pytest.approx(100.0)


def test_sentences_that_differ_most_come_first_and_best_before_worst():
    references = tuple(f"one two three four five {i}" for i in range(5))
    base = (*references[:2], "one two three four", "zzz", references[4])
    other = (references[0], "yyy", "one two three four five 2", references[3], "xxx two")
    found = compared(systems={"base": base, "other": other}, references=references, n_examples=2)
    assert [one.line for one in found.differences] == [4, 3, 2, 5]
    first = found.differences[0]
    assert (first.baseline_text, first.text, first.source) == ("zzz", references[3], "Satz 3")
    assert first.value > first.baseline_value
    none = compared(systems={"base": base, "other": other}, references=references, n_examples=0)
    assert none.differences == ()


def test_equal_systems_differ_nowhere():
    found = compared(systems={"one": FIRST, "again": FIRST})
    assert found.differences == ()
    # as sacreBLEU's: no difference at all has the smallest p-value of its bootstrap
    assert found.metrics[0].scores[1].wins == Wins(better=0, worse=0, equal=60)
