"""Files that are damaged, or made to do harm."""

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.sentencepiece.test_spm_file import PARTS, SOUND, field, piece
from tests.data.sentencepiece.test_tokenizer import MARIAN, SPECIAL, TAGS, vocabulary
from tformer_cli.data.sentencepiece.normalizer import Normalizer
from tformer_cli.data.sentencepiece.segmenter import Segmenter
from tformer_cli.data.sentencepiece.spm_file import BYTE, read_spm
from tformer_cli.data.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.errors import DataError

quick = settings(max_examples=100)


def charsmap(*units, texts=b"x\0"):
    trie = struct.pack(f"<{len(units)}I", *units)
    return field(3, field(2, struct.pack("<I", len(trie)) + trie + texts))


def test_a_model_of_bytes_needs_all_of_them():
    data = SOUND + PARTS + piece("<0x00>", 0.0, BYTE) + field(2, field(35, 1))
    with pytest.raises(DataError, match=r"source\.spm: has no piece '<0x01>' for a byte; restore"):
        Segmenter(read_spm(data, "source.spm"), "source.spm")


@pytest.mark.parametrize(
    "settings_of_text",
    [
        field(3, field(2, b"abc")),
        field(3, field(2, struct.pack("<I", 1 << 31) + b"abcd")),
        field(3, field(2, struct.pack("<I", 6) + b"abcdefgh")),
        field(3, field(2, struct.pack("<I", 0))),
    ],
    ids=["cut off", "huge", "no whole units", "empty"],
)
def test_a_damaged_table_of_characters_is_refused_in_one_line(settings_of_text):
    model = read_spm(SOUND + PARTS + settings_of_text, "source.spm")
    with pytest.raises(
        DataError, match=r"source\.spm: its table of replaced characters is damaged"
    ):
        Normalizer(model, "source.spm")


def unit(label, offset, has_value=False):
    return offset << 10 | has_value << 8 | label


def e_acute(value, texts):
    """A table that replaces `é` by the text at a place."""
    units = [0] * 0xC4
    units[0xC3] = unit(0xC3, 0xC3)
    units[0xA9] = unit(0xA9, 1, has_value=True)
    units[0xA8] = value
    return charsmap(*units, texts=texts)


@pytest.mark.parametrize(
    "table",
    [  # `é` is the bytes C3 A9; the root's offset is 0, so C3 leads to unit C3
        charsmap(*[0] * 0xC3, unit(0xC3, 0x3FFFF)),
        charsmap(*[0] * 0xC3, unit(0xC3, 1, has_value=True)),
        e_acute(value=0, texts=b"\xff\0"),
        e_acute(value=0, texts=b"x"),
        e_acute(value=9, texts=b"x\0"),
    ],
    ids=["leads out", "ends inside a character", "no text", "no end", "beyond the texts"],
)
def test_damage_that_only_a_text_finds_is_refused_in_one_line(table):
    normalizer = Normalizer(read_spm(SOUND + PARTS + table, "source.spm"), "source.spm")
    with pytest.raises(
        DataError, match=r"source\.spm: its table of replaced characters is damaged"
    ):
        normalizer.normalize("é")


def test_a_table_of_one_character_replaces_it():
    model = read_spm(SOUND + PARTS + e_acute(value=2, texts=b"x\0yz\0"), "a model")
    assert Normalizer(model, "a model").normalize("a éé") == "▁a▁yzyz"


def test_a_table_that_leads_back_to_itself_ends():
    """Every `a` leads to the same unit again, without end: keys are bounded."""
    units = [0] * 0x100
    units[0x61] = unit(0x61, 0x61)
    normalizer = Normalizer(read_spm(SOUND + PARTS + charsmap(*units), "a model"), "a model")
    assert normalizer.normalize("é" + "a" * 4_000) == "▁é" + "a" * 4_000


@quick
@given(data=st.data())
def test_no_damage_is_more_than_an_error_of_one_line(spms, data):
    """Bytes of a real file are changed, removed or put in: it can be used, or is refused."""
    whole = bytearray(spms[data.draw(st.sampled_from(sorted(spms)))])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        if data.draw(st.booleans()):
            whole[at] = data.draw(st.integers(0, 255))
        else:
            whole[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=5))
    message = "source.spm: "
    try:
        segmenter = Segmenter(read_spm(bytes(whole), "source.spm"), "source.spm")
        segmenter.encode_batch(["The ﬁne dog  sees Straße ½ 😀", "각 e\u0301 ｶﾞ"])
    except DataError as error:
        message = str(error)
    assert message.startswith("source.spm: ")
    assert "\n" not in message


@quick
@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_an_error_of_one_line(data):
    with pytest.raises(DataError, match=r"source\.spm: "):
        read_spm(data, "source.spm")


@pytest.fixture(scope="module")
def stored(spms):
    pieces = vocabulary(spms["unigram"], more=TAGS.values())
    return SentencePieceTokenizer.build(spms["unigram"], None, pieces, languages=MARIAN).to_json()


@pytest.mark.parametrize("text", ["1", "1, " + "[" * 100_000, "1}", '1, "kind": "sentencepiece"}'])
def test_half_a_file_is_refused_in_one_line(text):
    with pytest.raises(DataError, match=r"^x: is damaged; restore the file$"):
        Tokenizer.from_json('{"tformer_tokenizer": ' + text, where="x")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("source", "spm", "?"),
        ("source", "spm", "\u00e9"),
        ("source", "pieces", None),
        ("source", "pieces", SPECIAL[:3]),
        ("source", "pieces", [*SPECIAL, "\ud800"]),
        ("target", "spm", [1]),
        ("target", "spm", 7),
        ("target", "pieces", {"a": 1}),
        ("target", "pieces", 5),
        ("target", "pieces", ""),
        ("languages", "target", 5),
        ("languages", "before_source", "both"),
        ("languages", "unknown", 5),
        ("kind", None, "words"),
    ],
)
def test_a_value_of_another_kind_is_refused_in_one_line(stored, section, key, value):
    data = json.loads(stored)
    if key is None:
        data[section] = value
    else:
        data[section][key] = value
    with pytest.raises(DataError) as error:
        Tokenizer.from_json(json.dumps(data), where="x")
    assert str(error.value).startswith("x: ")
    assert "\n" not in str(error.value)


def test_what_is_read_when_it_is_used_is_refused_then(stored):
    for key, value, reason in (
        ("pieces", [*SPECIAL, "a", "a"], 'its vocabulary has "a" twice'),
        ("spm", "AAAA", "cannot be used as a SentencePiece model"),
    ):
        data = json.loads(stored)
        data["source"][key] = value
        tokenizer = Tokenizer.from_json(json.dumps(data), where="x")
        with pytest.raises(DataError, match=f"^x: {reason}"):
            tokenizer.source.encode("a")
