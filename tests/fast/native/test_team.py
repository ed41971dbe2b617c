"""Threads that share the products of one call: they change no bit, and end with it."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.fast.native.test_search import make_model, search
from tformer_cli.fast.native.torch_weights import native_model
from tformer_cli.search.config import DecodingConfig

LARGE = {"d_model": 256, "n_heads": 4, "d_ff": 600}
"""Wide enough that the products of a few rows are worth sharing; no panel is full at its end."""
CONFIG = DecodingConfig(beam_size=3, max_length=9)
needs_linux = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="only Linux lists the threads of a process"
)


def sources_of(n):
    torch.manual_seed(3)
    return [torch.randint(4, 1100, (length,)).tolist() for length in (30, 1, 17, 8)[:n]]


@pytest.fixture(scope="module", params=[False, True], ids=["float32", "int8"])
def model(request):
    # more tokens than a block of the vocabulary has
    return make_model(1100, is_quantized=request.param, **LARGE)


@pytest.mark.parametrize("n_sentences", [1, 4])
def test_no_bit_depends_on_the_number_of_threads(kernels, model, n_sentences):
    sources = sources_of(n_sentences)
    native = native_model(kernels, model)
    alone = search(kernels, model, sources, CONFIG)
    targets = [found[0].token_ids for found in alone]
    scores = native.score(sources, targets)[0]
    states = native.encode(sources)
    for n_threads in (2, 3, 7, 300):
        assert search(kernels, model, sources, CONFIG, n_threads=n_threads) == alone
        assert native.score(sources, targets, n_threads=n_threads)[0] == scores
        shared = native.encode(sources, n_threads=n_threads)
        for state, other in zip(states, shared, strict=True):
            np.testing.assert_array_equal(state, other)


def test_each_call_has_a_team_of_its_own(kernels, model):
    native, sources = native_model(kernels, model), sources_of(4)
    expected = [native.encode([source])[0].tobytes() for source in sources]

    def encode(number):
        index = number % len(sources)
        found = native.encode([sources[index]], n_threads=1 + number % 4)[0]
        return found.tobytes() == expected[index]

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(encode, range(120)))


@needs_linux
@pytest.mark.parametrize(("shape", "n_helpers"), [(LARGE, 3), ({}, 0)], ids=["large", "small"])
def test_helpers_start_where_there_is_work_and_end_with_the_call(kernels, shape, n_helpers):
    def count():
        return len(list(Path("/proc/self/task").iterdir()))

    def wait_for_threads(expected):
        """The system still lists a thread for a moment after it was waited for."""
        deadline = time.monotonic() + 20
        while count() != expected and time.monotonic() < deadline:
            time.sleep(0.01)
        return count()

    native, told, before = native_model(kernels, make_model(1100, **shape)), [], count()
    found = native.search(
        [[5] * 30],
        [4],
        beam_size=1,
        n_searched=1,
        divisors=np.ones(9),
        n_threads=4,
        tell=lambda _: told.append(wait_for_threads(before + n_helpers)),
    )
    assert len(told) == len(found[0][0].token_ids) > 0
    assert set(told) == {before + n_helpers}
    assert wait_for_threads(before) == before
