import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.tokenizer import parse_tokenizer
from tformer_cli.text.train_tokenizer import train_tokenizer

LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]
TEXTS = [
    "<x> A man", "A <x> man", "A man <x>", "<x>", "<x> <x>", "<x>man, not<x> apart",
    " <x>  two spaces", "naïve 漢字 Żółć", "",
    "  <x>  ", " <x>", "<x> ", "A   <x>   <x>  man.  ", "Hello, <x> : <x>", "\t<x> \u00a0<x>",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizers():
    before = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300))
    return before, before.with_new_tokens(["<x>", "Żółć"])


def test_text_without_them_is_cut_as_before(tokenizers):
    before, after = tokenizers
    for text in [*LINES, "not<x> apart", "<x>y", "<x>."]:
        assert before.source.encode(text) == after.source.encode(text)


@pytest.mark.parametrize("text", TEXTS)
def test_every_way_of_encoding_agrees_and_nothing_is_lost(tokenizers, text):
    _, after = tokenizers
    side = after.target
    ids = side.encode(text)
    assert side.decode(ids) == text
    new = [number for number in ids if number >= after.vocab_size - 2]
    assert len(new) == sum(word in after.new_tokens for word in text.split(" "))
    assert parse_tokenizer(after.to_json()).target.encode(text) == ids
    (found, spans), *_ = side.encode_with_spans([text])
    assert found == ids
    assert len(spans) == len(ids)
    assert all(0 <= first <= last <= len(text) for first, last in spans)
    assert side.with_dropout([text], [1], 1e-9, 1) == [ids]


def test_a_word_between_spaces_is_one_piece(tokenizers):
    before, after = tokenizers
    size = before.vocab_size
    assert after.vocab_size == size + 2
    assert after.source.encode("A <x> Żółć")[1:] == [size, size + 1]
    assert after.source.encode_with_spans(["A <x> Żółć"])[0][1][1:] == [(2, 5), (6, 10)]
    assert after.source.pieces([size])[0].endswith("<x>")
    assert after.source.piece_bytes[size] == b" <x>"
    assert after.source.decode([size, size]) == "<x> <x>"


def test_a_word_is_composed_as_the_texts_are(tokenizers):
    before, _ = tokenizers
    after = before.with_new_tokens(["<e\u0301>"])
    assert after.new_tokens == ("<é>",)
    for text in ("A <é> man", "A <e\u0301> man"):
        assert before.vocab_size in after.source.encode(text)


def test_what_is_no_new_word_is_refused(tokenizers):
    before, after = tokenizers
    for tokenizer, word in ((before, "a b"), (before, ""), (after, "<x>"), (before, "\udc80")):
        with pytest.raises(DataError, match=r"is not a word|is a piece"):
            tokenizer.with_new_tokens([word])
    for algorithm in ("word", "char", "byte", "unigram"):
        config = TokenizerConfig(vocab_size=300, algorithm=algorithm)
        with pytest.raises(DataError, match=f'"{algorithm}" tokenizer takes no new tokens'):
            train_tokenizer(LINES * 3, config).with_new_tokens(["<x>"])
