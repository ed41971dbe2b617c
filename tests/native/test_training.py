"""What training computes by the kernels, against torch's own operations and plain formulas."""

import copy
import ctypes
import math
import platform
import subprocess

import pytest
import torch

from tformer_cli.model.attention import MultiHeadAttention, plain_attention
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.dropout import Dropout
from tformer_cli.model.transformer import Transformer
from tformer_cli.native.compiler import FLAGS, LIBRARIES, find_compiler
from tformer_cli.native.library import KERNELS
from tformer_cli.native.training import NativeOperations, use_native_operations
from tformer_cli.training.loss import label_smoothed_loss
from tformer_cli.training.projected_loss import projected_loss


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@pytest.fixture(scope="module", params=["native", "avx2", "sse2"])
def library(request, tmp_path_factory, kernels):
    """The library itself, and builds with shorter vectors."""
    if request.param == "native":
        return kernels
    if platform.machine() != "x86_64":
        pytest.skip("of another processor")
    if request.param == "avx2" and "AVX" not in torch.backends.cpu.get_cpu_capability():
        pytest.skip("the processor has no AVX2")
    names = ("arena", "matmul", "parallel", "dropout", "attention_training", "loss")
    target = tmp_path_factory.mktemp("kernels") / "training.so"
    tuning = {"avx2": "-march=haswell", "sse2": "-march=x86-64"}[request.param]
    sources = [KERNELS / f"{name}.c" for name in names]
    command = [*find_compiler().command, *FLAGS, tuning, *sources, "-o", target, *LIBRARIES]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))


@pytest.fixture
def operations(library):
    return NativeOperations(library)


def mixed(x):
    x = x ^ x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x = x ^ x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def draws_of(n_values, seed):
    """The 16 bits that decide about each value, as dropout.h says, by integers of torch."""
    index = torch.arange(n_values)
    counters = index // 32 * 16 + index % 16
    bits = mixed((mixed(counters ^ seed[0]) + seed[1]) & 0xFFFFFFFF)
    return torch.where(index % 32 < 16, bits & 0xFFFF, bits >> 16)


@pytest.mark.parametrize("n_values", [1, 15, 16, 31, 33, 1000, 70_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("result_dtype", [torch.float32, torch.bfloat16])
def test_dropout_goes_by_the_bits_of_seed_and_index(operations, n_values, dtype, result_dtype):
    values = torch.randn(n_values).to(dtype)
    residual = torch.randn(n_values) if result_dtype == torch.float32 else None
    seed = (0x89ABCDEF, 0xFEDCBA98)
    result = operations.drop(values, residual, 0.3, seed, result_dtype)
    threshold = round(0.3 * 65536)
    scale = torch.tensor(65536 / (65536 - threshold), dtype=torch.float32)
    expected = torch.where(draws_of(n_values, seed) >= threshold, values.float() * scale, 0.0)
    if residual is not None:
        # the product may be rounded before it is added, or not
        assert torch.allclose(result, expected + residual, rtol=2e-7, atol=2e-7)
    else:
        assert torch.equal(result, expected.to(result_dtype))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_dropout_does_not_depend_on_the_number_of_threads(operations, threads):
    values = torch.randn(300_007)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        result = operations.drop(values, None, 0.5, (3, 4), torch.float32)
    finally:
        torch.set_num_threads(before)
    kept = draws_of(len(values), (3, 4)) >= 32768
    assert torch.equal(result, torch.where(kept, 2 * values, 0.0))


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.9])
def test_dropout_meets_its_rate_and_values_drop_independently(operations, rate):
    values = torch.ones(2, 1 << 21)
    kept = torch.stack([operations.dropout(row, rate) for row in values]) > 0
    share = 1.0 - kept.double().mean().item()
    assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / kept.numel())
    centred = (kept.double() - (1 - rate)) / math.sqrt(rate * (1 - rate))
    bound = 5 / math.sqrt(1 << 21)
    assert abs((centred[0] * centred[1]).mean().item()) < bound  # of two calls
    for lag in (1, 2, 15, 16, 17, 32, 256, 4096):
        assert abs((centred[0, lag:] * centred[0, :-lag]).mean().item()) < bound


def test_seeds_are_torchs_so_that_a_run_repeats(operations):
    torch.manual_seed(7)
    values = torch.ones(100)
    first, second = operations.dropout(values, 0.5), operations.dropout(values, 0.5)
    torch.manual_seed(7)
    assert torch.equal(operations.dropout(values, 0.5), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_was_dropped_gets_no_gradient(operations, dtype):
    values = torch.ones(5, 77, dtype=dtype, requires_grad=True)
    hidden = torch.full((5, 77), 3.0, requires_grad=True)
    result = operations.add_dropout(hidden, values, 0.25)
    assert result.dtype == torch.float32
    slope = torch.randn(5, 77)
    result.backward(slope)
    scale = ((result.detach() - 3.0) > 0.5) * 4 / 3
    assert torch.equal(hidden.grad, slope)
    assert values.grad.dtype == dtype
    assert torch.allclose(values.grad, (slope * scale).to(dtype))
    assert 250 < (scale > 0).sum() < 325


def test_dropout_takes_tensors_that_are_not_contiguous(operations):
    values = torch.randn(8, 6, requires_grad=True)
    operations.dropout(values.T, 0.5).backward(torch.ones(8, 6).T)
    assert set(values.grad.unique().tolist()) == {0.0, 2.0}


def test_other_numbers_are_refused(operations):
    with pytest.raises(TypeError, match="float64"):
        operations.dropout(torch.ones(3, dtype=torch.float64), 0.5)
    with pytest.raises(TypeError, match="bfloat16"):
        operations.add_dropout(torch.ones(3, dtype=torch.bfloat16), torch.ones(3), 0.5)


def split(joined, n_heads):
    return joined.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def attention_by_formula(query, memory, n_heads, mask):
    if memory is None:
        query, key, value = query.chunk(3, dim=-1)
    else:
        key, value = memory.chunk(2, dim=-1)
    heads = (split(part, n_heads) for part in (query, key, value))
    return plain_attention(*heads, mask).transpose(1, 2).flatten(2)


def visible(n_sentences, n_keys):
    """(B, 1, 1, K): each sentence sees as many keys less."""
    lengths = torch.tensor([max(1, n_keys - 3 * i) for i in range(n_sentences)])
    return (torch.arange(n_keys) < lengths[:, None])[:, None, None, :]


@pytest.mark.parametrize(("n_heads", "width"), [(4, 64), (3, 12), (2, 5), (1, 40)])
@pytest.mark.parametrize("n_positions", [1, 7, 16, 33, 65])
def test_self_attention_and_its_gradient_are_those_of_the_formula(
    operations, n_heads, width, n_positions
):
    values = torch.randn(3, n_positions, 3 * n_heads * width, requires_grad=True)
    mask = torch.ones(n_positions, n_positions, dtype=torch.bool).tril()
    exact_values = values.detach().double().requires_grad_()
    exact = attention_by_formula(exact_values, None, n_heads, mask)
    context = operations.attention(values, None, n_heads, mask)
    slope = torch.randn_like(context)
    context.backward(slope)
    exact.backward(slope.double())
    assert torch.allclose(context.double(), exact, atol=5e-6)
    assert torch.allclose(values.grad.double(), exact_values.grad, atol=2e-5)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (5, 20), (20, 5), (31, 48)])
@pytest.mark.parametrize("is_masked", [True, False])
def test_cross_attention_and_its_gradient_are_those_of_the_formula(
    operations, n_queries, n_keys, is_masked
):
    query = torch.randn(4, n_queries, 2 * 24, requires_grad=True)
    memory = torch.randn(4, n_keys, 2 * 2 * 24, requires_grad=True)
    mask = visible(4, n_keys) if is_masked else None
    exact_query, exact_memory = (x.detach().double().requires_grad_() for x in (query, memory))
    exact = attention_by_formula(exact_query, exact_memory, 2, mask)
    context = operations.attention(query, memory, 2, mask)
    slope = torch.randn_like(context)
    context.backward(slope)
    exact.backward(slope.double())
    assert torch.allclose(context.double(), exact, atol=5e-6)
    assert torch.allclose(query.grad.double(), exact_query.grad, atol=2e-5)
    assert torch.allclose(memory.grad.double(), exact_memory.grad, atol=2e-5)


def test_hidden_keys_and_values_make_no_difference(operations):
    mask = visible(2, 9)
    query, memory = torch.randn(2, 4, 16), torch.randn(2, 9, 32)
    other = torch.where(mask[:, 0, 0, :, None], memory, 1e30)
    results = []
    for keys in (memory, other):
        keys = keys.clone().requires_grad_()
        context = operations.attention(query, keys, 2, mask)
        context.sum().backward()
        results.append((context, keys.grad))
    (one, slope), (same, same_slope) = results
    assert torch.equal(one, same)
    assert torch.equal(slope[1, 6:], torch.zeros(3, 32))
    assert torch.equal(slope[1, :6], same_slope[1, :6])


def test_a_query_that_sees_nothing_gets_zeros(operations):
    query, memory = torch.randn(1, 2, 8), torch.randn(1, 5, 16)
    mask = torch.tensor([[False] * 5, [True] * 5])
    context = operations.attention(query, memory, 1, mask)
    assert torch.equal(context[0, 0], torch.zeros(8))
    assert context[0, 1].abs().min() > 0


def test_attention_in_bfloat16_is_within_its_rounding(operations):
    values = torch.randn(3, 17, 3 * 64).bfloat16().requires_grad_()
    exact_values = values.detach().double().requires_grad_()
    mask = torch.ones(17, 17, dtype=torch.bool).tril()
    exact = attention_by_formula(exact_values, None, 4, mask)
    context = operations.attention(values, None, 4, mask)
    slope = torch.randn(3, 17, 64).bfloat16()
    context.backward(slope)
    exact.backward(slope.double())
    assert context.dtype == values.grad.dtype == torch.bfloat16
    # half a unit in the last of 8 bits, and float32 before it
    assert torch.allclose(context.double(), exact, rtol=2**-8, atol=1e-5)
    assert torch.allclose(values.grad.double(), exact_values.grad, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("vocab_size", [5, 64, 203])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_and_its_gradient_are_those_of_the_formula(
    operations, vocab_size, label_smoothing
):
    logits = 5 * torch.randn(37, vocab_size)
    logits[3] = -50.0
    logits[4, 2] = 300.0
    targets = torch.randint(vocab_size, (37,))
    given = logits.double().requires_grad_()
    exact = label_smoothed_loss(given, targets, 0.0)
    exact.smoothed.backward()
    lse, right = operations.loss(logits, targets, 1.0 - label_smoothing, writes_slope=True)
    assert torch.equal(right, given.detach().float()[torch.arange(37), targets])
    assert torch.allclose(lse.double(), given.detach().logsumexp(dim=1), rtol=1e-6)
    onehot = torch.nn.functional.one_hot(targets, vocab_size)
    assert torch.allclose(logits.double(), given.grad + label_smoothing * onehot, atol=1e-6)


def test_the_loss_leaves_logits_alone_where_no_gradient_is_wanted(operations):
    logits = torch.randn(3, 40).bfloat16()
    before = logits.clone()
    lse, _ = operations.loss(logits, torch.tensor([1, 2, 39]), 1.0, writes_slope=False)
    assert torch.equal(logits, before)
    assert torch.allclose(lse, before.float().logsumexp(dim=1))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_projected_loss_is_the_same_by_the_kernels(operations, label_smoothing):
    hidden, matrix = torch.randn(30, 16), torch.randn(50, 16)
    targets = torch.randint(50, (30,))
    results = []
    for by in (None, operations):
        inputs = [tensor.clone().requires_grad_() for tensor in (hidden, matrix)]
        loss = projected_loss(*inputs, targets, label_smoothing, operations=by)
        loss.smoothed.backward()
        results.append((*loss, *(tensor.grad for tensor in inputs)))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def gradients(model, precision=torch.float32):
    torch.manual_seed(3)
    sources, targets = torch.randint(4, 40, (3, 9)), torch.randint(4, 40, (3, 11))
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[1, 4:] = False
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        hidden = model.decode_hidden(targets, model.encode(sources, mask), mask).flatten(0, 1)
        loss = projected_loss(
            hidden, model.output_matrix, targets.flatten(), 0.1, operations=model.operations
        )
    loss.smoothed.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_models_gradients_are_the_same(library, norm, activation):
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=40, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0,
        norm=norm, activation=activation, max_positions=20,
    )  # fmt: skip
    model = Transformer(config, 40).train()
    same = copy.deepcopy(model)
    assert use_native_operations(same, library)
    expected, found = gradients(model), gradients(same)
    for name, slope in expected.items():
        assert torch.allclose(found[name], slope, rtol=1e-4, atol=1e-5 * slope.abs().max()), name


def test_in_bfloat16_a_models_gradients_are_as_near_to_float32_as_torchs(library):
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=40, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0,
        max_positions=20,
    )  # fmt: skip
    model = Transformer(config, 40).train()
    same = copy.deepcopy(model)
    assert use_native_operations(same, library)

    def error(slopes):
        return math.sqrt(sum((slopes[name] - exact[name]).square().sum() for name in exact))

    exact = gradients(model)
    by_torch = error(gradients(model, torch.bfloat16))
    assert error(gradients(same, torch.bfloat16)) < 1.2 * by_torch


def test_models_that_the_kernels_do_not_know_are_left_alone(library):
    model = Transformer(ModelConfig(d_model=8, n_heads=2, d_ff=8, max_positions=8), 20).double()
    assert not use_native_operations(model, library)
    assert model.operations is None


def test_copies_of_a_model_share_its_operations(library):
    model = Transformer(ModelConfig(d_model=8, n_heads=2, d_ff=8, max_positions=8), 20)
    use_native_operations(model, library)
    twin = copy.deepcopy(model)
    assert twin.operations is model.operations
    assert all(
        module.operations is model.operations
        for module in twin.modules()
        if isinstance(module, Dropout | MultiHeadAttention)
    )


def test_taps_and_gates_are_served_by_torch(library):
    config = ModelConfig(d_model=8, n_heads=2, d_ff=8, dropout=0.0, max_positions=8)
    layer = MultiHeadAttention(config).train()
    layer.operations = NativeOperations(library)
    hidden, seen = torch.randn(1, 3, 8), []
    handle = layer.tap(seen.append)
    tapped = layer(hidden)
    handle.remove()
    assert len(seen) == 1
    assert torch.allclose(layer(hidden), tapped, atol=1e-6)
    layer.gate = torch.zeros(2, 1, 1)
    assert torch.allclose(layer(hidden), layer.out_projection(torch.zeros(1, 3, 8)))
