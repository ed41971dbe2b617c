import pytest

from tformer_cli.corpora.grammar.determiners import with_preposition
from tformer_cli.corpora.grammar.surface import (
    align,
    detokenize_english,
    detokenize_french,
    elide,
)


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
    found = with_preposition(tokens(preposition), tokens(noun))
    assert " ".join(word for word, _ in found) == result


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
