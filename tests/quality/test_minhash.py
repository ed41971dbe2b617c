"""Similarities are those of the sets themselves, and pairs are found as the formula says."""

import random
from contextlib import closing
from itertools import chain

import numpy as np
import pytest

from tests.text.conftest import make_pairs
from tformer_cli.quality.minhash import (
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
from tformer_cli.quality.repeats import normalized
from tformer_cli.text.corpora import SentencePair

PAIRS = [SentencePair(*pair) for pair in make_pairs()]


def sequences(pair):
    text = BETWEEN_SIDES.join(map(normalized, pair)).ljust(GRAM)
    return {text[n : n + GRAM] for n in range(len(text) - GRAM + 1)}


def similarity(one, other):
    ours, theirs = sequences(one), sequences(other)
    return len(ours & theirs) / len(ours | theirs)


def test_the_share_of_equal_hashes_estimates_the_similarity_of_the_sets():
    rng = random.Random(1)
    drawn = [(rng.randrange(len(PAIRS)), rng.randrange(len(PAIRS))) for _ in range(2000)]
    found = signatures(PAIRS)
    errors = np.array([
        (found[one] == found[other]).mean() - similarity(PAIRS[one], PAIRS[other])
        for one, other in drawn
    ])  # fmt: skip
    assert abs(errors.mean()) < 0.01
    assert errors.std() < 1.2 * 0.5 / HASHES**0.5  # that of a coin thrown as often


@pytest.mark.parametrize("n_pairs", [0, 1, PAIRS_AT_ONCE, PAIRS_AT_ONCE + 1])
def test_a_signature_does_not_depend_on_the_pairs_beside(n_pairs):
    assert np.array_equal(
        signatures(PAIRS[:n_pairs]),
        np.concatenate([signatures([one]) for one in PAIRS[:n_pairs]] or [signatures([])]),
    )
    odd = [SentencePair("", ""), SentencePair("a", "😀"), SentencePair("\ud800", "b")]
    alone = np.concatenate([signatures([one]) for one in odd])
    assert np.array_equal(signatures(odd), alone)


def test_bands_are_equal_where_their_hashes_are():
    found = signatures(PAIRS)
    keys = bands(found)
    rows = found.reshape(len(PAIRS), BANDS, -1)
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
        place, found = near.before(2)
        assert place == 30
        assert found == pytest.approx(similarity(first, like), abs=0.2)


def test_texts_in_memory_are_found_by_similarity():
    held = ["The old man is in the house by the sea.", "Nobody knows what happened to them."]
    asked = ["The old man is in the house by the sea today!", held[1].upper(), "A cat sleeps.", ""]
    found = SimilarTexts(signatures_of_texts(held)).similarities(asked)
    # 26 of the 31 sequences are the same; HASHES estimate that within three standard deviations
    assert found[0] == pytest.approx(26 / 31, abs=3 * (26 / 31 * 5 / 31 / HASHES) ** 0.5)
    assert found[1:].tolist() == [1.0, 0.0, 0.0]
    few = SimilarTexts(signatures_of_texts(held[:1])).similarities(asked)
    assert few.tolist() == [found[0], 0.0, 0.0, 0.0]
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
