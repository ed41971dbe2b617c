"""Tokenizers of words and pieces; the merges by an obvious version of the same."""

import json
import random

import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.pieces import PieceTokenizer, SubwordCodes
from tformer_cli.text.tokenizer import SPECIAL_PIECES, UNK_ID, parse_tokenizer, read_tokenizer

MERGES = ["l o", "lo w</w>", "e r</w>", "lo w", "lo l", "w er</w>", "n e", "ne w", "l o", "x x"]
JOINED = "\n".join(["#version: 0.2", *MERGES]) + "\n"
COUNTED = "\n".join(f"{merge} {9 - n}" for n, merge in enumerate(MERGES)) + "\n"
APART = "l o\nlo w\ne r\nlow </w>\ner </w>\nn e\n"
PIECES = [*SPECIAL_PIECES, "low", "low@@", "er", "new@@", "n@@", "▁a", "é", "xx@@", "x"]


def obvious(word, merges, *, ends_apart=False):
    """Merges of a word, one best pair at a time, the whole word anew each time."""
    if len(word) == 1:
        return [word]
    symbols = [*word, "</w>"] if ends_apart else [*word[:-1], f"{word[-1]}</w>"]
    for _ in range(len(word)):
        pairs = [" ".join(symbols[n : n + 2]) for n in range(len(symbols) - 1)]
        known = [merges.index(pair) for pair in pairs if pair in merges]
        if not known:
            break
        left, right = merges[min(known)].split(" ")
        merged = []
        for symbol in symbols:
            if symbol == right and merged and merged[-1] == (left, True):
                merged[-1] = (left + right, False)
            else:
                merged.append((symbol, True))
        symbols = [symbol for symbol, _ in merged]
    if symbols[-1] == "</w>":
        symbols.pop()
    symbols[-1] = symbols[-1].removesuffix("</w>")
    return [*(f"{symbol}@@" for symbol in symbols[:-1]), symbols[-1]]


@pytest.mark.parametrize(("text", "ends_apart"), [(JOINED, False), (COUNTED, False), (APART, True)])
def test_words_are_cut_by_the_earliest_merges_first(text, ends_apart):
    codes = SubwordCodes(text, "codes")
    merges = [" ".join(line.split(" ")[:2]) for line in text.splitlines() if line[0] != "#"]
    chosen = random.Random(3)
    for _ in range(500):
        word = "".join(chosen.choices("lowernx", k=chosen.randint(1, 9)))
        assert list(codes.cut(word)) == obvious(word, merges, ends_apart=ends_apart), word
        assert codes.cut(word) == codes.cut(word)
    assert codes.cut("lowlowxxx")[:2] == ("low@@",) * 2 or ends_apart


def test_words_are_joined_again():
    made = PieceTokenizer.build(PIECES, codes=(JOINED, JOINED))
    assert made.source is made.target
    ids = made.source.encode("low  lower é\tnewx ")
    assert made.source.pieces(ids) == ["low", "low@@", "er", "é", "new@@", "x"]
    assert made.target.decode(ids) == "low lower é newx"
    assert made.target.decode([5, 4]) == "lowlow"
    assert made.target.decode([3, 5, 1, 2]) == "low"
    assert b"".join(made.target.piece_bytes[n] for n in ids) == b"low lower \xc3\xa9 newx "
    ((found, spans),) = made.source.encode_with_spans(["  lower low"])
    assert (found, spans) == (made.source.encode("lower low"), [(2, 5), (5, 7), (8, 11)])


def test_without_merges_text_is_the_pieces():
    made = PieceTokenizer.build(PIECES)
    line = "▁a low@@ er x"
    ids = made.source.encode(line)
    assert made.target.decode(ids) == line
    assert made.source.encode_with_spans([line])[0] == (ids, [(0, 2), (3, 8), (9, 11), (12, 13)])
    assert made.source.encode("</s> <pad> unseen \ud800") == [UNK_ID] * 4
    assert made.source.encode(" ") == []


def test_sides_may_differ():
    made = PieceTokenizer.build(PIECES, [*SPECIAL_PIECES, "y"], (JOINED, None))
    assert (made.source.vocab_size, made.vocab_size) == (len(PIECES), 5)
    assert made.target.encode("y low") == [4, UNK_ID]


@pytest.mark.parametrize("codes", [(None, None), (JOINED, None), (JOINED, COUNTED)])
@pytest.mark.parametrize("target", [None, [*SPECIAL_PIECES, "y"]])
def test_the_file_is_read_again(tmp_path, codes, target):
    made = PieceTokenizer.build(PIECES, target, codes)
    (tmp_path / "tokenizer.json").write_text(made.to_json())
    again = read_tokenizer(tmp_path)
    assert again.algorithm == "pieces"
    assert again.to_json() == made.to_json()
    for side in ("source", "target"):
        loaded, built = getattr(again, side), getattr(made, side)
        assert loaded.encode("lower new y") == built.encode("lower new y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#version: 0.3\na b\n", "unknown version"),
        ("#version: 0.2\na b\nc\n", "its merge 2 is not two symbols"),
        ("", "its merge 1 is not two symbols"),
        ("a b c\n", "its merge 1 is not two symbols"),
    ],
)
def test_damaged_codes_are_refused_in_one_line(text, message):
    with pytest.raises(DataError, match=message) as error:
        SubwordCodes(text, "codes")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"source": None},
        {"source": {"pieces": PIECES}},
        {"source": {"pieces": None, "codes": None}},
        {"source": {"pieces": PIECES, "codes": 3}},
        {"source": {"pieces": PIECES[1:], "codes": None}},
        {"tformer_tokenizer": 2},
    ],
)
def test_a_damaged_file_is_refused_in_one_line(change):
    data = json.loads(PieceTokenizer.build(PIECES).to_json()) | change
    with pytest.raises(DataError, match=r"tokenizer\.json: ") as error:
        parse_tokenizer(json.dumps(data))
    assert "\n" not in str(error.value)


def test_new_tokens_are_words_that_are_not_cut():
    for codes in ((JOINED, JOINED), (None, None), (JOINED, None)):
        before = PieceTokenizer.build(PIECES, codes=codes)
        after = before.with_new_tokens(["<x>", "lower@@"])
        assert after.source.vocabulary is after.target.vocabulary
        again = parse_tokenizer(after.to_json())
        assert again.to_json() == after.to_json()
        for side in (after.source, again.target):
            assert side.encode("low <x> lower@@")[1:] == [len(PIECES), len(PIECES) + 1]
            assert side.decode(side.encode("<x> low lower@@")) == "<x> low lower@@"
            assert side.encode_with_spans(["low <x>"])[0][1] == [(0, 3), (4, 7)]
        assert after.source.encode("lower low<x>") == before.source.encode("lower low<x>")
        assert again.new_tokens == ("<x>", "lower@@")
        with pytest.raises(DataError, match='"low": is a piece of the vocabulary'):
            after.with_new_tokens(["low"])


def test_two_vocabularies_of_pieces_grow_each_at_its_end():
    made = PieceTokenizer.build(PIECES, PIECES[:-2], (JOINED, JOINED)).with_new_tokens(["<x>"])
    assert made.source.encode("<x>") == [len(PIECES)]
    assert made.target.encode("<x>") == [len(PIECES) - 2]
