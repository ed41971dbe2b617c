import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HuggingFaceTokenizer

from tformer_cli.data import word_cache
from tformer_cli.data.pipelines import BY_WORDS

WORDS = ["dog", "Hund.", "it's", "'s", "’ll", "3,5", "a\u0301", "\u0301", "<s>", "é", "日本語",
         "!?", "\u00a0", "\u2028", "\t", "\x1c", "x\ty", "▁", "\x00", "Straße", ""]  # fmt: skip
texts = st.lists(
    st.one_of(
        st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
        st.text(st.sampled_from("ab ' \t\u00a0é日.3\u0301"), max_size=8),
        st.text(max_size=6),
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def plain(tokenizers):
    """The library's own encoding of whole texts."""

    def open_one(name):
        tokenizer = HuggingFaceTokenizer.from_str(tokenizers[name].to_json())
        tokenizer.encode_special_tokens = True
        return tokenizer

    return {name: open_one(name) for name in BY_WORDS}


@pytest.mark.parametrize("name", BY_WORDS)
def test_encoding_by_words_equals_encoding_whole_texts(tokenizers, plain, name):
    @settings(deadline=None, max_examples=150, derandomize=True, database=None)
    @given(texts)
    def check(lines):
        expected = [plain[name].encode(line, add_special_tokens=False).ids for line in lines]
        assert tokenizers[name].encode_batch(lines) == expected

    check()


def test_words_are_tokenized_once_and_forgotten_beyond_the_limit(monkeypatch):
    asked = []

    def encode(words):
        asked.append(words)
        return [[len(word)] for word in words]

    cache = word_cache.WordCache(encode)
    assert cache.encode_batch(["a bb a", "bb", "", "a  b"]) == [[1, 2, 1], [2], [0], [4]]
    assert asked == [["a", "bb", "", "a  b"]]
    assert cache.encode_batch(["bb a"]) == [[2, 1]]
    assert len(asked) == 1
    monkeypatch.setattr(word_cache, "MAX_CHARACTERS", 3)
    assert cache.encode_batch(["a"]) == [[1]]
    assert asked[1:] == [["a"]]


def test_results_may_be_changed_without_changing_what_is_remembered(tokenizers):
    first = tokenizers["bpe"].encode_batch(["dog"])[0]
    expected = list(first)
    first.append(7)
    assert tokenizers["bpe"].encode_batch(["dog"])[0] == expected
