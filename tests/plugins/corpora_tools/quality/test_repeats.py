"""Pairs that repeat others, exactly or nearly."""

import random
from collections import Counter
from contextlib import closing
from itertools import chain
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.conftest import make_pairs
from tformer_cli.plugins.corpora_tools.quality import repeats
from tformer_cli.plugins.corpora_tools.quality.minhash import (
    BANDS,
    BETWEEN_SIDES,
    GRAM,
    HASHES,
    PAIRS_AT_ONCE,
    NearDuplicates,
    Places,
    SimilarTexts,
    bands,
    signatures,
    signatures_of_texts,
)
from tformer_cli.plugins.corpora_tools.quality.repeats import (
    NEVER,
    KeyFiles,
    key_of,
    keys_of_pair,
    normalize_text,
)
from tformer_cli.plugins.corpora_tools.quality.split_data import (
    TEST,
    TRAIN,
    VALID,
    assign,
    components,
    labels_of_similar,
)
from tformer_cli.text.corpora import SentencePair

KEYS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30)


def matrix(pairs):
    return np.array(pairs, dtype=np.uint64).reshape(-1, 2).T


def test_texts_that_count_as_the_same_have_one_key():
    assert normalize_text("« Ça VA ? »") == normalize_text("ça va") == "çava"
    assert normalize_text("ﬁn １２") == "fin12"
    assert normalize_text("Covid-19, l’été") == normalize_text("COVID 19 : l'e\u0301te\u0301!")
    assert (
        normalize_text("1\u00a0000 %")
        == normalize_text("1\u200b000%")
        == normalize_text("1 000 %.")
    )
    assert normalize_text("2 – 2") == normalize_text("2-2") == normalize_text("(2\u00ad−2)…")
    assert (
        normalize_text("- 5 apples")
        == normalize_text("5 apples.")
        == normalize_text("... 5 “apples”")
    )
    assert normalize_text(" ?! ") == "?!"
    assert normalize_text("की") != normalize_text("का")  # signs of vowels are not punctuation
    assert keys_of_pair("ab", "c") != keys_of_pair("a", "bc")
    assert keys_of_pair("A.", "b")[1:] == (key_of("a"), key_of("b"))


DIFFERENT = [
    "$5 €5 £5 5 -5 +5 ±5 5% 5‰ 5° 5′ 5″ .5 5² 5½ #5 -$5 5/ 5*",
    "1.5 15 1,5 1:5 1/5 1-5 1+5 1'5 1×5 1^5",
    "C C++ C# c* A+ A- A",
    "1e5 1e-5 1E+5",
    "2+2 2-2 2×2 2÷2 22 2=2 2<2 2>2 2~2",
    "10² 102 ١٫٥ ١٥",
    "m/s ms 😀! 😢! ! R&D RD",
]


@pytest.mark.parametrize("texts", DIFFERENT)
def test_symbols_and_what_belongs_to_numbers_count(texts):
    words = texts.split()
    for sentence in ("{}", "It is {}.", "IT, is:\u00a0«{}»"):
        assert len({normalize_text(sentence.format(word)) for word in words}) == len(words)
    for word in words:
        assert normalize_text(f"It is {word}.") == normalize_text(f"IT, is:\u00a0«{word}»")


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 7))
def test_keys_that_occur_again_are_those_counted(keys, size):
    with closing(KeyFiles(1)) as files:
        for start in range(0, len(keys), size):
            files.add(np.array([keys[start : start + size]], dtype=np.uint64))
        (repeated,) = files.find_repeats()
    counts = Counter(keys)
    slots = repeated.slots(np.arange(10, dtype=np.uint64)).tolist()
    assert [slot >= 0 for slot in slots] == [counts[key] > 1 for key in range(10)]
    taken = [slot for slot in slots if slot >= 0]
    assert len(taken) == len(set(taken))
    for slot in taken:
        assert repeated.first(slot) == NEVER
        repeated.see(slot, slot + 5)
        repeated.see(slot, 99)
        assert repeated.first(slot) == slot + 5


@settings(max_examples=20)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.integers(0, 40), st.integers(1, 9))
def test_keys_are_sorted_in_parts(keys, n_again, at_once):
    keys += keys[:n_again]
    with (
        mock.patch.multiple(repeats, SORTED_AT_ONCE=at_once, READ_AT_ONCE=3),
        closing(KeyFiles(1)) as files,
    ):
        files.add(np.array([keys], dtype=np.uint64))
        (repeated,) = files.find_repeats()
    slots = repeated.slots(np.array(keys, dtype=np.uint64))
    assert [slot >= 0 for slot in slots] == [keys.count(key) > 1 for key in keys]
    n_slots = len({key for key in keys if keys.count(key) > 1})
    assert {*slots.tolist()} - {-1} == {*range(n_slots)}


def link_pairs(pairs):
    """The first pair that each pair is linked to, found by trying all."""
    labels = list(range(len(pairs)))
    for _ in pairs:
        for place, (a, b) in enumerate(pairs):
            for other, (c, d) in enumerate(pairs):
                if a == c or b == d:
                    labels[place] = labels[other] = min(labels[place], labels[other])
    return labels


@settings(max_examples=60)
@given(KEYS)
def test_components_are_those_of_trying_all(pairs):
    assert components(matrix(pairs)).tolist() == link_pairs(pairs)


def test_a_long_chain_is_one_component():
    pairs = [(n // 2, (n + 1) // 2) for n in range(3000)]
    assert set(components(matrix(pairs)).tolist()) == {0}


def test_what_is_nearly_the_same_on_any_side_has_one_label():
    house, sea = "The old man is in the house by the sea", "Nobody knows what happened to them all"
    sides = [
        ["a cat", house, f"{house} now", sea, "a bird in a tree"],
        ["one", "two", sea, "four", f"{sea} now"],
    ]
    with closing(NearDuplicates()) as first, closing(NearDuplicates()) as second:
        for near, texts in zip((first, second), sides, strict=True):
            near.add_signatures(signatures_of_texts(texts))
        labels = labels_of_similar([first, second], 5).tolist()
    assert labels[1] == labels[2] == labels[4]
    assert len(set(labels)) == 3


def test_sets_have_their_sizes_share_nothing_and_follow_from_text_and_seed():
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 3000, (2, 3000)).astype(np.uint64)
    keys[:, 2000:] = rng.integers(10_000, 1 << 60, (2, 1000))
    sets = assign(keys, 200, 100, seed=1)
    assert np.bincount(sets).tolist() == [2700, 200, 100]
    for side in keys:
        kinds = [set(side[sets == kind].tolist()) for kind in (TRAIN, VALID, TEST)]
        assert all(a.isdisjoint(b) for a in kinds for b in kinds if a is not b)
    assert np.array_equal(sets, assign(keys, 200, 100, seed=1))
    assert not np.array_equal(sets, assign(keys, 200, 100, seed=2))
    more = np.concatenate(
        [keys, rng.integers(1 << 61, 1 << 62, (2, 300)).astype(np.uint64)], axis=1
    )
    again = assign(more, 200, 100, seed=1)[:3000]
    assert (again[sets != TRAIN] != TRAIN).mean() > 0.6


PAIRS = [SentencePair(*pair) for pair in make_pairs()]


def sequences(pair):
    text = BETWEEN_SIDES.join(map(normalize_text, pair)).ljust(GRAM)
    return {text[n : n + GRAM] for n in range(len(text) - GRAM + 1)}


def similarity(pair, other):
    ours, theirs = sequences(pair), sequences(other)
    return len(ours & theirs) / len(ours | theirs)


def test_the_share_of_equal_hashes_estimates_the_similarity_of_the_sets():
    rng = random.Random(1)
    drawn = [(rng.randrange(len(PAIRS)), rng.randrange(len(PAIRS))) for _ in range(2000)]
    rows = signatures(PAIRS)
    errors = np.array([
        (rows[first] == rows[second]).mean() - similarity(PAIRS[first], PAIRS[second])
        for first, second in drawn
    ])  # fmt: skip
    assert abs(errors.mean()) < 0.01
    assert errors.std() < 1.2 * 0.5 / HASHES**0.5  # that of a coin thrown as often


@pytest.mark.parametrize("n_pairs", [0, 1, PAIRS_AT_ONCE, PAIRS_AT_ONCE + 1])
def test_a_signature_does_not_depend_on_the_pairs_beside(n_pairs):
    assert np.array_equal(
        signatures(PAIRS[:n_pairs]),
        np.concatenate([signatures([pair]) for pair in PAIRS[:n_pairs]] or [signatures([])]),
    )
    odd = [SentencePair("", ""), SentencePair("a", "😀"), SentencePair("\ud800", "b")]
    alone = np.concatenate([signatures([pair]) for pair in odd])
    assert np.array_equal(signatures(odd), alone)


def test_bands_are_equal_where_their_hashes_are():
    block = signatures(PAIRS)
    keys = bands(block)
    rows = block.reshape(len(PAIRS), BANDS, -1)
    for band in range(BANDS):
        assert len(set(keys[band].tolist())) == len({tuple(row) for row in rows[:, band].tolist()})


def test_the_earlier_pair_that_was_kept_is_found():
    first = SentencePair("The old man is in the house by the sea.", "Der alte Mann ist im Haus.")
    like = SentencePair("The old man is in the house by the sea!", "Der alte Mann ist im Hause.")
    other = SentencePair("Nobody knows what happened to them.", "Niemand weiß, was geschah.")
    pairs = [other, like, first, other, like]
    with closing(NearDuplicates()) as near:
        near.add(pairs[:2])
        near.add(pairs[2:])
        near.finish()
        near.look_up([10, 20])
        assert near.before(0) is None
        near.see(0)
        assert near.before(1) is None  # and is not kept
        near.look_up([30, 40, 50])
        assert near.before(0) is None
        near.see(0)
        assert near.before(1) == (10, 1.0)
        place, share = near.before(2)
        assert place == 30
        assert share == pytest.approx(similarity(first, like), abs=0.2)


def test_texts_in_memory_are_found_by_similarity():
    held = ["The old man is in the house by the sea.", "Nobody knows what happened to them."]
    texts = ["The old man is in the house by the sea today!", held[1].upper(), "A cat sleeps.", ""]
    shares = SimilarTexts(signatures_of_texts(held)).similarities(texts)
    # 26 of the 31 sequences are the same; HASHES estimate that within three standard deviations
    assert shares[0] == pytest.approx(26 / 31, abs=3 * (26 / 31 * 5 / 31 / HASHES) ** 0.5)
    assert shares[1:].tolist() == [1.0, 0.0, 0.0]
    few = SimilarTexts(signatures_of_texts(held[:1])).similarities(texts)
    assert few.tolist() == [shares[0], 0.0, 0.0, 0.0]
    assert SimilarTexts(signatures_of_texts([])).similarities(held).tolist() == [0.0, 0.0]


def test_all_earlier_pairs_that_are_similar_are_told():
    texts = ["The old man is in the house by the sea."] * 2 + ["A cat sleeps."]
    with closing(NearDuplicates()) as near:
        near.add_signatures(signatures_of_texts([*texts, texts[0]]))
        near.finish()
        near.look_up(range(4))
        near.see(0)
        assert [near.like(n) for n in (1, 2, 3)] == [{0: 1.0}, {}, {0: 1.0}]


def test_the_place_of_each_pair_is_known_by_its_number():
    chunks = [[1, 2, 3], [4, 7, 8], [], [(1 << 40) + 1, (1 << 40) + 2, (1 << 40) + 9]]
    places = Places()
    for chunk in chunks:
        places.extend(chunk)
    assert [places.of(number) for number in range(9)] == [*chain(*chunks)]
