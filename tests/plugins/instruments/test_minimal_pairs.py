"""Minimal pairs differ in one word, which is the gold cause of what is decided."""

import pytest

from tformer_cli.errors import DataError
from tformer_cli.plugins.built_in.quickstart import FAMOUS as FAMOUS_PAIR
from tformer_cli.plugins.built_in.ratings import FAMOUS
from tformer_cli.plugins.instruments.minimal_pairs import REPEATS, minimal_pairs, pair_kinds

DECIDED = {
    "pronoun": {"il", "elle"},
    "agreement": {"un", "une"},
    "number": {"le", "la", "les"},
    "rating": set("12345"),
}


@pytest.mark.parametrize("name", [kind for kind in pair_kinds() if kind != REPEATS])
def test_a_pair_differs_in_its_cause_alone(name):
    pairs = minimal_pairs(name, 100, seed=3)
    assert len({frozenset((pair.sentence, pair.other)) for pair in pairs}) == 100
    for pair in pairs:
        words = [sentence.rstrip(".").split() for sentence in (pair.sentence, pair.other)]
        differing = [both for both in zip(*words, strict=True) if both[0] != both[1]]
        # *an apple* and *a lamp* would differ in two
        assert differing == [pair.cause]
        assert pair.target != pair.foil
        assert {pair.target, pair.foil} <= DECIDED.get(name, {pair.target, pair.foil})
    # Neither answer is mostly that of the first sentence
    first = sum(pair.target < pair.foil for pair in pairs)
    assert 30 <= first <= 70


def test_the_causes_are_those_of_the_grammar():
    for pair in minimal_pairs("negation", 50):
        assert set(pair.cause) == {"never", "often"}
        assert (pair.target == "ne") == (pair.cause[0] == "never")
    for pair in minimal_pairs("number", 50):
        assert (pair.target == "les") != (pair.foil == "les")
    for pair in minimal_pairs("rating", 50):
        assert set(pair.cause) == {"not", "really"}


def test_the_famous_sentences_come_first():
    pronoun, rating = (minimal_pairs(name, 1)[0] for name in ("pronoun", "rating"))
    assert (pronoun.sentence, pronoun.other) == FAMOUS_PAIR
    assert (pronoun.target, pronoun.foil, pronoun.cause) == ("il", "elle", ("tired", "wide"))
    assert rating.sentence == FAMOUS
    assert (rating.target, rating.foil) == ("3", "1")


def test_the_same_seed_draws_the_same_pairs():
    assert minimal_pairs("number", 20, 5) == minimal_pairs("number", 40, 5)[:20]
    assert minimal_pairs("number", 20, 5) != minimal_pairs("number", 20, 6)
    with pytest.raises(DataError, match=r"--draw: there are only [\d,]+ such pairs; ask for fewer"):
        minimal_pairs("rating", 30_000)
