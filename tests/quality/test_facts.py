import math
import random

import pytest

from tformer_cli.errors import UsageError
from tformer_cli.quality.checks import wrong_language
from tformer_cli.quality.facts import Sample, deviation, estimate_facts
from tformer_cli.quality.settings import CheckSettings
from tformer_cli.text.corpora import SentencePair


def pairs_of(ratio, spread, n=4000):
    """Pairs whose lengths are drawn as the model of Gale and Church says."""
    rng = random.Random(1)
    for _ in range(n):
        source = rng.randrange(40, 200)
        target = ratio * source + rng.gauss(0, 1) * math.sqrt(spread * ratio * source)
        yield SentencePair("a" * source, "b" * round(target))


@pytest.mark.parametrize(("ratio", "spread"), [(1.2, 2.0), (0.4, 4.0), (2.0, 6.8)])
def test_ratio_and_spread_are_those_that_lengths_were_drawn_with(ratio, spread):
    facts = estimate_facts(list(pairs_of(ratio, spread)), ("", ""))
    assert facts.ratio == pytest.approx(ratio, rel=0.03)
    assert facts.spread == pytest.approx(spread, rel=0.15)


def test_the_deviation_is_that_of_the_paper_with_the_mean_length():
    assert deviation(100, 110, 1.0, 6.8) == pytest.approx(10 / math.sqrt(6.8 * 105))
    assert deviation(110, 100, 1.0, 6.8) == -deviation(100, 110, 1.0, 6.8)


def test_little_or_blank_text_gives_no_facts():
    facts = estimate_facts([SentencePair("", "")] * 100 + [SentencePair("a", "b")], ("", ""))
    assert (facts.spread, facts.scripts) == (0.0, (frozenset(), frozenset()))


def test_scripts_are_those_of_the_languages_else_of_the_letters():
    pairs = [SentencePair("Мы дома", "We are at home")] * 40
    guessed = estimate_facts(pairs, ("", "")).scripts
    assert guessed == (frozenset(["CYRILLIC"]), frozenset(["LATIN"]))
    assert estimate_facts(pairs, ("el", "xx")).scripts == (
        frozenset(["GREEK"]),
        guessed[1],
    )


GERMAN = ("Der Mann ist mit dem Hund auf der Straße.", "Eine Frau on Tour ist nicht im Haus.")
FRENCH = ("Un homme est dans la rue avec le chien.", "Une femme ne joue pas sur la plage.")


@pytest.mark.parametrize("n_french", [3, 50, 95, 100])
def test_words_of_lines_in_another_language_are_not_common(n_french):
    lines = [FRENCH[n % 2] if n < n_french else GERMAN[n % 2] for n in range(100)]
    facts = estimate_facts([SentencePair("x", line) for line in lines], ("", "de"))
    found = facts.common_words[1]
    assert found.isdisjoint(["homme", "chien", "une", "la"])
    if n_french <= 50:
        assert {"hund", "tour", "on"} <= found  # that in which the other words are German
    wrong = [bool(wrong_language(SentencePair("x", line), facts)) for line in lines]
    assert wrong == [n < n_french for n in range(100)]


def test_common_words_of_a_language_without_a_list_are_those_of_all_lines():
    pairs = [SentencePair("Kalimera, Anna", "x")] * 40
    assert "kalimera" in estimate_facts(pairs, ("el", "")).common_words[0]


def test_a_sample_has_its_size_and_every_pair_the_same_chance():
    counts = [0] * 10
    sample = Sample(1000)
    for number in range(10_000):
        sample.add(SentencePair(str(number), ""))
    for pair in sample.pairs:
        counts[int(pair.source) // 1000] += 1
    assert sum(counts) == len({pair.source for pair in sample.pairs}) == 1000
    assert min(counts) > 60 and max(counts) < 140  # noqa: PT018 - four standard deviations


@pytest.mark.parametrize(
    "wrong", [{"max_characters": 0}, {"max_deviation": 0.0}, {"max_deviation": math.nan}]
)
def test_impossible_limits_are_refused(wrong):
    with pytest.raises(UsageError, match=f"--{next(iter(wrong)).replace('_', '-')}: must be"):
        CheckSettings(**wrong)
