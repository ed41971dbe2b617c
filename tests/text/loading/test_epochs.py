import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tformer_cli.text.loading import loader as loading
from tformer_cli.text.loading.loader import Mixture


def obvious_examples(sizes, weights, seed, epoch):
    """Every pair number of an epoch in a list, the corpora one after the other."""
    starts = np.concatenate(([0], np.cumsum(sizes)))
    parts = [np.zeros(0, np.int64)]
    for number, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        copies, rest = divmod(round(weight * size), max(size, 1))
        chosen = [np.arange(size)] * copies
        if rest:
            shuffled = np.random.default_rng([seed, number, 1]).permutation(size)
            chosen.append(shuffled[(epoch * rest + np.arange(rest)) % size])
        parts += [starts[number] + part for part in chosen]
    return np.concatenate(parts)


corpora = st.lists(st.tuples(st.integers(0, 30), st.floats(0.01, 3.0)), min_size=1, max_size=4)


@settings(max_examples=100)
@given(corpora=corpora, epoch=st.integers(0, 5))
def test_an_epoch_of_one_window_is_the_obvious_list(corpora, epoch):
    sizes, weights = zip(*corpora, strict=True)
    mixture = Mixture(sizes, weights, seed=3)
    expected = obvious_examples(sizes, weights, 3, epoch)
    assert (mixture.n_examples, mixture.n_windows) == (len(expected), 1)
    places = mixture.places(epoch, 0)
    assert places.tolist() == list(range(len(expected)))
    assert mixture.pairs(epoch, places).tolist() == expected.tolist()


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(loading, "WINDOW", 100)
    monkeypatch.setattr(loading, "BLOCK", 8)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("n", [101, 200, 807])
def test_windows_hold_every_place_once(n):
    mixture = Mixture([n], [1.0], seed=1)
    windows = [mixture.places(0, window) for window in range(mixture.n_windows)]
    assert max(map(len, windows)) <= 100
    assert max(map(len, windows)) - min(map(len, windows)) <= 1
    assert sorted(np.concatenate(windows).tolist()) == list(range(n))


@pytest.mark.usefixtures("small_windows")
def test_windows_hold_blocks_from_all_over_the_epoch_and_change_with_it():
    mixture = Mixture([4000], [1.0], seed=1)
    first, again, next_epoch = (mixture.places(epoch, 7) for epoch in (0, 0, 1))
    assert np.array_equal(first, again)
    assert len(np.intersect1d(first, next_epoch)) < 50
    assert first.min() < 1000
    assert first.max() >= 3000
    assert np.count_nonzero(np.diff(first) == 1) >= 80


@pytest.mark.usefixtures("small_windows")
def test_fractions_of_a_large_corpus_come_in_turn():
    mixture = Mixture([50, 1003], [1.0, 1.25], seed=2)
    seen = np.zeros(1053, dtype=int)
    for epoch in range(4):
        pairs = [
            mixture.pairs(epoch, mixture.places(epoch, window))
            for window in range(mixture.n_windows)
        ]
        of_epoch = np.bincount(np.concatenate(pairs), minlength=1053)
        assert set(of_epoch[:50]) == {1}
        assert set(of_epoch[50:]) == {1, 2}
        seen += of_epoch
    # round(1.25 · 1003) = 1254 examples: 251 more than a whole pass in each of four epochs.
    assert seen[50:].min() == 5
    assert np.count_nonzero(seen[50:] == 6) == 1
