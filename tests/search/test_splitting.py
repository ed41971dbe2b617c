import pytest
from hypothesis import given
from hypothesis import strategies as st

from tformer_cli.search.sentences import split_line


def count_characters(texts):
    return [len(text) for text in texts]


def test_sentences_are_kept_whole_and_packed():
    line = "One is here. Two is there! Is three? Four."
    assert split_line(line, 28, count_characters) == [
        "One is here. Two is there!",
        "Is three? Four.",
    ]


def test_clauses_come_before_spaces():
    line = "when it rains, we stay at home and read"
    assert split_line(line, 25, count_characters) == ["when it rains,", "we stay at home and read"]


def test_spaces_come_before_anywhere():
    assert split_line("abc def ghi jkl", 8, count_characters) == ["abc def", "ghi jkl"]


def test_sentence_ends_without_spaces_are_found():
    assert split_line("一二三。四五六。七", 4, count_characters) == ["一二三。", "四五六。", "七"]


def test_a_line_without_spaces_is_cut_anywhere():
    parts = split_line("a" * 50_000, 256, count_characters)
    assert "".join(parts) == "a" * 50_000
    assert max(map(len, parts)) <= 256


def test_a_combining_mark_stays_with_its_letter():
    parts = split_line("e\u0301" * 5, 5, count_characters)
    assert all(part.startswith("e") for part in parts)


def test_a_character_of_many_tokens_is_left_whole():
    def four_tokens_each(texts):
        return [4 * len(text) for text in texts]

    assert split_line("ab", 3, four_tokens_each) == ["a", "b"]


@pytest.mark.parametrize("longest", [1, 7])
@given(st.text(st.sampled_from("ab .,。!\u0301\u2028—\x00"), max_size=60))
def test_nothing_but_white_space_is_lost(longest, line):
    parts = split_line(line, longest, count_characters)
    assert "".join("".join(parts).split()) == "".join(line.split())
    assert all(0 < len(part) <= longest for part in parts)
