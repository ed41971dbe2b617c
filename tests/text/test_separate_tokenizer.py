"""Tokenizers with a vocabulary for each language."""

import json

import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.tokenizer import parse_tokenizer
from tformer_cli.text.train_tokenizer import train_sides, train_tokenizer

PAIRS = [("the cat saw the old house", "le chat a vu la vieille maison"), ("a cat", "un chat")] * 5
CONFIG = TokenizerConfig(vocab_size=300, joint=False)


@pytest.fixture(scope="module")
def tokenizer():
    return train_sides(lambda: PAIRS, CONFIG)


@pytest.fixture(scope="module")
def alone():
    """A tokenizer of each language by itself, which the sides must equal."""
    config = TokenizerConfig(vocab_size=300)
    return [train_tokenizer([pair[side] for pair in PAIRS], config) for side in range(2)]


def test_each_side_is_the_tokenizer_of_its_language(tokenizer, alone):
    for side, own in zip((tokenizer.source, tokenizer.target), alone, strict=True):
        assert side.encode_batch(["a vu cat", "l'été"]) == own.encode_batch(["a vu cat", "l'été"])
        assert side.vocab_size == own.vocab_size
    assert not tokenizer.is_joint
    assert tokenizer.vocab_size == alone[1].vocab_size


def test_only_the_source_reads_special_spaces_as_spaces(tokenizer):
    spaced = "the\u00a0cat"
    assert tokenizer.source.encode(spaced) == tokenizer.source.encode("the cat")
    assert tokenizer.target.decode(tokenizer.target.encode(spaced)) == spaced
    side = tokenizer.side("source")
    assert side.decode(side.encode(spaced)) == spaced


def test_its_file_gives_it_back(tokenizer):
    again = parse_tokenizer(tokenizer.to_json())
    assert again.to_json() == tokenizer.to_json()
    text = "the\u00a0cat vu"
    for name in ("source", "target"):
        assert getattr(again, name).encode(text) == getattr(tokenizer, name).encode(text)


@pytest.mark.parametrize("rest", ["1", "1}", '1, "source": {}}', '1, "source": 1, "target": 2}'])
def test_a_damaged_file_is_refused(rest):
    with pytest.raises(DataError, match=r"^tok: is damaged"):
        parse_tokenizer(f'{{"tformer_tokenizer": 1, "kind": "separate", "x": {rest}', "tok")


def test_other_versions_and_sides_of_other_programs_are_refused(tokenizer):
    data = json.loads(tokenizer.to_json())
    with pytest.raises(DataError, match="tok: was written by another version"):
        parse_tokenizer(json.dumps({**data, "tformer_tokenizer": 9}), "tok")
    data["target"]["decoder"] = None
    with pytest.raises(DataError, match="tok: is not a tokenizer of tformer"):
        parse_tokenizer(json.dumps(data), "tok")


def test_new_tokens_are_of_both_languages(tokenizer):
    longer = parse_tokenizer(tokenizer.with_new_tokens(["<law>", "<med>"]).to_json())
    assert longer.new_tokens == ("<law>", "<med>")
    for name in ("source", "target"):
        side, before = getattr(longer, name), getattr(tokenizer, name)
        assert side.encode("<law> a <med>")[::2] == [before.vocab_size, before.vocab_size + 1]
        assert side.encode("the cat") == before.encode("the cat")


def test_what_a_vocabulary_lacks_is_told_of_its_language():
    asked = TokenizerConfig(vocab_size=900, joint=False)
    notes = train_sides(lambda: PAIRS, asked).notes
    assert [note.split(":")[0] for note in notes] == ["source", "target"]
    assert all("not 900: the text has no more" in note for note in notes)


def test_bytes_are_the_same_in_all_languages():
    with pytest.raises(ValueError, match=r'^joint: "byte" has the same pieces'):
        TokenizerConfig(algorithm="byte", joint=False)
