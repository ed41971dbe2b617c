"""Matrices made orthogonal by the kernels, against the same by torch."""

import pytest
import torch

from tformer_cli.fast.native.training import NativeOperations
from tformer_cli.trainer.optimizers.muon import COEFFICIENTS, CUSHION, orthogonalize_matrices

SHAPES = [
    (1, 1), (1, 5), (5, 7), (7, 5), (31, 33), (32, 32), (16, 300), (300, 16), (70, 600), (65, 64),
]  # fmt: skip


@pytest.fixture
def operations(training_library):
    return NativeOperations(training_library)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_formula_in_float64(operations, shape):
    matrices = random(3, *shape)
    expected = orthogonalize_matrices(matrices.double(), torch.float64)
    found = orthogonalize_matrices(matrices, operations=operations)
    assert found.dtype == torch.float32
    assert (found - expected).abs().max() < 2e-3


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
@pytest.mark.parametrize("rank", [0, 1, 20])
def test_ranks_and_scales_do_not_make_it_run_away(operations, rank, scale):
    matrix = scale * random(1, 48, max(rank, 1))[..., :rank] @ random(1, max(rank, 1), 64)[:, :rank]
    found = orthogonalize_matrices(matrix, operations=operations)[0]
    left, _, right = torch.linalg.svd(matrix[0].double(), full_matrices=False)
    values = left.mT @ found.double() @ right.mT
    assert (values - values.diagonal().diag()).abs().max() < 0.02
    assert ((values.diagonal()[:rank] - 1.0).abs() < 0.2).all()
    assert (values.diagonal()[rank:].abs() < 0.01).all()


def test_a_matrix_has_the_same_bits_beside_others_and_on_two_threads(operations):
    matrices = random(5, 48, 80)
    together = orthogonalize_matrices(matrices, operations=operations)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(orthogonalize_matrices(matrices, operations=operations), together)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(orthogonalize_matrices(matrices[3:4], operations=operations), together[3:4])


def test_rows_that_lie_apart_are_read_where_they_are(operations):
    matrices = random(2, 40, 24)
    found = orthogonalize_matrices(matrices.mT, operations=operations)
    assert torch.equal(
        found, orthogonalize_matrices(matrices.mT.contiguous(), operations=operations)
    )
    assert torch.allclose(
        found.mT, orthogonalize_matrices(matrices, operations=operations), atol=1e-5
    )


@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 4)])
def test_nothing_is_nothing(operations, shape):
    assert orthogonalize_matrices(torch.zeros(shape), operations=operations).shape == shape


def test_other_numbers_are_left_to_torch(operations):
    matrices = random(1, 8, 16)
    for dtype in (torch.bfloat16, torch.float64):
        expected = orthogonalize_matrices(matrices, dtype)
        assert torch.equal(orthogonalize_matrices(matrices, dtype, operations), expected)
    with pytest.raises(TypeError, match=r"not torch\.float64 on cpu"):
        operations.orthogonalize(matrices.double(), COEFFICIENTS, CUSHION, 1e-14)
