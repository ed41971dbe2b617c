"""Corpora of any size are read in the same memory, and resumed anywhere."""

import tracemalloc
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tformer_cli.text.loading import loader as loading
from tformer_cli.text.loading.encoded import SCHEMA, ArrowTable, Counts, EncodedCorpus, record_batch
from tformer_cli.text.loading.loader import LoaderPosition, TrainingLoader

CHUNK = 8192
TOKENIZER = SimpleNamespace(source=SimpleNamespace(ids_per_token=1))
"""All that the loader asks of a tokenizer: the pairs are encoded."""


@pytest.fixture(autouse=True, scope="module")
def small_windows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "WINDOW", 4096)
        yield


def synthetic_corpus(path, n_pairs):
    """Pairs whose first source token is their number, made without text or tokenizer."""
    lengths = np.random.default_rng(1).integers(1, 30, (2, n_pairs)).tolist()
    rows = [list(range(n)) for n in range(30)]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for start in range(0, n_pairs, CHUNK):
            sources, targets = ([rows[n] for n in side[start : start + CHUNK]] for side in lengths)
            numbered = [[start + i, *ids[1:]] for i, ids in enumerate(sources)]
            texts = [""] * len(sources)
            writer.write_batch(record_batch(numbered, targets, texts, texts))
    return EncodedCorpus(ArrowTable(path), Counts(), "key", from_cache=True)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpora")
    return {n: synthetic_corpus(directory / f"{n}.arrow", n) for n in (20_000, 200_000)}


def open_loader(corpus, **settings):
    return TrainingLoader([corpus], [1.0], TOKENIZER, 1000, seed=1, prefetch=2, **settings)


def peak_memory(corpus, share):
    """Bytes that Python and numpy held at most while reading batches."""
    tracemalloc.start()
    try:
        loader = open_loader(corpus)
        position = LoaderPosition(0, int(share * loader.n_batches(0)))
        loader = open_loader(corpus, position=position)
        assert sum(1 for _ in islice(loader, 20)) == 20
        loader.close()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_ten_times_the_pairs_take_no_more_memory(corpora, share):
    small, large = (peak_memory(corpora[n], share) for n in (20_000, 200_000))
    assert large < small + 300_000  # less than two bytes for each pair more


def test_a_large_epoch_holds_every_pair_once(corpora):
    loader = open_loader(corpora[20_000])
    batches = [batch for batch, _ in islice(loader, loader.n_batches(0))]
    loader.close()
    numbers = np.concatenate([batch.source[:, 0].numpy() for batch in batches])
    assert sorted(numbers.tolist()) == list(range(20_000))


@settings(max_examples=15)
@given(data=st.data())
def test_resuming_anywhere_continues_as_if_uninterrupted(corpora, data):
    whole = open_loader(corpora[20_000])
    n_batches = whole.n_batches(0)
    stop = data.draw(st.integers(0, n_batches - 1))
    expected = list(islice(whole, stop, stop + 3)) if stop < 40 else None
    whole.close()
    resumed = open_loader(corpora[20_000], position=LoaderPosition(0, stop))
    found = list(islice(resumed, 3))
    resumed.close()
    if expected is None:
        before = open_loader(corpora[20_000], position=LoaderPosition(0, stop - 30))
        expected = list(islice(before, 30, 33))
        before.close()
    assert [position for _, position in found] == [position for _, position in expected]
    for (batch, _), (other, _) in zip(found, expected, strict=True):
        assert batch.source.tolist() == other.source.tolist()
        assert batch.target_output.tolist() == other.target_output.tolist()
