import pytest
import torch

from tests.inspect.conftest import check_maps, made_model
from tformer_cli.inspect.capture.batches import _batch_sizes, capture_batch, capture_pairs
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.model.attention import MultiHeadAttention

LENGTHS = [(1, 6), (19, 3), (6, 6), (30, 39), (39, 1), (0, 2)]


@pytest.fixture
def model(one_thread):
    # in float64 nothing but a wrong cell can exceed the tolerance
    return made_model(torch.float64, 60, noise=0.0, max_positions=40)


@pytest.fixture
def pairs():
    return [tuple(torch.randint(4, 60, (n,)).tolist() for n in lengths) for lengths in LENGTHS * 2]


def test_every_pair_of_a_batch_has_the_maps_it_has_alone(model, pairs):
    for pair, found in zip(pairs, capture_batch(model, pairs).maps(), strict=True):
        check_maps(found, capture_maps(model, *pair))


def test_batches_of_any_size_give_every_pair_once(model, pairs, monkeypatch):
    for most_cells in (1, 3000, 10**9):
        monkeypatch.setattr("tformer_cli.inspect.capture.batches.MOST_CELLS", most_cells)
        found = dict(capture_pairs(model, pairs))
        assert sorted(found) == list(range(len(pairs)))
        for index, maps in found.items():
            check_maps(maps, capture_maps(model, *pairs[index]))


def test_batches_come_in_few_sizes_so_that_no_library_meets_ever_new_shapes():
    for n_pairs in range(1, 70):
        sizes = list(_batch_sizes(n_pairs, 24))
        assert sum(sizes) == n_pairs
        assert set(sizes) <= {1, 2, 4, 8, 16}


def test_kinds_not_asked_for_are_left_out_and_no_listener_stays(model, pairs):
    maps = capture_batch(model, pairs[:2], kinds=["cross"]).maps()[0]
    assert (maps.enc, maps.dec, len(maps.cross)) == ((), (), 2)
    assert {head.kind for head in maps.residuals} == {"cross"}
    assert all(not m._listeners for m in model.modules() if isinstance(m, MultiHeadAttention))


def test_a_pair_that_is_too_long_is_refused(model):
    with pytest.raises(ValueError, match="the target has 40 tokens, but the model takes 39"):
        capture_batch(model, [([5], [6]), ([5], [6] * 40)])
