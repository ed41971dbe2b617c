import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.label_tokenizer import FIRST_LABEL, LabelTokenizer
from tformer_cli.text.train_tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def texts():
    return train_tokenizer(["good food", "bad food"] * 3, TokenizerConfig(vocab_size=300))


def test_texts_are_cut_as_by_their_own_tokenizer_and_labels_are_one_token(texts):
    tokenizer = LabelTokenizer(texts, ["bad", "very good"])
    assert tokenizer.source.encode("good food") == texts.encode("good food")
    assert tokenizer.target.encode_batch([" very good ", "bad", " "]) == [[5], [4], []]
    assert tokenizer.target.decode([5]) == "very good"
    assert tokenizer.vocab_size == FIRST_LABEL + 2
    assert not tokenizer.is_joint
    assert tokenizer.target.pieces([4, 5]) == ["bad", "very▁good"]
    assert tokenizer.target.encode_with_spans(["bad"]) == [([4], [(0, 3)])]
    drawn = tokenizer.target.with_dropout(["bad"], [7], 0.5, 1)
    assert drawn == [[4]]


def test_the_order_of_labels_is_part_of_its_name(texts):
    tokenizer, swapped = LabelTokenizer(texts, ["a", "b"]), LabelTokenizer(texts, ["b", "a"])
    assert tokenizer.to_json() != swapped.to_json()


def test_an_unknown_label_is_named_with_those_that_are_known(texts):
    with pytest.raises(DataError, match='"fine" is not one of the labels "bad", "good" of the'):
        LabelTokenizer(texts, ["bad", "good"]).target.encode("fine")
