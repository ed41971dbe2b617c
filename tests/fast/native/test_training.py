"""What training computes by the kernels, against torch's own operations and plain formulas."""

import copy
import math
import os
import platform
import random
import subprocess
import sys
from itertools import pairwise

import pytest
import torch

from tests.oracles.plain_loss import plain_loss
from tformer_cli.fast.native import training
from tformer_cli.fast.native.attention import KEPT_KEYS
from tformer_cli.fast.native.training import NativeOperations, use_native_operations
from tformer_cli.fast.unpadded import (
    FUSED_CAUSAL_FROM_KEYS,
    hidden_unpadded,
    remove_padding,
    trains_unpadded,
)
from tformer_cli.model.attention import (
    FUSED_FROM_KEYS,
    Mask,
    MultiHeadAttention,
    Spans,
    plain_attention,
)
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.model.operations import Dropout
from tformer_cli.model.positions import RotaryPositions
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.batching import collate
from tformer_cli.trainer.gradients import batch_loss
from tformer_cli.trainer.loss import projected_loss

SIZES = [(9, 11), (3, 2), (1, 1), (17, 8)]
"""Tokens of each pair of a batch."""


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def mix(x):
    x = x ^ x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x = x ^ x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def draws_of(n_values, seed):
    """The 16 bits that decide about each value, as dropout.h says, by integers of torch."""
    index = torch.arange(n_values)
    counters = index // 32 * 16 + index % 16
    bits = mix((mix(counters ^ seed[0]) + seed[1]) & 0xFFFFFFFF)
    return torch.where(index % 32 < 16, bits & 0xFFFF, bits >> 16)


@pytest.mark.parametrize("n_values", [1, 15, 16, 31, 33, 1000, 70_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("result_dtype", [torch.float32, torch.bfloat16])
def test_dropout_goes_by_the_bits_of_seed_and_index(operations, n_values, dtype, result_dtype):
    values = torch.randn(n_values).to(dtype)
    residual = torch.randn(n_values) if result_dtype == torch.float32 else None
    seed = (0x89ABCDEF, 0xFEDCBA98)
    result = operations.masked_dropout.mask_values(values, residual, 0.3, seed, result_dtype)
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
    torch.set_num_threads(threads)
    result = operations.masked_dropout.mask_values(values, None, 0.5, (3, 4), torch.float32)
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
    gradient = torch.randn(5, 77)
    result.backward(gradient)
    scale = ((result.detach() - 3.0) > 0.5) * 4 / 3
    assert torch.equal(hidden.grad, gradient)
    assert values.grad.dtype == dtype
    assert torch.allclose(values.grad, (gradient * scale).to(dtype))
    assert 250 < (scale > 0).sum() < 325


def test_dropout_takes_tensors_that_are_not_contiguous(operations):
    values = torch.randn(8, 6, requires_grad=True)
    operations.dropout(values.T, 0.5).backward(torch.ones(8, 6).T)
    assert set(values.grad.unique().tolist()) == {0.0, 2.0}


def test_other_numbers_are_refused(operations):
    ones = torch.ones(3)
    with pytest.raises(TypeError, match="float64"):
        operations.dropout(ones.double(), 0.5)
    with pytest.raises(TypeError, match="must be float32 of"):
        operations.add_dropout(ones.bfloat16(), ones, 0.5)
    with pytest.raises(TypeError, match="same shape"):
        operations.add_dropout(ones, torch.ones(5), 0.5)
    starts = starts_of(1)
    spans = Spans(starts, starts, is_causal=False)
    for other in (torch.ones(1, 1, 12, device="meta"), torch.ones(1, 1, 12).half()):
        with pytest.raises(TypeError, match="on the CPU"):
            operations.attention(other, None, 2, spans)
    with pytest.raises(TypeError, match="but keys"):
        operations.attention(torch.ones(1, 1, 4), torch.ones(1, 1, 8).bfloat16(), 2, spans)
    with pytest.raises(TypeError, match="float16"):
        operations.loss(torch.ones(1, 3).half(), torch.tensor([1]), 1.0, writes_gradient=True)
    with pytest.raises(TypeError, match="rows"):
        operations.loss(torch.ones(3, 3).t()[:2], torch.tensor([1]), 1.0, writes_gradient=True)
    with pytest.raises(IndexError, match="less than 3"):
        operations.loss(torch.ones(1, 3), torch.tensor([3]), 1.0, writes_gradient=True)


@pytest.mark.parametrize("lengths", [((0,), (1,)), ((3, 2), (4, 0)), ((), ())])
def test_sentences_without_tokens_are_refused(operations, lengths):
    spans = Spans(*(starts_of(*some) for some in lengths), is_causal=False)
    with pytest.raises(ValueError, match="each with a token"):
        operations.attention(torch.ones(1, 5, 4), torch.ones(1, 5, 8), 2, spans)


def test_a_sentence_longer_than_the_table_of_turns_is_refused(operations):
    spans = Spans(starts_of(4), starts_of(4), is_causal=True)
    with pytest.raises(ValueError, match="3 positions for a sentence of 4"):
        operations.attention(torch.ones(1, 4, 24), None, 2, spans, torch.ones(3, 4))


def test_torchs_default_type_is_of_no_concern(operations):
    logits, targets = torch.randn(4, 9), torch.tensor([1, 2, 3, 8])
    expected = logits.logsumexp(dim=1)
    try:
        torch.set_default_dtype(torch.bfloat16)
        lse, _ = operations.loss(logits, targets, 1.0, writes_gradient=False)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.allclose(lse, expected)


@pytest.mark.skipif(platform.system() != "Linux", reason="reads /proc")
def test_few_shares_leave_torchs_threads_as_they_are(kernels):
    """OpenMP ends threads that a smaller team leaves idle, and torch would start them again."""
    seen = set()
    code = """
import os, torch
from tformer_cli.fast.native.library import find_library
from tformer_cli.fast.native.training import NativeOperations
torch.set_num_threads(6)
operations = NativeOperations(find_library())
values, large = torch.ones(40_000), torch.ones(1 << 20)
for _ in range(20):
    large.exp()
    operations.dropout(values, 0.5)
    print(*os.listdir("/proc/self/task"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "6", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    for line in done.stdout.splitlines():
        seen.update(line.split())
    assert len(seen) <= 12, "6 of OpenMP, and what else torch starts"


def split(joined, n_heads):
    return joined.unflatten(-1, (n_heads, -1)).transpose(0, 1)


def attention_by_formula(query, memory, n_heads, spans, positions=None):
    """Each sentence by itself; rows that belong to none are zeros."""
    if memory is None:
        query, key, value = query[0].chunk(3, dim=-1)
    else:
        query, (key, value) = query[0], memory[0].chunk(2, dim=-1)
    context = torch.zeros_like(query)
    queries, keys = (pairwise(starts.tolist()) for starts in (spans.queries, spans.keys))
    parts = []
    for (first, last), (first_key, last_key) in zip(queries, keys, strict=True):
        heads = (
            split(query[first:last], n_heads),
            split(key[first_key:last_key], n_heads),
            split(value[first_key:last_key], n_heads),
        )
        if positions is not None:
            turned = (positions.rotate_heads(x, slice(0, x.shape[1])) for x in heads[:2])
            heads = (*turned, heads[2])
        mask = torch.ones(last - first, last_key - first_key, dtype=torch.bool)
        mask = mask.tril() if spans.is_causal else mask
        parts.append(plain_attention(*heads, mask).transpose(0, 1).flatten(1))
    return torch.cat([*parts, context[sum(map(len, parts)) :]])[None]


def starts_of(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


@pytest.mark.parametrize(("n_heads", "width"), [(4, 64), (3, 12), (2, 5), (1, 40)])
@pytest.mark.parametrize(
    "lengths", [(1,), (7, 1, 12), (16, 16), (33, 2, 65, 3), (5, KEPT_KEYS + 7)]
)
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("turns", [True, False])
def test_self_attention_and_its_gradient_are_those_of_the_formula(
    operations, n_heads, width, lengths, is_causal, turns
):
    if turns and width % 2:
        pytest.skip("rotary positions pair the numbers of a head")
    positions = RotaryPositions(1024, width) if turns else None
    table = positions.turns_of(max(lengths)) if turns else None
    starts = starts_of(*lengths)
    spans = Spans(starts, starts, is_causal)
    values = torch.randn(1, sum(lengths) + 5, 3 * n_heads * width, requires_grad=True)
    exact_values = values.detach().double().requires_grad_()
    exact = attention_by_formula(exact_values, None, n_heads, spans, positions)
    context = operations.attention(values, None, n_heads, spans, table)
    gradient = torch.randn_like(context)
    context.backward(gradient)
    exact.backward(gradient.double())
    assert torch.allclose(context.double(), exact, atol=5e-6)
    assert torch.allclose(values.grad.double(), exact_values.grad, atol=2e-5)
    assert torch.equal(context[:, sum(lengths) :], torch.zeros(1, 5, n_heads * width))


@pytest.mark.parametrize("lengths", [((1,), (1,)), ((5, 31), (20, 3)), ((20, 1, 4), (5, 48, 16))])
@pytest.mark.parametrize("filling", [0, 3])
def test_cross_attention_and_its_gradient_are_those_of_the_formula(operations, lengths, filling):
    n_queries, n_keys = map(sum, lengths)
    query = torch.randn(1, n_queries + filling, 2 * 24, requires_grad=True)
    memory = torch.randn(1, n_keys + 2 * filling, 2 * 2 * 24, requires_grad=True)
    spans = Spans(*(starts_of(*some) for some in lengths), is_causal=False)
    exact_query, exact_memory = (x.detach().double().requires_grad_() for x in (query, memory))
    exact = attention_by_formula(exact_query, exact_memory, 2, spans)
    context = operations.attention(query, memory, 2, spans)
    gradient = torch.randn_like(context)
    context.backward(gradient)
    exact.backward(gradient.double())
    assert torch.allclose(context.double(), exact, atol=5e-6)
    assert torch.allclose(query.grad.double(), exact_query.grad, atol=2e-5)
    assert torch.allclose(memory.grad.double(), exact_memory.grad, atol=2e-5)


def test_sentences_know_nothing_of_each_other(operations):
    spans = Spans(starts_of(4, 6), starts_of(4, 6), is_causal=True)
    values = torch.randn(1, 12, 3 * 16)
    other = values.clone()
    other[:, 4:] = 1e30
    result, same = (operations.attention(each, None, 2, spans) for each in (values, other))
    assert torch.equal(result[:, :4], same[:, :4])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("lengths", [range(1, 30), (KEPT_KEYS + 7, 5)])
def test_attention_does_not_depend_on_the_number_of_threads(operations, threads, lengths):
    starts = starts_of(*lengths)
    spans = Spans(starts, starts, is_causal=True)
    values = torch.randn(1, int(starts[-1]), 3 * 32, requires_grad=True)
    gradient = torch.randn(1, int(starts[-1]), 32)

    def compute():
        context = operations.attention(values, None, 2, spans)
        return context, *torch.autograd.grad(context, values, gradient)

    expected = compute()
    torch.set_num_threads(threads)
    assert all(map(torch.equal, compute(), expected))


def test_attention_in_bfloat16_is_within_its_rounding(operations):
    starts = starts_of(17, 9, 25)
    spans = Spans(starts, starts, is_causal=True)
    values = torch.randn(1, 51, 3 * 64).bfloat16().requires_grad_()
    exact_values = values.detach().double().requires_grad_()
    exact = attention_by_formula(exact_values, None, 4, spans)
    context = operations.attention(values, None, 4, spans)
    gradient = torch.randn(1, 51, 64).bfloat16()
    context.backward(gradient)
    exact.backward(gradient.double())
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
    exact = plain_loss(given, targets, 0.0)
    exact.smoothed.backward()
    lse, right = operations.loss(logits, targets, 1.0 - label_smoothing, writes_gradient=True)
    assert torch.equal(right, given.detach().float()[torch.arange(37), targets])
    assert torch.allclose(lse.double(), given.detach().logsumexp(dim=1), rtol=1e-6)
    onehot = torch.nn.functional.one_hot(targets, vocab_size)
    assert torch.allclose(logits.double(), given.grad + label_smoothing * onehot, atol=1e-6)


def test_rows_without_a_target_count_for_nothing(operations):
    logits = torch.randn(4, 40)
    alone = logits[[0, 2]].clone()
    lse, right = operations.loss(logits, torch.tensor([1, -1, 39, -1]), 0.9, writes_gradient=True)
    same = operations.loss(alone, torch.tensor([1, 39]), 0.9, writes_gradient=True)
    assert torch.equal(torch.stack([lse, right])[:, [0, 2]], torch.stack(same))
    assert torch.equal(torch.stack([lse, right])[:, [1, 3]], torch.zeros(2, 2))
    assert torch.equal(logits[[0, 2]], alone)
    assert torch.equal(logits[[1, 3]], torch.zeros(2, 40))


def test_the_loss_leaves_logits_alone_where_no_gradient_is_wanted(operations):
    logits = torch.randn(3, 40).bfloat16()
    before = logits.clone()
    lse, _ = operations.loss(logits, torch.tensor([1, 2, 39]), 1.0, writes_gradient=False)
    assert torch.equal(logits, before)
    assert torch.allclose(lse, before.float().logsumexp(dim=1))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("is_biased", [False, True])
def test_the_projected_loss_is_the_same_by_the_kernels(operations, label_smoothing, is_biased):
    hidden, matrix = torch.randn(35, 16), torch.randn(50, 16)
    targets = torch.cat([torch.randint(1, 50, (30,)), torch.full((5,), -1)])
    bias = torch.randn(50)
    bias[0] = -1e9
    results = []
    for by, n_rows in ((None, 30), (operations, 35)):  # the last rows only fill up
        inputs = [tensor.clone().requires_grad_() for tensor in (hidden, matrix, bias)]
        rows = inputs[0][:n_rows]
        options = {"operations": by, "bias": inputs[2] if is_biased else None}
        loss = projected_loss(rows, inputs[1], targets[:n_rows], label_smoothing, **options)
        loss.smoothed.backward()
        used = inputs if is_biased else inputs[:2]
        results.append((*loss, *(tensor.grad for tensor in used)))
    for value, wanted in zip(*results, strict=True):
        assert torch.allclose(value, wanted, rtol=1e-5, atol=1e-6)


def gradients(model, precision="float32", r_drop=0.0):
    dice = random.Random(3)
    pairs = [[[dice.randrange(4, 40) for _ in range(n)] for n in sizes] for sizes in SIZES]
    batch = collate(*zip(*pairs, strict=True))
    model.zero_grad()
    loss = batch_loss(model, batch, label_smoothing=0.1, precision=precision, r_drop=r_drop)
    loss.smoothed.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("r_drop", [0.0, 5.0])
def test_a_classifiers_gradients_are_the_same(training_library, pooling, r_drop):
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=40, n_encoder_layers=2, n_decoder_layers=0, n_labels=3,
        pooling=pooling, dropout=0.0, max_positions=20,
    )  # fmt: skip
    model = Classifier(config, 40).train()
    same = copy.deepcopy(model)
    assert use_native_operations(same, training_library)
    dice = random.Random(3)
    texts = [[dice.randrange(4, 40) for _ in range(n)] for n in (7, 1, 12, 7)]
    batch = collate(texts, [[4], [6], [5], [5]], target_eos=False)
    assert batch.n_target_tokens == 4
    found = []
    for trained in (model, same):
        loss = batch_loss(trained, batch, label_smoothing=0.1, precision="float32", r_drop=r_drop)
        loss.smoothed.backward()
        found.append({name: weight.grad for name, weight in trained.named_parameters()})
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    ("activation", "positions", "more"),
    [
        ("relu", "sinusoidal", {}),
        ("gelu", "learned", {"embedding_norm": True, "output_bias": True}),
        ("swish", "rotary", {"scale_embeddings": False, "final_norm": "always"}),
        ("relu", "sinusoidal", {"decoder_cell": "ssru"}),
    ],
)
@pytest.mark.parametrize("r_drop", [0.0, 5.0])
def test_a_models_gradients_are_the_same(
    training_library, norm, activation, positions, more, r_drop
):
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=40, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0,
        norm=norm, activation=activation, positions=positions, max_positions=20,
        encoder_heads=(4, 0), cross_heads=(1, 4), **more,
    )  # fmt: skip
    model = Transformer(config, 40).train()
    same = copy.deepcopy(model)
    assert use_native_operations(same, training_library)
    assert trains_unpadded(same, 20)
    expected, found = gradients(model, r_drop=r_drop), gradients(same, r_drop=r_drop)
    for name, gradient in expected.items():
        largest = max(map(abs, gradient.flatten().tolist()), default=0.0)
        assert torch.allclose(found[name], gradient, rtol=1e-4, atol=1e-5 * largest), name


def test_in_bfloat16_a_models_gradients_are_as_near_to_float32_as_torchs(training_library):
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=40, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0,
        max_positions=20,
    )  # fmt: skip
    model = Transformer(config, 40).train()
    same = copy.deepcopy(model)
    assert use_native_operations(same, training_library)

    def error(gradient):
        return math.sqrt(sum((gradient[name] - exact[name]).square().sum() for name in exact))

    exact = gradients(model)
    by_torch = error(gradients(model, "bfloat16"))
    assert error(gradients(same, "bfloat16")) < 1.2 * by_torch


def test_models_that_the_kernels_do_not_know_are_left_alone(training_library):
    model = Transformer(ModelConfig(d_model=8, n_heads=2, d_ff=8, max_positions=8), 20).double()
    assert not use_native_operations(model, training_library)
    assert model.operations is None


def test_one_thread_does_not_do_the_work_of_several(training_library, monkeypatch):
    model = Transformer(ModelConfig(d_model=8, n_heads=2, d_ff=8, max_positions=8), 20)
    monkeypatch.setattr(training, "threads_of_torch", lambda: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert not use_native_operations(model, training_library)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert use_native_operations(model, training_library)
    monkeypatch.undo()
    if platform.system() == "Linux":
        assert training.threads_of_torch() is not None
    NativeOperations(training_library)  # has threads again


def test_copies_of_a_model_share_its_operations(training_library):
    model = Transformer(ModelConfig(d_model=8, n_heads=2, d_ff=8, max_positions=8), 20)
    use_native_operations(model, training_library)
    twin = copy.deepcopy(model)
    assert twin.operations is model.operations
    assert all(
        module.operations is model.operations
        for module in twin.modules()
        if isinstance(module, Dropout | MultiHeadAttention)
    )


def test_what_attention_by_the_kernels_would_pass_by_is_left_to_torch(training_library):
    config = ModelConfig(d_model=8, n_heads=2, d_ff=8, dropout=0.0, max_positions=8)
    model = Transformer(config, 20).train()
    assert not trains_unpadded(model, 5)
    use_native_operations(model, training_library)
    assert trains_unpadded(model, 5)
    assert not trains_unpadded(model, FUSED_FROM_KEYS)
    attention = model.decoder.layers[0].cross_attention
    handle = attention.tap(lambda tap: None)
    assert not trains_unpadded(model, 5)
    handle.remove()
    attention.gate = torch.zeros(2, 1, 1)
    assert not trains_unpadded(model, 5)
    with pytest.raises(ValueError, match="operations"):
        attention(
            torch.randn(1, 3, 8), mask=Mask(spans=Spans(starts_of(3), starts_of(3), is_causal=True))
        )
    attention.gate = None
    assert not trains_unpadded(model.eval(), 5)


def test_long_attention_to_the_past_is_left_to_torch_in_bfloat16_alone(training_library):
    config = ModelConfig(
        d_model=8, n_heads=2, d_ff=8, dropout=0.0, n_encoder_layers=0, max_positions=4096
    )
    model = Transformer(config, 20).train()
    use_native_operations(model, training_library)
    assert trains_unpadded(model, FUSED_FROM_KEYS)
    assert not trains_unpadded(model, FUSED_CAUSAL_FROM_KEYS)
    with torch.autocast("cpu", torch.bfloat16):
        assert not trains_unpadded(model, FUSED_FROM_KEYS)


def test_more_tokens_than_positions_are_refused_with_and_without_padding(training_library):
    model = Transformer(ModelConfig(d_model=8, n_heads=2, d_ff=8, max_positions=8), 20).train()
    use_native_operations(model, training_library)
    tokens = torch.full((1, 9), 5)
    with pytest.raises(ValueError, match="at most max_positions = 8 tokens, but has 9"):
        hidden_unpadded(
            model, remove_padding(tokens, tokens > 0), remove_padding(tokens, tokens > 0)
        )


def test_unpadding_lays_sentences_out_one_after_the_other():
    tokens = torch.tensor([[5, 6, 7], [8, 0, 0], [9, 9, 0]])
    sentences = remove_padding(tokens, tokens > 0)
    assert sentences.tokens.shape == (1, 64)
    assert sentences.tokens[0, :6].tolist() == [5, 6, 7, 8, 9, 9]
    assert sentences.positions[:6].tolist() == [0, 1, 2, 0, 0, 1]
    assert sentences.starts.tolist() == [0, 3, 4, 6]
