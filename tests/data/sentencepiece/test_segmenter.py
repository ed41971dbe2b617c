import random

import pytest
from sentencepiece import SentencePieceProcessor

from tformer_cli.data.sentencepiece.segmenter import Segmenter
from tformer_cli.data.sentencepiece.spm_file import read_spm

NAMES = ["unigram", "other", "bpe", "bytes", "bpe in bytes", "symbols", "bpe with symbols",
         "spaces", "across words", "identity", "lower case"]  # fmt: skip
ODD = [
    *("", " ", "  the  dog ", "\x00a", "a\tb\r\n", "<unk> </s> <s>", "▁a▁▁b▁", "a▁", "\u3000x"),
    *("emoji 🤖🤖 🤖", "\ufeff x", "e\u0301 E\u0301", "각", "\u1100\u1161", "¨´ ﷺ", "a\u00a0b"),
    *("１２３ ﬁ ½", "\x01", "\x01 a", "\u2028", "<0x41>", "[X][XY]X the[X]dog", ">>fra<< dog"),
    *("\u0cc6\u0cd5", "\U0010fffe", "\U0010ffff0"),
]
TEXTS = ["A man sees the dog in Köln, and 25 others: ＡＢ é 漢字 Straße.", "Nobody wanted a house."]
POOL = "abdehnot ,:e\u0301\u0308 ▁▁  \x01\u00a0\u3000ｶﾞ각ᄀ\u1161漢🤖<>/s\tÅ’“…½ﬁ\u0cc6[XY]"


def random_texts(n):
    dice = random.Random(1)
    return ["".join(dice.choices(POOL, k=dice.randint(0, 14))) for _ in range(n)]


def check_equal(data, texts):
    ours, theirs = Segmenter(read_spm(data, "x.spm"), "x.spm"), SentencePieceProcessor()
    theirs.load_from_serialized_proto(data)
    expected = theirs.encode(list(texts), num_threads=1)
    assert ours.encode_batch(texts) == expected
    for text, ids in zip(texts[:200], expected, strict=False):
        found = ours.encode_with_places(text)
        assert [piece for piece, _, _ in found] == ids
        assert all(0 <= start <= end <= len(text) for _, start, end in found)
        starts = [start for _, start, end in found if start < end]
        assert starts == sorted(starts)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_are_those_of_the_library(spms, name):
    check_equal(spms[name], [*TEXTS, *ODD, *random_texts(400)])


def test_places_name_the_characters_of_each_piece(spms):
    segmenter = Segmenter(read_spm(spms["unigram"], "x.spm"), "x.spm")
    text = "a  ﬁ \x01b"
    found = segmenter.encode_with_places(text)
    assert {text[start:end].strip() for _, start, end in found} == {"", "a", "ﬁ", "b"}
