"""Each kernel against torch in float64, and a row alone against the same row among others."""

import ctypes
import math

import pytest
import torch

from tests.fast.native.kernels import (
    Arena,
    Linear,
    Memory,
    Norm,
    Vocabulary,
    multiply,
    pack_matrix,
)
from tformer_cli.fast.native.build import build
from tformer_cli.fast.native.library import KERNELS, levels_of_processor, library_path
from tformer_cli.model.attention import plain_attention
from tformer_cli.search.beam_search import top_tokens

EOS_ID = 3


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@pytest.fixture(scope="session")
def functions(tmp_path_factory, compiler):
    """The functions of exponential.h on arrays; they are inlined wherever kernels use them."""
    folder = tmp_path_factory.mktemp("functions")
    names = ("exponential", "error_function", "gelu")
    each = """void all_{0}(float *x, long n) {{
        for (long i = 0; i < n; i += LANES) store(x + i, {0}(load(x + i)));
    }}"""
    lines = [f'#include "{KERNELS / "exponential.h"}"', *(each.format(name) for name in names)]
    (folder / "functions.c").write_text("\n".join(lines))
    level = levels_of_processor()[-1]
    build([level], folder, compiler=compiler, sources=folder)
    library = ctypes.CDLL(str(library_path(level.name, folder)))

    def call(name, x):
        result = x.clone()
        getattr(library, f"all_{name}")(ctypes.c_void_p(result.data_ptr()), ctypes.c_long(len(x)))
        return result

    return call


@pytest.mark.parametrize("n_rows", [*range(1, 17), 29, 200])
@pytest.mark.parametrize(("n_outputs", "n_inputs"), [(96, 64), (33, 7), (5, 300), (130, 1)])
def test_products_are_those_of_float64(kernels, n_rows, n_outputs, n_inputs):
    x, matrix = torch.randn(n_rows, n_inputs), torch.randn(n_outputs, n_inputs)
    bias, residual = torch.randn(n_outputs), torch.randn(n_rows, n_outputs)
    weights, panels = pack_matrix(kernels, matrix)
    exact = x.double() @ matrix.double().T
    room = 4e-7 * (x.double().abs() @ matrix.double().abs().T + 1)
    plain = multiply(kernels, weights, x)
    whole = multiply(kernels, weights, x, bias=bias, relu=True, residual=residual)
    assert ((plain - exact).abs() <= room).all()
    assert ((whole - (exact + bias).relu() - residual).abs() <= 2 * room + 1e-6).all()
    assert panels.isfinite().all()


@pytest.mark.parametrize(("n_outputs", "n_inputs"), [(96, 64), (33, 7), (5, 300)])
def test_a_row_has_the_same_bits_alone_and_among_any_number(kernels, n_outputs, n_inputs):
    x = torch.randn(500, n_inputs)
    weights, _panels = pack_matrix(kernels, torch.randn(n_outputs, n_inputs))
    whole = multiply(kernels, weights, x)
    for n_rows in (1, 2, 3, 6, 7, 14, 15, 23, 100):
        first = 37
        part = multiply(kernels, weights, x[first : first + n_rows])
        assert torch.equal(part, whole[first : first + n_rows])


def test_a_transposed_matrix_packs_to_the_same(kernels):
    matrix = torch.randn(45, 19)
    _, panels = pack_matrix(kernels, matrix)
    _, same = pack_matrix(kernels, matrix.T.contiguous(), transposed=True)
    assert torch.equal(panels, same)


@pytest.mark.parametrize("width", [64, 7, 100])
@pytest.mark.parametrize("has_bias", [True, False])
def test_norms_are_those_of_torch(kernels, width, has_bias):
    x, weight, bias = 3 * torch.randn(5, width) + 1, torch.randn(width), torch.randn(width)
    norm = Norm(weight.data_ptr(), bias.data_ptr() if has_bias else None)
    result = x.clone()
    kernels.normalize(ctypes.byref(norm), x.data_ptr(), 5, width, width, 1e-5, result.data_ptr())
    exact = torch.nn.functional.layer_norm(
        x.double(), (width,), weight.double(), bias.double() if has_bias else None, 1e-5
    )
    assert torch.allclose(result.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [64, 7, 100])
def test_norms_by_the_root_mean_square_are_those_of_torch(kernels, width):
    x, weight = 3 * torch.randn(5, width) + 1, torch.randn(width)
    norm = Norm(weight.data_ptr(), None, 1)
    result = torch.full_like(x, torch.nan)
    kernels.normalize(ctypes.byref(norm), x.data_ptr(), 5, width, width, 1e-5, result.data_ptr())
    exact = torch.nn.functional.rms_norm(x.double(), (width,), weight.double(), 1e-5)
    assert torch.allclose(result.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_queries", [1, 5, 60])
@pytest.mark.parametrize(("n_keys", "width"), [(1, 64), (16, 32), (37, 12), (150, 5)])
@pytest.mark.parametrize("group_size", [1, 3])
def test_attention_is_that_of_the_formula(kernels, n_queries, n_keys, width, group_size):
    n_heads, n_key_heads = 3, 3 // group_size
    query = torch.randn(n_queries, n_heads * width)
    key, value = torch.randn(2, n_keys, n_key_heads * width)
    panels = torch.empty(kernels.memory_size(n_keys, n_key_heads, width))
    memory = Memory(n_keys, n_key_heads, group_size, width, panels.data_ptr())
    kernels.pack_memory(ctypes.byref(memory), key.data_ptr(), value.data_ptr(), n_key_heads * width)
    scores = torch.full((min(56, n_queries), kernels.row_stride(n_keys)), torch.nan)
    context = torch.full((n_queries, n_heads * width), torch.nan)
    kernels.attend(
        ctypes.byref(memory),
        query.data_ptr(),
        n_heads * width,
        n_queries,
        scores.data_ptr(),
        context.data_ptr(),
        n_heads * width,
    )
    assert torch.allclose(context.double(), _attention(query, key, value, n_heads), atol=5e-6)


@pytest.mark.parametrize(("n_keys", "width"), [(1, 64), (16, 32), (37, 12), (150, 5), (20, 112)])
@pytest.mark.parametrize("group_size", [1, 2])
def test_attention_to_the_past_is_that_of_the_formula(kernels, n_keys, width, group_size):
    n_heads, offset = 4, 24
    joined = n_heads * width
    query = torch.randn(1, joined)
    key, value = torch.randn(2, n_keys, joined // group_size)
    entries = torch.cat((torch.full((n_keys, offset), torch.nan), key, value), dim=1)
    places = torch.randperm(n_keys)  # where positions lie is nobody's concern
    moved = entries[places].contiguous()
    where = torch.argsort(places).tolist()
    pointers = (ctypes.c_void_p * n_keys)(*(moved[place].data_ptr() for place in where))
    scores = torch.full((n_heads, n_keys + 16), torch.nan)
    context = torch.full((1, joined), torch.nan)
    kernels.attend_to_past(
        pointers, offset, n_keys, n_heads, group_size, width, query.data_ptr(), scores.data_ptr(),
        context.data_ptr(),
    )  # fmt: skip
    assert torch.allclose(context.double(), _attention(query, key, value, n_heads), atol=5e-6)


def _attention(query, key, value, n_heads):
    """The formula in float64, with queries that are already divided."""
    width = query.shape[1] // n_heads
    split = [
        part.double().view(1, len(part), -1, width).transpose(1, 2) for part in (query, key, value)
    ]
    split = [part.repeat_interleave(n_heads // part.shape[1], dim=1) for part in split]
    split[0] = split[0] * math.sqrt(split[0].shape[-1])
    return plain_attention(*split).transpose(1, 2).flatten(2)[0]


@pytest.mark.parametrize("n_rows", [1, 6, 130])
@pytest.mark.parametrize(("vocab_size", "k"), [(4, 1), (40, 5), (2000, 8), (3333, 5), (1030, 70)])
def test_the_best_tokens_are_those_of_torch(kernels, n_rows, vocab_size, k):
    d_model = 12
    hidden, matrix = torch.randn(n_rows, d_model), torch.randn(vocab_size, d_model)
    bias = torch.randn(vocab_size)
    bias[::7] = -1e9  # of tokens that are never generated
    bias[EOS_ID] = 0.0
    with BestTokens(kernels, hidden, matrix, k, bias) as rows:
        logits = hidden.double() @ matrix.double().T + bias
        expected = logits.log_softmax(dim=1)
        values, tokens = top_tokens(expected[:, EOS_ID:], min(k, vocab_size - EOS_ID))
        for row in range(n_rows):
            n = rows[row].n_best
            assert n == min(k, vocab_size - EOS_ID)
            assert rows[row].tokens[:n] == (tokens[row] + EOS_ID).tolist()
            assert rows[row].values[:n] == pytest.approx(values[row].tolist(), abs=5e-6)
            assert rows[row].end == pytest.approx(expected[row, EOS_ID].item(), abs=5e-6)


def test_of_equal_tokens_the_first_are_found(kernels):
    with BestTokens(kernels, torch.ones(2, 4), torch.ones(500, 4), 6) as rows:
        assert rows[1].tokens[:6] == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_logits_that_are_no_numbers_give_no_probabilities(kernels, broken):
    matrix = torch.randn(500, 4)
    matrix[77] = broken
    with BestTokens(kernels, torch.ones(1, 4), matrix, 3) as rows:
        values = torch.tensor([*rows[0].values[: rows[0].n_best], rows[0].end])
    assert not values[torch.isfinite(values)].numel()


class BestTokens:
    """Finds the best tokens of rows; what is found is there while this is entered."""

    def __init__(self, library, hidden, matrix, k, bias=None):
        n_rows, d_model = hidden.shape
        self.library, self.arena, vocabulary = library, Arena(), Vocabulary()
        for step in range(2):
            library.lay_out_vocabulary(
                ctypes.byref(self.arena), n_rows, k, ctypes.byref(vocabulary)
            )
            assert step or library.arena_allocate(ctypes.byref(self.arena))
        apart = torch.zeros(n_rows, library.row_stride(d_model))
        apart[:, :d_model] = hidden
        weights, self.panels = pack_matrix(library, matrix)
        output = Linear(weights, None if bias is None else bias.data_ptr())
        library.best_tokens(
            ctypes.byref(output), apart.data_ptr(), n_rows, None, ctypes.byref(vocabulary)
        )
        self.rows = vocabulary.rows

    def __enter__(self):
        return self.rows

    def __exit__(self, *details):
        self.library.arena_free(ctypes.byref(self.arena))


def test_the_exponential_is_right_to_float32(functions):
    x = torch.linspace(-86.9, 0.0, 1 << 17)
    exact = x.double().exp()
    assert ((functions("exponential", x) - exact) / exact).abs().max() < 2e-7
    far = torch.tensor([-1e4, -torch.inf, torch.nan, 0.0] * 4)
    values = functions("exponential", far)
    assert (values[:2] < 2e-38).all()
    assert values[2].isnan()
    assert values[3] == 1.0


def test_the_error_function_and_gelu_are_right_to_float32(functions):
    x = torch.linspace(-8.0, 8.0, 1 << 17)
    assert (functions("error_function", x) - x.double().erf()).abs().max() < 1.3e-7
    exact = torch.nn.functional.gelu(x.double())
    assert (functions("gelu", x) - exact).abs().max() < 6e-7


def test_sizes_beyond_memory_are_noticed(kernels):
    arena = Arena()
    kernels.arena_take(ctypes.byref(arena), 1 << 62, 8)
    assert not kernels.arena_allocate(ctypes.byref(arena))
