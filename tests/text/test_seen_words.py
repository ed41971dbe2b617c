import pytest

from tformer_cli.text import languages
from tformer_cli.text.languages import frequent_words, mostly_unseen

SEEN = frozenset(frequent_words(["The house is green.", "l'école", "猫はいる"]))


@pytest.mark.parametrize(
    ("line", "unseen"),
    [
        ("", ()),
        ("12 + 3 = 15.", ()),
        ("THE Green house", ()),
        ("the house is blue and red", ()),  # half of them are known
        ("Hello house, dear world", ("Hello", "dear", "world")),
        ("l'e\u0301cole", ()),  # in another Unicode form
        ("いる猫", ()),
        ("犬が猫", ("犬", "が")),  # where no spaces are written, letters count
    ],
)
def test_a_line_of_mostly_other_words_is_noticed(line, unseen):
    assert mostly_unseen(line, SEEN) == unseen


def test_the_most_frequent_words_are_kept_in_any_order_of_the_lines(monkeypatch):
    monkeypatch.setattr(languages, "MOST_WORDS", 3)
    lines = ["B b c", "d a", "c a"]
    assert frequent_words(lines) == frequent_words(lines[::-1]) == ["a", "b", "c"]
