import pytest

from tformer_cli.corpora.grammar.words.entries import parse_adjective
from tformer_cli.corpora.grammar.words.morphology_french import (
    agree,
    conjugate,
    noun_plural,
    starts_with_vowel,
)


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
    found = [adjective.form(f, p) for p in (False, True) for f in (False, True)]
    assert found == forms.split()


def test_three_adjectives_change_before_a_vowel():
    old = parse_adjective("old vieux/vieille/vieil", precedes=True)
    assert [old.form(False, False, noun) for noun in ("ami", "homme", "héros", "chat")] == [
        "vieil", "vieil", "vieux", "vieux",
    ]  # fmt: skip
    assert old.form(False, True, "amis") == "vieux"


def test_a_mute_h_elides_and_an_aspirated_one_does_not():
    assert all(map(starts_with_vowel, ["animal", "homme", "hôpital", "œuf", "écureuil", "y"]))
    assert not any(map(starts_with_vowel, ["hibou", "héros", "hache", "haute", "onze", "chat"]))
