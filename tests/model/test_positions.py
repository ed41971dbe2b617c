import math

import torch

from tformer_cli.model.positions import SinusoidalPositions, sinusoids


def test_the_table_is_the_papers_formula():
    table = sinusoids(100, 512)
    for position, index in [(0, 0), (1, 0), (3, 10), (99, 255)]:
        angle = position / 10_000 ** (2 * index / 512)
        assert math.isclose(table[position, 2 * index], math.sin(angle), abs_tol=1e-6)
        assert math.isclose(table[position, 2 * index + 1], math.cos(angle), abs_tol=1e-6)


def test_products_depend_on_the_offset_alone_and_norms_are_root_half_the_width():
    table = sinusoids(64, 128).double()
    products = table @ table.T
    for offset in (0, 1, 7):
        diagonal = products.diagonal(offset)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4)
    assert torch.allclose(products.diagonal(), torch.full((64,), 64.0, dtype=torch.float64))


def test_rows_far_out_are_computed_when_they_are_asked_for():
    positions = SinusoidalPositions(5000, 32)
    assert torch.equal(positions.rows(4990, 5000, torch.device("cpu")), sinusoids(5000, 32)[4990:])
    assert torch.equal(positions.rows(0, 3, torch.device("cpu")), sinusoids(3, 32))
