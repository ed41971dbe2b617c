import builtins

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tformer_cli.errors import UsageError
from tformer_cli.search.sentences import sentence_splitter, split_sentences


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
