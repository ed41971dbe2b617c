"""Long lines and lines of several sentences."""

import builtins

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tformer_cli.errors import UsageError
from tformer_cli.search.sentences import sentence_splitter, split_line, split_sentences
from tformer_cli.wording import is_blank


@pytest.mark.parametrize(
    "sentences",
    [
        ["A man sleeps. ", "A dog barks!  ", "Really? ", "Yes… ", "Good"],
        ["Dr. Smith met J. R. Jones at 5 p.m. in St. Louis. ", "He left."],
        ["See e.g. Smith et al. 2017. ", "It is there."],
        ["Am 3. Mai regnet es. ", "Es war 1999. ", "Dann schien die Sonne."],
        ["It costs $3.50 (or 3,40 in euros). ", "That is 1.000 more."],
        ['"Stop!" ', 'He said: "No." ', "She left."],
        ["Version 2 of example.com is out."],
        ["„Geh!“ rief er. ", "¿Por qué? ", "¡No! ", "«Oui.» ", "Non."],
        ["我爱你。", "你好吗？", "好！ ", "再见"],
        ["Πού είσαι; Εδώ. ", "यह है। ", "वह था।"],
        ["A heading\n\n", "A paragraph. ", "Another one.\n"],
        ["what… no idea. ", "OK"],
        ["Он живёт на ул. пушкина. ", "Она там."],
        ["He said no. ", "See no. 12 at kl. 9.30 today. ", "It is art. ", "See fig. 3."],
        ["« Bien. » ", "Il a dit oui. » ", "« Non. »"],
        ["He said: ''He went.'' ", "She stayed.  ''"],
        ["... Hello. ", "There. — "],
        ["HK Management Inc. – at EE. UU. ", "It is."],
        ["ความเร็ว 12.8 กม. หรือ 8 ไมล์"],
        ["2009 में (डॉ. बेवरली) आए।"],
    ],
)
def test_sentences_end_where_a_reader_would_end_them(sentences):
    assert split_sentences("".join(sentences)) == sentences


@pytest.mark.parametrize("run", [".", " ", "a.", ".)", ". ", "\n", "1", "«", "。", "؟"])
def test_a_hostile_line_takes_no_longer_than_another(run):
    assert "".join(split_sentences(run * 200_000)) == run * 200_000  # square time would be hours


@given(
    st.text(alphabet="aB.!?… \n\"'»)1。।é", max_size=60)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
)
def test_sentences_put_together_are_the_text(text):
    for rule in ("rule", "sentencex"):
        assert "".join(sentence_splitter(rule, "en")(text)) == text


def test_the_library_knows_the_abbreviations_of_a_language():
    text = "Das ist z. B. ein Test. Und noch einer.\n\nEnde."
    expected = ["Das ist z. B. ein Test. ", "Und noch einer.\n\n", "Ende."]
    assert sentence_splitter("sentencex", "de-DE")(text) == expected
    assert sentence_splitter("sentencex", "")("One. Two.") == ["One. ", "Two."]


def test_a_missing_library_is_one_line(monkeypatch):
    importing = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "sentencex":
            raise ImportError(name)
        return importing(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="--split-sentences rule"):
        sentence_splitter("sentencex", "en")


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
def test_nothing_but_white_space_and_blank_parts_is_lost(longest, line):
    parts = split_line(line, longest, count_characters)
    seen = [[c for c in text if not is_blank(c)] for text in ("".join(parts), line)]
    assert seen[0] == seen[1]
    assert all(0 < len(part) <= longest for part in parts)
