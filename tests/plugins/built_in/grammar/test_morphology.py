"""Forms of words in both languages, and the surface of sentences."""

import pytest

from tformer_cli.plugins.built_in.grammar.determiners import with_preposition
from tformer_cli.plugins.built_in.grammar.surface import (
    align,
    detokenize_english,
    detokenize_french,
    elide,
)
from tformer_cli.plugins.built_in.grammar.words import morphology_english as english
from tformer_cli.plugins.built_in.grammar.words.entries import parse_adjective
from tformer_cli.plugins.built_in.grammar.words.morphology_french import (
    agree,
    conjugate,
    noun_plural,
    starts_with_vowel,
)


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


@pytest.mark.parametrize(
    ("infinitive", "present"),
    [
        ("traverser", "traverse traverse traversons traversez traversent"),
        ("manger", "mange mange mangeons mangez mangent"),
        ("lancer", "lance lance lançons lancez lancent"),
        ("acheter", "achète achète achetons achetez achètent"),
        ("nettoyer", "nettoie nettoie nettoyons nettoyez nettoient"),
        ("espérer", "espère espère espérons espérez espèrent"),
        ("finir", "finis finit finissons finissez finissent"),
        ("mordre", "mords mord mordons mordez mordent"),
        ("enterrer", "enterre enterre enterrons enterrez enterrent"),
    ],
)
def test_present_follows_the_verb_groups_and_their_spelling(infinitive, present):
    assert conjugate(infinitive)[0] == tuple(present.split())


@pytest.mark.parametrize(
    ("infinitive", "imperfect"),
    [
        ("manger", "mangeais mangeait mangions mangiez mangeaient"),
        ("lancer", "lançais lançait lancions lanciez lançaient"),
        ("être", "étais était étions étiez étaient"),
        ("rire", "riais riait riions riiez riaient"),
        ("finir", "finissais finissait finissions finissiez finissaient"),
    ],
)
def test_imperfect_softens_the_stem_where_the_ending_needs_it(infinitive, imperfect):
    assert conjugate(infinitive)[1] == tuple(imperfect.split())


@pytest.mark.parametrize(
    ("infinitive", "future"),
    [("acheter", "achètera"), ("espérer", "espérera"), ("envoyer", "enverra"), ("vendre", "vendra"),
     ("nettoyer", "nettoiera"), ("aller", "ira"), ("voir", "verra"), ("courir", "courra")],
)  # fmt: skip
def test_future_of_the_third_person(infinitive, future):
    assert conjugate(infinitive)[2][1] == future


def test_participles_agree_in_gender_and_number():
    assert agree("mangé", True, True) == "mangées"
    assert agree("mis", False, True) == "mis"
    assert agree("mis", True, True) == "mises"
    assert agree("dû", True, False) == "due"


def test_nouns_form_their_plural():
    words = ["chien", "souris", "oiseau", "cheval", "jeu", "prix", "journal"]
    plurals = ["chiens", "souris", "oiseaux", "chevaux", "jeux", "prix", "journaux"]
    assert [noun_plural(word) for word in words] == plurals


@pytest.mark.parametrize(
    ("entry", "forms"),
    [
        ("curious curieux", "curieux curieuse curieux curieuses"),
        ("worried inquiet", "inquiet inquiète inquiets inquiètes"),
        ("light léger", "léger légère légers légères"),
        ("Italian italien", "italien italienne italiens italiennes"),
        ("good bon", "bon bonne bons bonnes"),
        ("brown marron/marron/marron/=", "marron marron marron marron"),
        ("white blanc/blanche", "blanc blanche blancs blanches"),
        ("beautiful beau/belle/bel", "beau belle beaux belles"),
    ],
)
def test_adjectives_agree(entry, forms):
    adjective = parse_adjective(entry)
    inflected = [adjective.form(f, p) for p in (False, True) for f in (False, True)]
    assert inflected == forms.split()


def test_three_adjectives_change_before_a_vowel():
    old = parse_adjective("old vieux/vieille/vieil", precedes=True)
    assert [old.form(False, False, noun) for noun in ("ami", "homme", "héros", "chat")] == [
        "vieil", "vieil", "vieux", "vieux",
    ]  # fmt: skip
    assert old.form(False, True, "amis") == "vieux"


def test_a_mute_h_elides_and_an_aspirated_one_does_not():
    assert all(map(starts_with_vowel, ["animal", "homme", "hôpital", "œuf", "écureuil", "y"]))
    assert not any(map(starts_with_vowel, ["hibou", "héros", "hache", "haute", "onze", "chat"]))


def tokens(text):
    return [(word, 1 << index) for index, word in enumerate(text.split())]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("le animal ne a pas", "l' animal n' a pas"),
        ("parce que il", "parce qu' il"),
        ("que je avais", "que j' avais"),
        ("le hibou", "le hibou"),
        ("la hache de Henri", "la hache d' Henri"),
        ("si il vient", "s' il vient"),
        ("si elle vient", "si elle vient"),
        ("il ne y a pas de onze", "il n' y a pas de onze"),
    ],
)
def test_words_elide_before_a_vowel(before, after):
    assert " ".join(elide(tokens(before))) == after


@pytest.mark.parametrize(
    ("preposition", "noun", "result"),
    [
        ("de", "le chien", "du chien"),
        ("à", "les amis", "aux amis"),
        ("à", "la fille", "à la fille"),
        ("de", "le hibou", "du hibou"),
        ("près de", "le hôtel", "près de le hôtel"),
        ("de", "des chats", "de chats"),
    ],
)
def test_prepositions_contract_with_articles(preposition, noun, result):
    phrase = with_preposition(tokens(preposition), tokens(noun))
    assert " ".join(word for word, _ in phrase) == result


def test_a_contraction_carries_the_links_of_both_words():
    assert with_preposition([("à", 1)], [("le", 2), ("roi", 4)]) == [("au", 3), ("roi", 4)]


def test_links_join_words_that_share_a_bit():
    assert align([("did", 1), ("n't", 2)], [("n'", 2), ("a", 1), ("pas", 2)]) == (
        (0, 1), (1, 0), (1, 2),
    )  # fmt: skip


def test_text_has_ordinary_spacing():
    assert (
        detokenize_english(["The", "boy", "'s", "dog", "did", "n't", "run", "."])
        == "The boy's dog didn't run."
    )
    assert (
        detokenize_french(["Où", "l'", "ami", "a", "-t-il", "couru", "?"])
        == "Où l'ami a-t-il couru ?"
    )
