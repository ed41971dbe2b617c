import pytest

from tformer_cli.corpora.grammar.words import morphology_english as english


@pytest.mark.parametrize(
    ("singular", "plural"), [("dog", "dogs"), ("box", "boxes"), ("city", "cities"), ("toy", "toys")]
)
def test_plurals(singular, plural):
    assert english.plural(singular) == plural


def test_third_person_adds_es_where_needed():
    verbs = ["go", "watch", "carry", "play", "have", "cross"]
    expected = ["goes", "watches", "carries", "plays", "has", "crosses"]
    assert [english.third_person(verb) for verb in verbs] == expected


def test_past_forms_are_regular_or_from_the_table():
    assert english.past_forms("eat") == ("ate", "eaten")
    assert english.past_forms("carry") == ("carried", "carried")
    assert english.past_forms("stop") == ("stopped", "stopped")
    assert english.past_forms("visit") == ("visited", "visited")


def test_present_participles():
    verbs = ["make", "run", "die", "visit", "see"]
    expected = ["making", "running", "dying", "visiting", "seeing"]
    assert [english.present_participle(verb) for verb in verbs] == expected


@pytest.mark.parametrize(
    ("adjective", "words"),
    [("wide", "wider"), ("big", "bigger"), ("muddy", "muddier"), ("strong", "stronger"),
     ("tired", "more tired"), ("curious", "more curious"), ("good", "better"), ("old", "older"),
     ("narrow", "more narrow"), ("sour", "sourer"), ("deep", "deeper")],
)  # fmt: skip
def test_comparatives(adjective, words):
    assert english.comparative(adjective) == words


def test_an_goes_by_sound():
    words = ["apple", "honest", "useful", "dog", "English"]
    assert [english.indefinite_article(word) for word in words] == ["an", "an", "a", "a", "an"]
