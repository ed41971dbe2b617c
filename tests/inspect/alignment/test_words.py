import numpy as np
import pytest

from tformer_cli.errors import DataError
from tformer_cli.inspect.alignment.words import spelled_words, words_of_ids, words_of_text
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

TEXTS = ["A man  didn't sleep, été 日本 ?", " lead  x😀y ", "a\u00a0b\u2028c d"]


@pytest.fixture(scope="module", params=["bpe", "unigram", "word", "char", "byte"])
def tokenizer(request):
    return train_tokenizer(TEXTS * 4, TokenizerConfig(algorithm=request.param, vocab_size=330))


@pytest.mark.parametrize("text", [*TEXTS, "", "unseen Ω words"])
def test_every_token_of_letters_is_in_the_word_that_it_spells(tokenizer, text):
    found = words_of_text(tokenizer, text)[0]
    words = text.encode().split()
    assert list(found.ids) == tokenizer.encode(text)
    assert found.n_words == len(words)
    spans = tokenizer.encode_with_spans([text])[0][1]
    pieces = tokenizer.pieces(found.ids)
    for piece, share, (start, end) in zip(pieces, found.shares, spans, strict=True):
        letters = [] if piece == "▁" else text[start:end].split()
        expected = [float(len(letters) > 0 and letters[0] in w.decode()) for w in words]
        if letters and sum(expected) == 1.0:
            assert share.tolist() == expected
        assert share.sum() == pytest.approx(float(bool(letters)))


def test_tokens_say_the_same_of_their_words_as_the_text(tokenizer):
    if tokenizer.algorithm in ("word", "char"):
        pytest.skip("what is unknown leaves no letters")
    for text in TEXTS:
        by_text, by_ids = (
            words_of_text(tokenizer, text)[0],
            words_of_ids(tokenizer, tokenizer.encode(text)),
        )
        assert by_ids.n_words == by_text.n_words
        np.testing.assert_array_equal(by_ids.shares > 0, by_text.shares > 0)


def test_broken_utf8_of_a_hypothesis_stays_in_its_word(tokenizer):
    if tokenizer.algorithm != "byte":
        pytest.skip("only bytes can be put together wrongly")
    ids = tokenizer.encode("é a 日")
    found = words_of_ids(tokenizer, [*ids[:1], *ids[2:-1]])  # é and 日 without their last bytes
    assert found.n_words == len(tokenizer.decode(found.ids).split()) == 3
    assert found.shares.argmax(axis=1).tolist() == [0, 0, 1, 0, 2, 2]


def test_given_words_share_a_token_by_its_letters():
    tokenizer = train_tokenizer(["didn't x"] * 9, TokenizerConfig(vocab_size=280))
    found = words_of_text(tokenizer, "didn't x", words=["did", "n't", "x"])[0]
    assert tokenizer.pieces(found.ids) == ["▁didn", "'t", "▁x"]
    np.testing.assert_allclose(found.shares, [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 1]])
    with pytest.raises(
        DataError, match=r'the line: the words spell "N\'tx", but the text has "n\'tx"; give'
    ):
        words_of_text(tokenizer, "didn't x", words=["did", "N't", "x"])


def test_parts_of_a_line_have_the_words_of_the_line():
    tokenizer = train_tokenizer(["ab cd"] * 9, TokenizerConfig(algorithm="byte"))
    first, second = words_of_text(tokenizer, "ab  cd e", parts=["ab c", "d e"])
    assert first.shares.argmax(axis=1).tolist() == [0, 0, 0, 1]
    assert second.shares.argmax(axis=1).tolist() == [1, 0, 2]
    assert first.n_words == second.n_words == 3
    assert len(words_of_text(tokenizer, "ab cd", longest=2)[0].ids) == 2


def test_words_are_spelled_and_every_token_knows_its_own(tokenizer):
    if tokenizer.algorithm in ("word", "char"):
        pytest.skip("what is unknown leaves no letters")
    for text in TEXTS[:2]:  # without spaces that are no ASCII
        ids = tokenizer.encode(text)
        spelled = spelled_words(tokenizer, ids)
        assert [word.encode() for word in spelled.texts] == text.encode().split()
        assert len(spelled.of_token) == len(ids)
        by_word = dict.fromkeys(range(len(spelled.texts)), b"")
        for token, word in zip(ids, spelled.of_token, strict=True):
            if word is not None:
                by_word[word] += tokenizer.piece_bytes[token].strip()
        joined = b"".join(by_word.values())
        assert b"".join(joined.split()) == b"".join(text.encode().split())
