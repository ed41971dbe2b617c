"""Products of 8-bit integers, by every kind of instruction that this machine can run.

`plain-4` is plain C with the layout, the shift and the starts that the VNNI instructions have.
"""

import ctypes
import shutil

import pytest
import torch

from tests.fast.native.kernels import declare, multiply, packed_integers
from tests.slowly import slowly
from tformer_cli.fast.native.build import build as build_libraries
from tformer_cli.fast.native.library import KERNELS, levels_of_processor, library_path
from tformer_cli.fast.quantized import QuantizedProduct, quantize_matrix


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@pytest.fixture(
    scope="module",
    params=[
        "highest",
        *slowly("plain-4", "plain-2", "x86-64-v2", "x86-64-v3", "x86-64-v3-vnni", "x86-64-v4"),
    ],
)
def build(request):
    return request.param


@pytest.fixture(scope="module")
def products(build, tmp_path_factory, kernels, library_of, request):
    if build == "highest":
        return kernels
    if not build.startswith("plain"):
        return library_of(build)
    folder = shutil.copytree(KERNELS, tmp_path_factory.mktemp("plain") / "kernels")
    for path in folder.glob("*.c"):
        if path.stem not in ("arena", "matmul", "parallel", "quantized"):
            path.unlink()
    level = levels_of_processor()[-1]
    plain = ("-O2", f"-DTFORMER_PLAIN_GROUP={build.removeprefix('plain-')}")
    compiler = request.getfixturevalue("compiler")
    build_libraries([level], folder, compiler=compiler, sources=folder, extra=plain)
    return declare(ctypes.CDLL(str(library_path(level.name, folder))))


@pytest.mark.parametrize("n_inputs", [0, 1, 64, 256, 1023, 1024, 1030, 2048])
@pytest.mark.parametrize(("n_rows", "n_outputs"), [(2, 70), (5, 33), (13, 96), (230, 5)])
def test_products_of_integers_have_the_bits_of_the_models_own(
    products, build, n_rows, n_outputs, n_inputs
):
    x = torch.randn(n_rows, n_inputs) * torch.logspace(-3, 3, n_rows).unsqueeze(1)
    x[0] = 0.0
    if n_rows > 2:  # the largest sums there are
        x[1], x[2] = 7.0, -7.0
    matrix = quantize_matrix(torch.randn(n_outputs, n_inputs).contiguous())
    matrix.integers[0], matrix.integers[1] = 127, -127
    bias, residual = torch.randn(n_outputs), torch.randn(n_rows, n_outputs)
    weights, _panels = packed_integers(products, matrix)
    product = QuantizedProduct(matrix, None)
    if n_inputs == 0:
        assert torch.equal(multiply(products, weights, x), torch.zeros(n_rows, n_outputs))
        return
    assert torch.equal(multiply(products, weights, x), product(x))
    whole = multiply(products, weights, x, bias=bias, relu=True, residual=residual)
    expected = QuantizedProduct(matrix, bias)(x, relu=True) + residual
    if build == "x86-64-v2":  # which cannot add a bias to a product in one rounding
        assert torch.allclose(whole, expected, rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(whole, expected)
    alone = multiply(products, weights, x[-1:], bias=bias, relu=True, residual=residual[-1:])
    assert torch.equal(alone, whole[-1:])


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_row_that_is_not_all_numbers_gives_none(products, broken):
    x = torch.randn(3, 40)
    x[1, 7] = broken
    weights, _panels = packed_integers(products, quantize_matrix(torch.randn(50, 40)))
    result = multiply(products, weights, x)
    assert result[1].isnan().all()
    assert result[[0, 2]].isfinite().all()
