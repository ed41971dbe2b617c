import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HuggingFaceTokenizer

from tformer_cli.errors import DataError
from tformer_cli.text import joint_tokenizer as segmentation
from tformer_cli.text.joint_tokenizer import BY_WORDS, BpeDropout

WORDS = ["dog", "Hund.", "it's", "'s", "’ll", "3,5", "a\u0301", "\u0301", "<s>", "é", "日本語",
         "!?", "\u00a0", "\u2028", "\t", "\x1c", "x\ty", "▁", "\x00", "Straße", ""]  # fmt: skip
texts = st.lists(
    st.one_of(
        st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
        st.text(st.sampled_from("ab ' \t\u00a0é日.3\u0301"), max_size=8),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
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
    @settings(max_examples=150)
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

    cache = segmentation.WordCache(encode)
    assert cache.encode_batch(["a bb a", "bb", "", "a  b"]) == [[1, 2, 1], [2], [0], [4]]
    assert asked == [["a", "bb", "", "a  b"]]
    assert cache.encode_batch(["bb a"]) == [[2, 1]]
    assert len(asked) == 1
    monkeypatch.setattr(segmentation, "MAX_CHARACTERS", 3)
    assert cache.encode_batch(["a"]) == [[1]]
    assert asked[1:] == [["a"]]


def test_results_may_be_changed_without_changing_the_cache(tokenizers):
    first = tokenizers["bpe"].encode_batch(["dog"])[0]
    expected = list(first)
    first.append(7)
    assert tokenizers["bpe"].encode_batch(["dog"])[0] == expected


@settings(max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60), key=st.integers(0, 99))
def test_without_dropout_the_segmentation_is_that_of_bpe(tokenizers, text, key):
    tokenizer = tokenizers["bpe"]
    sampler = BpeDropout(tokenizer._tokenizer, 0.0, seed=1)
    assert sampler.encode(text, key) == tokenizer.encode(text)


def test_every_line_of_the_corpus_is_segmented_as_by_bpe_without_dropout(tokenizers, pairs):
    tokenizer = tokenizers["bpe"]
    sampler = BpeDropout(tokenizer._tokenizer, 0.0, seed=1)
    for line in (line for pair in pairs for line in pair):
        assert sampler.encode(line, 0) == tokenizer.encode(line)


def test_dropout_keeps_the_text_and_lengthens_it(tokenizers, pairs):
    tokenizer = tokenizers["bpe"]
    texts = [source for source, _ in pairs]
    drawn = tokenizer.with_dropout(texts, range(len(texts)), 0.3, seed=1)
    assert tokenizer.decode_batch(drawn) == texts
    assert sum(map(len, drawn)) > 1.2 * sum(map(len, tokenizer.encode_batch(texts)))


def test_key_and_seed_alone_decide_the_segmentation(tokenizers, pairs, monkeypatch):
    texts = [source for source, _ in pairs][:50]
    make = lambda seed: BpeDropout(tokenizers["bpe"]._tokenizer, 0.3, seed)  # noqa: E731
    first = [make(1).encode(text, key) for key, text in enumerate(texts)]
    monkeypatch.setattr(segmentation, "MAX_WORDS", 3)
    shared = make(1)
    backwards = [shared.encode(text, key) for key, text in reversed(list(enumerate(texts)))]
    assert backwards[::-1] == first
    assert [shared.encode(text, key + 1000) for key, text in enumerate(texts)] != first
    assert [make(2).encode(text, key) for key, text in enumerate(texts)] != first


def test_merges_are_dropped_about_as_often_as_asked(tokenizers):
    tokenizer = tokenizers["bpe"]
    sampler = BpeDropout(tokenizer._tokenizer, 0.1, seed=1)
    [whole] = tokenizer.encode("dog")
    whole_share = sum(sampler._segment("Ġdog", n) == (whole,) for n in range(4000)) / 4000
    # Three merges lead to the piece, each dropped with chance 0.1; other ways round are rarer.
    assert abs(whole_share - 0.9**3) < 0.08


def test_draws_are_the_same_on_every_machine_and_version(tokenizers):
    tokenizer = tokenizers["bpe"]
    sampler = BpeDropout(tokenizer._tokenizer, 0.5, seed=1)
    assert sampler._choices(7, 4)[:4].hex() == "f9fe8387"
    drawn = [len(sampler._segment("Ġdog", number)) for number in range(6)]
    assert drawn == [4, 4, 4, 3, 3, 4]


def test_long_words_are_segmented_in_time(tokenizers):
    tokenizer = tokenizers["bpe"]
    word = "dogsees" * 3000
    assert tokenizer.decode(tokenizer.with_dropout([word], [1], 0.2, 1)[0]) == word


def test_other_algorithms_have_no_merges_to_drop(tokenizers):
    with pytest.raises(DataError, match='needs a "bpe" tokenizer, but this one is "unigram"'):
        tokenizers["unigram"].with_dropout(["text"], [1], 0.1, 1)
    assert tokenizers["unigram"].with_dropout(["dog"], [1], 0.0, 1) == [
        tokenizers["unigram"].encode("dog")
    ]
