"""Products in other numbers than float32."""

import copy

import pytest
import torch

from tformer_cli.fast import quantized
from tformer_cli.fast.products import (
    can_pack,
    pack,
    quantized_matrices,
    unpack,
    use_bfloat16,
    use_integers,
)
from tformer_cli.fast.quantized import (
    LARGEST,
    QuantizedMatrix,
    QuantizedProduct,
    integers_are_exact,
    quantize_matrix,
    quantize_rows,
)
from tformer_cli.model.operations import StandardProducts
from tformer_cli.runtime import autocast


def quantized_copy(model):
    changed = copy.deepcopy(model)
    use_integers(changed, quantized_matrices(changed.state_dict()))
    return changed


def logits_of(model, sentences):
    with torch.inference_mode():
        return model(*sentences)


SHAPES = [
    {},
    {"norm": "pre", "activation": "gelu", "bias": False, "tied_embeddings": "none"},
    {"tied_embeddings": "decoder", "positions": "learned", "output_bias": True},
    {"decoder_cell": "ssru", "norm": "pre"},
    {"encoder_heads": (4, 0), "decoder_heads": (1, 0, 4), "cross_heads": (0, 2, 4)},
]


@pytest.mark.parametrize("changes", SHAPES)
def test_logits_of_a_packed_model_are_the_models(changes, sentences, one_thread, make_model):
    if not can_pack():
        pytest.skip("this build of torch packs no float32 matrices")
    model = make_model(**changes)
    expected = logits_of(model, sentences)
    pack(model)
    assert torch.allclose(logits_of(model, sentences), expected, atol=1e-5)


@pytest.mark.parametrize("changes", SHAPES)
def test_logits_in_integers_are_close_and_matrices_are_given_up(changes, sentences, make_model):
    model = make_model(**changes)
    expected = logits_of(model, sentences)
    found = logits_of(quantized_copy(model), sentences)
    assert 0.0 < (found - expected).norm() / expected.norm() < 0.03
    lost = [name for name, p in quantized_copy(model).named_parameters() if p.is_meta]
    wanted = (
        "input",
        "forget",
        "in_projection",
        "out_projection",
        "inner",
        "outer",
        "output_projection",
    )
    assert lost
    assert all(name.split(".")[-2] in wanted for name in lost)


def test_integers_are_of_matrices_alone(make_model):
    model = make_model(positions="learned")
    names = set(quantized_matrices(model.state_dict()))
    assert names == {
        name
        for name, parameter in model.named_parameters()
        if parameter.dim() == 2 and not name.endswith("positions.table")
    }
    assert "source_embedding.weight" in names


def test_tied_embeddings_and_output_use_the_same_integers(make_model):
    model = quantized_copy(make_model())
    with torch.inference_mode():
        # a hidden state that is an integer row itself is not rounded
        hidden = torch.zeros(32)
        hidden[5] = 1.0
        assert torch.allclose(model.project(hidden), model.target_matrix[:, 5], atol=1e-7)


def test_a_step_in_integers_gives_a_row_the_same_bits_in_every_batch(make_model):
    model = quantized_copy(make_model())
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(4, 50, (40, 16), generator=generator)
    mask = torch.ones_like(source, dtype=torch.bool)
    tokens = torch.randint(4, 50, (40, 5), generator=generator)
    with torch.inference_mode(), StandardProducts():
        together = steps_of(model, source, mask, tokens)
        for start, stop in ((0, 2), (3, 10), (10, 40)):
            part = slice(start, stop)
            found = steps_of(model, source[part], mask[part], tokens[part])
            assert torch.equal(found, together[part])


def steps_of(model, source, mask, tokens):
    cache = model.start_cache(model.encode(source, mask), mask, 1, tokens.shape[1])
    return torch.stack([model.decode_step(column, cache) for column in tokens.T], dim=1)


@pytest.mark.parametrize("changes", SHAPES[:4])  # of a layer without heads a float32 bias is left
def test_matrices_rounded_once_give_what_autocast_gives(make_model, sentences, changes):
    model = make_model(**changes)
    with autocast(torch.device("cpu"), "bfloat16"):
        expected = logits_of(model, sentences)
    use_bfloat16(model)
    computed = logits_of(model, sentences)
    assert computed.dtype == torch.bfloat16
    assert torch.equal(computed, expected)
    unpack(model)
    assert logits_of(model, sentences).dtype == torch.float32


@pytest.fixture(params=["float32", "integer"])
def kernel(request):
    """Both kernels; the integer one is asked for sums that no processor gets wrong."""
    if request.param == "float32":
        return quantized._FloatKernel
    try:
        quantized._IntegerKernel(torch.ones(4, 4, dtype=torch.int8))
    except (AttributeError, RuntimeError):
        pytest.skip("this build of torch has no integer kernel")
    return quantized._IntegerKernel


def test_a_matrix_is_rounded_by_the_largest_of_each_row():
    matrix = torch.tensor(
        [[1.27, -0.64, 0.006, 0.004], [0.0, 0.0, 0.0, 0.0], [-254.0, 2.0, 3.0, 5]]
    )
    found = quantize_matrix(matrix)
    # 2, 3 and 5 are 1, 1.5 and 2.5 steps; halves go to the even integer
    assert found.integers.tolist() == [[127, -64, 1, 0], [0, 0, 0, 0], [-127, 1, 2, 2]]
    assert found.integers.dtype == torch.int8
    assert found.scale.tolist() == pytest.approx([0.01, 1 / 127, 2.0])


def test_what_integers_stand_for_is_within_half_a_step():
    torch.manual_seed(1)
    matrix = torch.randn(50, 33)
    found = quantize_matrix(matrix)
    error = (found.dequantize() - matrix).abs().amax(dim=1)
    assert (error <= 0.5001 * found.scale).all()
    assert (found.integers.abs().amax(dim=1) == LARGEST).all()


def test_a_matrix_without_elements_stays_one():
    for shape in ((0, 8), (8, 0)):
        found = quantize_matrix(torch.empty(shape))
        assert found.integers.shape == shape
        assert found.scale.shape == shape[:1]


def test_rows_of_activations_have_a_scale_each_and_zeros_stay_zeros():
    integers, scale = quantize_rows(torch.tensor([[[2.0, -1.0]], [[0.0, 0.0]], [[1e-3, 5e-4]]]))
    assert integers.flatten(0, 1).tolist() == [[127.0, -64.0], [0.0, 0.0], [127.0, 64.0]]
    assert scale.shape == (3, 1, 1)
    assert scale.flatten()[[0, 2]].tolist() == pytest.approx([2 / 127, 1e-3 / 127])


def test_sums_are_exact_whatever_the_rows_beside(kernel):
    generator = torch.Generator().manual_seed(2)
    for n_columns in (16, 250, 1024, 2500):
        weights = torch.randint(-63, 64, (40, n_columns), generator=generator, dtype=torch.int8)
        rows = torch.randint(-127, 128, (37, n_columns), generator=generator).float()
        expected = rows.double() @ weights.double().T
        product = kernel(weights)
        for n_rows in (1, 2, 5, 37):
            assert torch.equal(product(rows[:n_rows]).double(), expected[:n_rows])


def test_the_largest_sums_are_exact_in_the_kernel_that_is_used():
    n_columns = 1024
    weights = torch.full((3, n_columns), LARGEST, dtype=torch.int8)
    weights[1] = -LARGEST
    rows = torch.full((2, n_columns), float(LARGEST))
    rows[1] = -LARGEST
    chosen = quantized._IntegerKernel if integers_are_exact() else quantized._FloatKernel
    largest = LARGEST * LARGEST * n_columns
    assert chosen(weights)(rows).tolist() == [
        [largest, -largest, largest],
        [-largest, largest, -largest],
    ]


def test_a_product_is_what_its_integers_give(kernel, monkeypatch):
    is_exact = kernel is quantized._IntegerKernel
    monkeypatch.setattr(quantized, "integers_are_exact", lambda _: is_exact)
    torch.manual_seed(3)
    matrix, bias = torch.randn(12, 20), torch.randn(12)
    held = quantize_matrix(matrix)
    held = QuantizedMatrix(held.integers // 2, 2 * held.scale)
    values = torch.randn(2, 3, 20)
    integers, scale = quantize_rows(values)
    exact = (integers.double() * scale) @ held.dequantize().double().T + bias
    product = QuantizedProduct(held, bias)
    found = product(values)
    assert found.shape == (2, 3, 12)
    assert torch.allclose(found.double(), exact, rtol=1e-5, atol=1e-6)
    assert torch.equal(product(values, slice(4, 9)), found[..., 4:9])
    assert torch.equal(product(values, relu=True), found.relu())
    without = QuantizedProduct(held, None)(values)
    assert torch.allclose(without + bias, found, atol=1e-6)


def test_a_kernel_that_overflows_or_is_missing_is_not_trusted(monkeypatch):
    class Saturating:
        def __init__(self, integers):
            self.weights = integers.float()

        def __call__(self, rows):
            return (rows @ self.weights.T).clamp(-32768, 32767)

    class Missing:
        def __init__(self, integers):
            raise AttributeError("no such operator")

    for kernel in (Saturating, Missing):
        monkeypatch.setattr(quantized, "_IntegerKernel", kernel)
        assert not integers_are_exact.__wrapped__()
    monkeypatch.setattr(quantized, "_IntegerKernel", quantized._FloatKernel)
    assert integers_are_exact.__wrapped__()
