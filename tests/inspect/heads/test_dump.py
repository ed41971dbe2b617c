import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.heads.dump import NO_COLUMN, DumpLayout, ShardArrays, largest

HEADS = (HeadId("enc", 0, 1), HeadId("enc", 2, 0), HeadId("cross", 1, 0), HeadId("cross", 1, 1))


@pytest.fixture
def all_maps(make_record):
    sizes = [("abcd", "xy"), ("a", "xyz"), ("abcdef", "x")]
    return [make_record(tuple(source), tuple(target)).captured for source, target in sizes]


def filled(layout, all_maps, order=(2, 0, 1)):
    lengths = [(len(maps.source_ids), len(maps.target_ids)) for maps in all_maps]
    shard = ShardArrays(layout, [3, 5, 6], lengths)
    for number in order:
        shard.add(number, all_maps[number])
    return shard.arrays


def test_dense_maps_come_back_in_half_precision(all_maps):
    arrays = filled(DumpLayout(heads=HEADS), all_maps)
    assert arrays["index"].tolist() == [3, 5, 6]
    assert arrays["src_len"].tolist() == [5, 2, 7]
    assert arrays["tgt_len"].tolist() == [3, 4, 2]
    assert {n for n in arrays if n.endswith(".w")} == {"enc.0.w", "enc.2.w", "cross.1.w"}
    for number, maps in enumerate(all_maps):
        n_source, n_target = len(maps.source_ids), len(maps.target_ids)
        for head, place, shape in [
            (HEADS[0], 0, (n_source, n_source)),
            (HEADS[1], 0, (n_source, n_source)),
            (HEADS[2], 0, (n_target, n_source)),
            (HEADS[3], 1, (n_target, n_source)),
        ]:
            start, stop = arrays[f"{head.kind}.off"][number : number + 2]
            found = arrays[f"{head.kind}.{head.layer}.w"][place, start:stop].reshape(shape)
            assert found.dtype == np.float16
            assert_allclose(found, maps.weights(head), atol=2**-12, rtol=0)
        assert arrays["residual"][number] == np.float32(maps.residual)
    tokens = [token for maps in all_maps for token in maps.target_ids]
    assert arrays["tgt_ids"].tolist() == tokens
    assert arrays["src_ids"][:5].tolist() == list(all_maps[0].source_ids)


def test_sparse_rows_hold_the_largest_weights_and_the_rest(all_maps):
    arrays = filled(DumpLayout(heads=HEADS, top_k=3), all_maps)
    for number, maps in enumerate(all_maps):
        weights = maps.weights(HEADS[3]).numpy()
        start, stop = arrays["cross.off"][number : number + 2]
        columns = arrays["cross.1.idx"][1, start:stop]
        top = arrays["cross.1.w"][1, start:stop].astype(np.float32)
        rest = arrays["cross.1.rest"][1, start:stop].astype(np.float32)
        assert stop - start == len(weights)
        assert columns.dtype == np.uint16
        for row, expected in enumerate(weights):
            k = min(3, len(expected))
            best = sorted(range(len(expected)), key=lambda j: -expected[j])[:k]
            assert columns[row, :k].tolist() == best
            assert_array_equal(columns[row, k:], NO_COLUMN)
            assert_allclose(top[row, :k], expected[best], atol=2**-12)
            assert_array_equal(top[row, k:], 0)
            assert_allclose(rest[row], 1 - expected[best].sum(), atol=1e-3)


def test_of_equal_weights_the_first_column_comes_first():
    columns, top, rest = largest(torch.tensor([[[0.25, 0.25, 0.25, 0.25]]]), 2)
    assert columns.tolist() == [[[0, 1]]]
    assert top.tolist() == [[[0.25, 0.25]]]
    assert rest.tolist() == [[0.5]]


@pytest.mark.parametrize("top_k", [None, 1, 3])
def test_the_size_is_that_of_the_arrays(all_maps, top_k):
    layout = DumpLayout(heads=HEADS, top_k=top_k)
    arrays = filled(layout, all_maps)
    expected = sum(layout.n_bytes(len(m.source_ids), len(m.target_ids)) for m in all_maps)
    ends_of_offsets = 8 * len(layout.kinds)
    assert sum(array.nbytes for array in arrays.values()) == expected + ends_of_offsets


def test_the_sizes_of_the_literature_s_base_model():
    heads = tuple(
        HeadId(kind, layer, head)
        for kind in ("enc", "dec", "cross")
        for layer in range(6)
        for head in range(8)
    )
    weights = DumpLayout(heads=heads).n_bytes(30, 30)
    assert weights == pytest.approx(2 * 129_600, rel=0.002)  # 144 heads of 30 x 30 in two bytes
    sparse = DumpLayout(heads=heads, top_k=3).n_bytes(30, 30)
    assert sparse == pytest.approx(144 * 30 * 14, rel=0.005)
