import struct

import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.sentencepiece.spm_file import CONTROL, UNKNOWN, read_spm


def field(number, value):
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def varint(value):
    digits = []
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def piece(text, score=-1.0, kind=None):
    content = field(1, text.encode()) + field(2, score)
    return field(1, content + (b"" if kind is None else field(3, kind)))


SOUND = piece("<unk>", 0.0, 2) + piece("<s>", 0.0, 3) + piece("a") + piece("▁b", -2.5)
PARTS = field(2, b"") + field(3, b"")
"""Settings of training and of normalizing, which every file has."""


def test_pieces_scores_and_types_are_read():
    model = read_spm(SOUND + PARTS + field(2, field(3, 2) + field(35, 1)), "x.spm")
    assert model.pieces == ["<unk>", "<s>", "a", "▁b"]
    assert model.scores == [0.0, 0.0, -1.0, -2.5]
    assert list(model.types) == [UNKNOWN, CONTROL, 1, 1]


def test_pieces_in_another_order_of_parts_are_read():
    turned = field(1, field(3, 1) + field(2, -3.0) + field(9, b"new") + field(1, b"c"))
    model = read_spm(turned + SOUND + PARTS, "x.spm")
    assert model.pieces[0] == "c"
    assert model.scores[0] == -3.0
    long = "x" * 300
    assert read_spm(SOUND + PARTS + piece(long), "x.spm").pieces[-1] == long


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "has no pieces"),
        (piece("a"), "has 0 unknown pieces"),
        (SOUND + piece("a"), "occurs twice"),
        (SOUND + piece(""), "empty"),
        (SOUND + piece("c", float("nan")), "not a number"),
        (SOUND + piece("c", kind=9), "unknown type"),
        (SOUND + field(1, 5), "wrong type"),
        (SOUND + field(1, field(1, 5)), "wrong type"),
        (SOUND + field(2, field(3, 4)), "algorithm"),
        (SOUND + field(2, field(24, 1)), "space_as_suffix"),
        (SOUND + field(3, field(5, 0)), "escape_whitespaces"),
        (SOUND + field(5, field(2, b"x")), "after decoding"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\x7f", "cut off"),
        (b"\xff" * 20, "cut off"),
        (SOUND + b"\x0f", "unknown type"),
        (SOUND + field(1, field(1, b"\xff")), "cut off"),
    ],
)
def test_damaged_models_are_refused_in_one_line(data, what):
    with pytest.raises(DataError) as caught:
        read_spm(data, "x.spm")
    assert what in str(caught.value)
    assert str(caught.value).startswith("x.spm: ")
    assert "\n" not in str(caught.value)


def test_every_cut_is_refused():
    whole = SOUND + field(2, field(3, 1) + field(4, 4)) + field(3, field(3, 1))
    assert len(read_spm(whole, "x.spm").pieces) == 4
    for length in range(len(whole)):
        with pytest.raises(DataError, match=r"x\.spm: cannot be used"):
            read_spm(whole[:length], "x.spm")


def test_fewer_pieces_than_were_trained_are_refused_and_added_ones_are_not():
    with pytest.raises(DataError, match="has 4 pieces, but its trainer settings say 5"):
        read_spm(SOUND + PARTS + field(2, field(4, 5)), "x.spm")
    assert len(read_spm(SOUND + PARTS + field(2, field(4, 3)), "x.spm").pieces) == 4


@pytest.mark.parametrize(
    "data",
    [
        field(4, 4) * 300_000,
        SOUND + field(2, field(4, 4) * 300_000),
        field(1, field(4, 4) * 300_000),
    ],
    ids=["parts", "settings", "of a piece"],
)
def test_a_file_of_one_thing_repeated_is_refused_at_once(data):
    with pytest.raises(DataError, match="more than"):
        read_spm(data, "x.spm")
