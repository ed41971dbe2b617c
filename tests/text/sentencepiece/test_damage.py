"""Files that are damaged, or made to do harm."""

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.sentencepiece.test_spm_file import PARTS, SOUND, field, piece
from tests.text.sentencepiece.test_tokenizer import MARIAN, SPECIAL, TAGS, vocabulary
from tformer_cli.errors import DataError
from tformer_cli.text.sentencepiece.spm_file import BYTE, SpmFile, read_spm
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.text.tokenizer import parse_tokenizer

quick = settings(max_examples=100)


def charsmap(*units, texts=b"x\0"):
    trie = struct.pack(f"<{len(units)}I", *units)
    return field(3, field(2, struct.pack("<I", len(trie)) + trie + texts))


def unit(label, offset, has_value=False):
    return offset << 10 | has_value << 8 | label


def e_acute(value=1 << 31, texts=b"x\0yz\0", **units):
    """A table that replaces `é`, the bytes C3 A9, by the text at a place.

    The root's offset is 0, so C3 leads to unit C3, and A9 from there to A9.
    """
    trie = [0] * 0x100
    trie[0xC3], trie[0xA9], trie[0xA8] = unit(0xC3, 0xC3), unit(0xA9, 1, has_value=True), value
    for place, other in units.items():
        trie[int(place[1:], 16)] = other
    return charsmap(*trie, texts=texts)


@pytest.mark.parametrize(
    "table",
    [
        field(3, field(2, b"abc")),
        field(3, field(2, struct.pack("<I", 1 << 31) + b"abcd")),
        field(3, field(2, struct.pack("<I", 6) + b"abcdefgh")),
        field(3, field(2, struct.pack("<I", 0))),
        charsmap(*[0] * 0xFF),
        e_acute(xC3=unit(0xC3, 0x3FFFF)),
        e_acute(x00=unit(0, 0x100)),
        e_acute(x10=unit(0x10, 0x100)),
        e_acute(texts=b"\xff\0"),
        e_acute(texts=b"x"),
        e_acute(texts=b""),
        e_acute(1 << 31 | 9),
        e_acute(1 << 31 | 1, texts="é".encode() + b"\0"),
        e_acute(texts=b"x" * 2000 + b"\0"),
    ],
    ids=["cut off", "huge", "no whole units", "empty", "too short", "leads out", "root leads out",
         "unused unit leads out", "no text", "no end", "no texts", "beyond the texts",
         "inside a character", "too long"],
)  # fmt: skip
def test_a_damaged_table_of_characters_is_refused_before_the_library_sees_it(table):
    with pytest.raises(
        DataError, match=r"^source\.spm: .*\(its table of replaced characters is damaged\); restore"
    ):
        read_spm(SOUND + PARTS + table, "source.spm")


@pytest.mark.parametrize(
    ("added", "reason"),
    [
        (piece("a\0"), "null character"),
        (piece("<0x00>", 0.0, BYTE), "byte_fallback"),
        (piece("<0x00>", 0.0, BYTE) + field(2, field(35, 1)), "byte pieces"),
    ],
    ids=["zero", "bytes without their setting", "one byte of 256"],
)
def test_what_the_library_refuses_is_one_line(added, reason):
    with pytest.raises(
        DataError, match=rf"^source\.spm: cannot be used as a Sent.*{reason}.*; restore the file$"
    ):
        SpmFile(SOUND + added + PARTS, "source.spm").encode_batch(["a"])


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
        file = SpmFile(bytes(whole), "source.spm")
        file.encode_batch(["The ﬁne dog  sees Straße ½ 😀", "각 e\u0301 ｶﾞ"])
        file.encode_with_places("각 e\u0301 ½ 😀")
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
        parse_tokenizer('{"tformer_tokenizer": ' + text, where="x")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("source", "spm", "?"), ("source", "spm", "\u00e9"), ("source", "pieces", None),
        ("source", "pieces", SPECIAL[:3]), ("source", "pieces", [*SPECIAL, "\ud800"]),
        ("target", "spm", [1]), ("target", "spm", 7), ("target", "pieces", {"a": 1}),
        ("target", "pieces", 5), ("target", "pieces", ""), ("languages", "target", 5),
        ("languages", "before_source", "both"), ("languages", "unknown", 5),
        ("kind", None, "words"),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_refused_in_one_line(stored, section, key, value):
    data = json.loads(stored)
    if key is None:
        data[section] = value
    else:
        data[section][key] = value
    with pytest.raises(DataError) as error:
        parse_tokenizer(json.dumps(data), where="x")
    assert str(error.value).startswith("x: ")
    assert "\n" not in str(error.value)


def test_what_is_read_when_it_is_used_is_refused_then(stored):
    for key, value, reason in (
        ("pieces", [*SPECIAL, "a", "a"], 'its vocabulary has "a" twice'),
        ("spm", "AAAA", "cannot be used as a SentencePiece model"),
    ):
        data = json.loads(stored)
        data["source"][key] = value
        tokenizer = parse_tokenizer(json.dumps(data), where="x")
        with pytest.raises(DataError, match=f"^x: {reason}"):
            tokenizer.source.encode("a")
