import numpy as np
import pytest
import torch

from tformer_cli.training import orthogonal
from tformer_cli.training.orthogonal import COEFFICIENTS, CUSHION, SMALLEST, orthogonalized

SHAPES = [(8, 8), (8, 24), (24, 8), (20, 28)]
JORDAN = (3.4445, -4.7750, 2.0315)
LARGEST_ERROR = 0.182


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def with_singular_values(values, n_columns):
    """A matrix (R, C) with chosen singular values."""
    left, _ = torch.linalg.qr(random(len(values), len(values)).double())
    right, _ = torch.linalg.qr(random(n_columns, len(values)).double())
    return (left * values) @ right.mT


def rotated(matrices, result):
    """The result in the matrices' singular vectors: diagonal if it has the same ones."""
    u, _, v = torch.linalg.svd(matrices.double(), full_matrices=False)
    return u.mT @ result.double() @ v.mT


def polynomial(values, coefficients):
    a, b, c = coefficients
    return a * values + b * values**3 + c * values**5


@pytest.mark.parametrize("shape", SHAPES)
def test_keeps_singular_vectors_and_brings_singular_values_near_1(shape):
    matrices = random(3, *shape)
    found = rotated(matrices, orthogonalized(matrices))
    values = found.diagonal(dim1=1, dim2=2)
    assert (found - torch.diag_embed(values)).abs().max() < 1e-4
    assert values.min() > 0.8
    assert values.max() < 1.2


def test_each_polynomial_is_the_best_of_its_kind():
    """Chebyshev: the error of the best quintic x·q(x²) has its largest size at 4 places, in turns.

    So no other a, b, c come nearer to 1 on [l, u].
    """
    low, high = SMALLEST, 1.0
    for coefficients in COEFFICIENTS:
        x = torch.linspace(low, high, 400_001, dtype=torch.float64)
        error = polynomial(x, coefficients) - 1.0
        inner = error[1:-1]
        is_turn = (inner - error[:-2]) * (error[2:] - inner) < 0.0
        extremes = torch.cat([error[:1], inner[is_turn], error[-1:]])
        largest = error.abs().max()
        expected = largest * torch.tensor([-1.0, 1.0, -1.0, 1.0], dtype=torch.float64)
        assert torch.allclose(extremes, expected, atol=1e-5)
        low, high = 1.0 - float(largest), CUSHION * (1.0 + float(largest))
    assert largest < LARGEST_ERROR, "how near to 1 they come together"


@pytest.mark.parametrize("n_columns", [64, 200])
def test_the_spectrum_of_a_momentum_ends_nearer_1_than_by_jordans_five_iterations(n_columns):
    # quantiles of singular values over the Frobenius norm, after 500 steps on Multi30k
    quantiles = [0.01, 0.05, 0.1, 0.25, 0.5, 0.9, 1.0]
    logs = np.log([0.00028, 0.0018, 0.0038, 0.0106, 0.0234, 0.09, 0.6])
    values = torch.from_numpy(np.exp(np.interp(np.linspace(0.01, 1.0, 64), quantiles, logs)))
    matrix = with_singular_values(values, n_columns)
    ours = torch.linalg.svdvals(orthogonalized(matrix[None].float())[0].double())
    theirs = values / values.norm()
    for _ in range(5):
        theirs = polynomial(theirs, JORDAN)
    assert (1.0 - ours).abs().mean() < 0.85 * (1.0 - theirs).abs().mean()
    assert (1.0 - ours).square().mean() < 0.9 * (1.0 - theirs).square().mean()
    expected = values / (CUSHION * values.pow(4).sum().sqrt()).sqrt()
    for coefficients in COEFFICIENTS:
        expected = polynomial(expected, coefficients)
    assert torch.allclose(ours.sort().values, expected.sort().values, atol=1e-3)


@pytest.mark.parametrize("n_columns", [256, 400])
def test_bfloat16_stays_in_bounds_where_few_entries_are_large(n_columns):
    matrices = 1e-3 * random(3, 256, n_columns)
    matrices[:, :4, :4] += random(3, 4, 4)
    matrices[:, 7, 9] = torch.tensor([1.0, 10.0, 100.0])
    values = torch.linalg.svdvals(orthogonalized(matrices, torch.bfloat16))
    assert values.max() < 1.0 + LARGEST_ERROR + 0.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_columns", [32, 96])
@pytest.mark.parametrize("rank", [1, 5, 32])
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
def test_ranks_scales_and_precisions_do_not_make_it_run_away(rank, n_columns, dtype, scale):
    values = torch.zeros(32).double()
    values[:rank] = scale
    matrix = with_singular_values(values, n_columns)[None].float()
    found = rotated(matrix, orthogonalized(matrix, dtype)).diagonal(dim1=1, dim2=2)[0]
    assert found[:rank].min() > 0.8
    assert found.abs().max() < 1.25
    if dtype == torch.float32 and rank < 32:
        assert found[rank:].abs().max() < 0.01, "directions that are not there stay out"


@pytest.mark.parametrize("shape", [(16, 48), (48, 16), (16, 24)])
def test_a_wide_matrix_is_the_same_by_both_ways(shape, monkeypatch):
    matrices, calls = random(2, *shape), []
    quick = orthogonalized(matrices)
    product = orthogonal._product
    monkeypatch.setattr(orthogonal, "_product", lambda gram: calls.append(1) or product(gram))
    assert torch.equal(orthogonalized(matrices), quick)
    assert calls == [1]
    monkeypatch.setattr(orthogonal, "WIDE", 100.0)
    assert torch.allclose(orthogonalized(matrices), quick, atol=1e-4)
    orthogonalized(matrices, torch.bfloat16)
    assert calls == [1]


def test_a_matrix_of_zeros_stays_one():
    for shape in SHAPES:
        assert torch.equal(orthogonalized(torch.zeros(1, *shape)), torch.zeros(1, *shape))


def test_matrices_beside_each_other_do_not_matter():
    matrices = random(5, 16, 32)
    assert torch.allclose(orthogonalized(matrices)[3:4], orthogonalized(matrices[3:4]), atol=1e-6)
