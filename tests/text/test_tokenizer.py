import json
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tformer_cli.errors import DataError
from tformer_cli.text.joint_tokenizer import ALGORITHMS
from tformer_cli.text.tokenizer import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    SPECIAL_PIECES,
    UNK_ID,
    parse_tokenizer,
    read_tokenizer,
)

LOSSLESS = ["bpe", "unigram", "byte"]
HARD_PARTS = [
    *SPECIAL_PIECES, " ", "  ", "\x00", "\u2028", "\u00a0", "\t", "\n", "\r\n", "e\u0301",
    "\u0301", "😀", "👩‍👧", "▁", "<0xE2>", "Ġ", "Straße", "The dog", "don't", "l'", "1,000",
    "\ufffd", "\ufeff", "हिन्दी", "漢字",
]  # fmt: skip
quick = settings(max_examples=60)
hard_text = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.lists(st.sampled_from(HARD_PARTS), max_size=12).map("".join),
)


@pytest.mark.parametrize("algorithm", LOSSLESS)
@quick
@given(text=hard_text)
@example(text="")
@example(text=" ")
@example(text=" leading, double  and trailing ")
def test_every_text_survives_the_lossless_algorithms(tokenizers, algorithm, text):
    tokenizer = tokenizers[algorithm]
    composed = unicodedata.normalize("NFC", text)
    for form in (text, composed):
        ids = tokenizer.encode(form)
        assert tokenizer.decode(ids) == composed
        assert UNK_ID not in ids


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@quick
@given(text=hard_text)
@example(text="<s>")
@example(text="</s>")
@example(text="<pad><s> </s><unk>")
def test_no_text_becomes_a_special_token(tokenizers, algorithm, text):
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(tokenizers[algorithm].encode(text))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@quick
@given(text=hard_text)
def test_labels_name_pieces_without_white_space_and_lead_back(tokenizers, algorithm, text):
    tokenizer = tokenizers[algorithm]
    ids = tokenizer.encode(text)
    labels = tokenizer.pieces(ids)
    assert [tokenizer.id_of(label) for label in labels] == ids
    assert all(
        label and label == "".join(label.split()) and label.isprintable() for label in labels
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_id_has_its_own_label(tokenizers, algorithm):
    tokenizer = tokenizers[algorithm]
    labels = tokenizer.pieces(range(tokenizer.vocab_size))
    assert len(set(labels)) == tokenizer.vocab_size
    assert labels[:4] == list(SPECIAL_PIECES)
    assert [tokenizer.id_of(piece) for piece in SPECIAL_PIECES] == [PAD_ID, UNK_ID, BOS_ID, EOS_ID]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_text_of_the_training_corpus_survives_every_algorithm(tokenizers, pairs, algorithm):
    tokenizer = tokenizers[algorithm]
    lines = [line for pair in pairs for line in pair]
    assert tokenizer.decode_batch(tokenizer.encode_batch(lines)) == lines


@pytest.mark.parametrize("algorithm", ["word", "char"])
def test_the_others_lose_text(tokenizers, algorithm):
    tokenizer = tokenizers[algorithm]
    assert UNK_ID in tokenizer.encode("漢")


def test_a_word_is_the_same_piece_at_the_start_and_inside(tokenizers):
    tokenizer = tokenizers["bpe"]
    assert tokenizer.pieces(tokenizer.encode("dog dog")) == ["▁dog", "▁dog"]


def test_special_tokens_are_skipped_when_decoding(tokenizers):
    tokenizer = tokenizers["bpe"]
    ids = tokenizer.encode("The dog")
    assert tokenizer.decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == "The dog"


def test_surrogates_are_read_as_replacement_characters(tokenizers):
    tokenizer = tokenizers["bpe"]
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_tokenizer_survives_its_file(tokenizers, tmp_path, algorithm):
    tokenizer = tokenizers[algorithm]
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_json(), encoding="utf-8")
    for place in (path, tmp_path):
        read = read_tokenizer(place)
        assert read.algorithm == algorithm
        assert read.to_json() == tokenizer.to_json()
        assert read.encode("The dog </s> sees.") == tokenizer.encode("The dog </s> sees.")


def set_in(data, path, value):
    *parents, last = path
    for key in parents:
        data = data[key]
    data[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["normalizer"], {"type": "Lowercase"}, "not a tokenizer of tformer"),
        (["normalizer"], None, "not a tokenizer of tformer"),
        (
            ["pre_tokenizer", "pretokenizers", 0, "pattern"],
            {"Regex": "(a+)+$"},
            "not a tokenizer of tformer",
        ),
        (["truncation"], {"direction": "Right", "max_length": 1}, "not a tokenizer"),
        (["model", "dropout"], 0.5, "not a tokenizer of tformer"),
        (["model", "type"], "Nothing", "not a tokenizer"),
        (["model"], 3, "not a tokenizer"),
        (["model", "vocab", "<pad>"], 5, "special tokens"),
        (["model", "vocab", "extra"], 99_999, "ids are not 0, 1, 2"),
        (["model", "vocab", "extra"], 1 << 31, "has the id 2,147,483,648, but a vocabulary has"),
        (["added_tokens", 0, "id"], 1 << 31, "has the id 2,147,483,648, but a vocabulary has"),
        (["model", "vocab", "漢"], 320, "not made of bytes"),
        (["added_tokens", 0, "content"], "<blank>", "special tokens"),
        (["added_tokens"], [], "special tokens"),
        (["added_tokens", 3, "normalized"], True, "special tokens"),
        (["version"], "9.0", "not a tokenizer"),
    ],
)
def test_damaged_and_foreign_files_are_errors_of_one_line(
    tokenizers, tmp_path, path, value, message
):
    data = json.loads(tokenizers["bpe"].to_json())
    set_in(data, path, value)
    file = tmp_path / "foreign.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        read_tokenizer(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"model": {}}', b"[" * 100_000]
)
def test_files_that_are_nothing_of_the_kind_are_errors(tmp_path, content):
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"not a tokenizer|not UTF-8 text; name a tokenizer"):
        read_tokenizer(file)


def test_a_missing_byte_is_an_error(tokenizers):
    data = json.loads(tokenizers["byte"].to_json())
    del data["model"]["vocab"]["ÿ"]
    ordered = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    data["model"]["vocab"] = {piece: place for place, piece in enumerate(ordered)}
    with pytest.raises(DataError, match="256 bytes are missing"):
        parse_tokenizer(json.dumps(data))


def test_cut_files_are_errors(tokenizers):
    text = tokenizers["unigram"].to_json()
    for length in range(0, len(text), len(text) // 20):
        with pytest.raises(DataError, match="is damaged or not a tokenizer"):
            parse_tokenizer(text[:length])


def test_no_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no such tokenizer"):
        read_tokenizer(tmp_path)
