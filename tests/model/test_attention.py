"""Attention, and heads that share keys."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional

from tests.model.conftest import small_config, small_model
from tests.oracles.plain_attention import plain_context, plain_weights
from tformer_cli.heads.names import HeadId
from tformer_cli.model.attention import (
    Mask,
    MultiHeadAttention,
    _align_mask,
    attention_weights,
    causal_mask,
    fused_attention,
    plain_attention,
)
from tformer_cli.model.operations import IdentityProjection
from tformer_cli.model.positions import RotaryPositions
from tformer_cli.plugins.instruments.ablation import prune_heads


def heads(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_weights_of_a_hand_worked_case():
    query = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[1.0, 0, 0, 0], [0, 1.0, 0, 0], [math.log(3), 0, 0, 0]]]])
    # scores are q·k / √4 = 1, 0, ln 3
    expected = torch.tensor([math.e, 1.0, 3.0]) / (math.e + 1.0 + 3.0)
    assert torch.allclose(attention_weights(query, key).flatten(), expected)


def test_hidden_cells_are_exactly_zero_and_rows_sum_to_one():
    mask = causal_mask(9).visible
    weights = attention_weights(heads(2, 3, 9, 8), heads(2, 3, 9, 8, seed=1), mask)
    assert (weights[..., ~mask] == 0.0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 9), atol=1e-6)


def test_a_row_with_every_key_hidden_is_zero_and_not_nan():
    mask = torch.tensor([[True, True], [False, False]])
    weights = attention_weights(heads(1, 1, 2, 4), heads(1, 1, 2, 4), mask)
    assert (weights[0, 0, 1] == 0.0).all()
    assert weights.isfinite().all()


@pytest.mark.parametrize("n_keys", [5, 200])
@pytest.mark.parametrize("mask_kind", ["none", "causal", "causal by its name"])
def test_fused_attention_equals_the_plain_formula_forward_and_backward(n_keys, mask_kind):
    mask = None if mask_kind == "none" else causal_mask(n_keys).visible
    by_name = partial(fused_attention, is_causal=mask_kind == "causal by its name")
    results = []
    for attention in (plain_attention, by_name):
        inputs = [heads(2, 3, n_keys, 8, seed=seed).requires_grad_() for seed in range(3)]
        context = attention(*inputs, mask)
        context.square().sum().backward()
        results.append([context, *(tensor.grad for tensor in inputs)])
    for plain, fused in zip(*results, strict=True):
        assert torch.allclose(plain, fused, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("n_keys", [5, 8])
@pytest.mark.parametrize("is_boolean", [True, False])
def test_masks_of_a_gpu_hide_the_same_and_begin_at_multiples_of_8(n_keys, is_boolean):
    query, key, value = heads(2, 3, 4, 8), heads(2, 3, n_keys, 8), heads(2, 3, n_keys, 8, seed=1)
    mask = torch.rand(2, 1, 4, n_keys) > 0.4 if is_boolean else heads(3, 4, n_keys, seed=2)
    mask[..., 0] = True
    aligned = _align_mask(mask, query)
    assert all(step % 8 == 0 for step in aligned.stride()[:-1])
    ours, theirs = (fused_attention(query, key, value, each) for each in (aligned, mask))
    torch.testing.assert_close(ours, theirs)


def test_training_with_the_causal_mask_reads_no_mask(monkeypatch):
    masks = []
    fused = functional.scaled_dot_product_attention

    def watch(*arguments, attn_mask, **options):
        masks.append((attn_mask, options["is_causal"]))
        return fused(*arguments, attn_mask=attn_mask, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", watch)
    torch.manual_seed(1)
    layer, hidden = MultiHeadAttention(24, 3, 8), random(2, 200, 24)
    causal = causal_mask(200)
    attended = layer(hidden, mask=causal)
    torch.testing.assert_close(attended, layer(hidden, mask=Mask(causal.visible)))
    assert [is_causal for _, is_causal in masks] == [True, False]
    assert [mask is None for mask, _ in masks] == [True, False]
    monkeypatch.setattr(layer.similarity, "bias", lambda *_: torch.zeros(200, 200))
    torch.testing.assert_close(attended, layer(hidden, mask=causal))
    assert masks[-1][1] is False


@pytest.mark.parametrize("is_masked", [True, False])
@pytest.mark.parametrize("is_biased", [True, False])
def test_every_formula_is_that_of_the_definition(is_masked, is_biased):
    query, key, value = heads(2, 3, 5, 8), heads(2, 3, 7, 8, seed=1), heads(2, 3, 7, 8, seed=2)
    mask = torch.rand(2, 1, 5, 7) > 0.4 if is_masked else None
    if mask is not None:
        mask[..., 0] = True
    bias = heads(3, 5, 7, seed=3) if is_biased else None
    expected = plain_context(query, key, value, mask, bias)
    for attention in (plain_attention, fused_attention):
        context = attention(query, key, value, mask, bias=bias)
        assert torch.allclose(context.double(), expected, atol=1e-5)
    if mask is not None:
        mask[1, 0, 2] = False
    weights = attention_weights(query, key, mask, bias=bias)
    assert torch.allclose(weights.double(), plain_weights(query, key, mask, bias), atol=1e-6)


def test_multi_head_attention_equals_torchs_own():
    ours = small_model().encoder.layers[0].self_attention
    theirs = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.in_projection.weight)
        theirs.in_proj_bias.copy_(ours.in_projection.bias)
        theirs.out_proj.weight.copy_(ours.out_projection.weight)
        theirs.out_proj.bias.copy_(ours.out_projection.bias)
    hidden, memory = heads(2, 5, 32), heads(2, 7, 32, seed=1)
    taps = []
    ours.tap(taps.append)
    for source in (hidden, memory):
        expected, weights = theirs(hidden, source, source, average_attn_weights=False)
        assert torch.allclose(ours(hidden, source), expected, atol=1e-6)
        assert torch.allclose(taps[-1].weights(), weights, atol=1e-6)
    assert torch.allclose(ours(hidden), ours(hidden, hidden), atol=1e-6)


def test_a_tap_sees_what_the_layer_used_until_it_is_removed():
    torch.manual_seed(0)
    layer = MultiHeadAttention(32, 4, 8).eval()
    hidden = heads(2, 5, 32)
    silent = layer(hidden, mask=causal_mask(5))
    taps = []
    handle = layer.tap(taps.append)
    heard = layer(hidden, mask=causal_mask(5))
    handle.remove()
    handle.remove()
    layer(hidden)
    assert torch.equal(silent, heard)
    assert len(taps) == 1
    weights = taps[0].weights()
    assert torch.allclose(weights @ taps[0].value, taps[0].context, atol=1e-6)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


def llamas_attention(llama, n_heads, n_key_heads):
    config = llama.LlamaConfig(
        hidden_size=24,
        num_attention_heads=n_heads,
        num_key_value_heads=n_key_heads,
        attn_implementation="eager",
    )
    return llama.LlamaAttention(config, layer_idx=0), llama.LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("n_key_heads", [1, 2, 4])
def test_attention_with_shared_keys_is_llamas_with_its_gradients(n_key_heads):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    torch.manual_seed(4)
    theirs, rotary = llamas_attention(llama, 4, n_key_heads)
    ours = MultiHeadAttention(
        24, 4, 6, n_key_heads=n_key_heads, positions=RotaryPositions(64, 6), bias=False
    )
    projections = theirs.q_proj, theirs.k_proj, theirs.v_proj
    for projection in (*projections, theirs.o_proj):
        torch.nn.init.normal_(projection.weight, std=0.3)
    with torch.no_grad():
        ours.in_projection.weight.copy_(
            torch.cat([projection.weight for projection in projections])
        )
        ours.out_projection.weight.copy_(theirs.o_proj.weight)
    hidden, causal = random(2, 9, 24), causal_mask(9)
    added = torch.zeros(9, 9).masked_fill(~causal.visible, -torch.inf)[None, None]
    angles = rotary(hidden, torch.arange(9)[None])
    expected, _ = theirs(hidden, position_embeddings=angles, attention_mask=added)
    found = ours(hidden, mask=causal)
    assert torch.allclose(found, expected, atol=1e-5)
    for result in (found, expected):
        (result * random(2, 9, 24)).sum().backward()
    gradient = torch.cat([projection.weight.grad for projection in projections])
    assert torch.allclose(ours.in_projection.weight.grad, gradient, rtol=1e-4, atol=1e-5)
    if 1 < n_key_heads < 4:  # groups are neighbors and not every n-th head
        rows = ours.in_projection.weight.data[24:36]
        ours.in_projection.weight.data[24:36] = rows.roll(6, 0)
        assert not torch.allclose(ours(hidden, mask=causal), expected, atol=1e-3)


def test_t5s_attention_is_not_scaled_and_has_relative_positions():
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = modeling.T5Config(
        d_model=32, d_kv=8, num_heads=4, relative_attention_num_buckets=8,
        relative_attention_max_distance=12, dropout_rate=0.0, attn_implementation="eager",
    )  # fmt: skip
    theirs = modeling.T5Attention(config, has_relative_attention_bias=True)
    model = small_model(
        positions="relative", relative_buckets=8, relative_distance=12, similarity="dot", bias=False
    )
    ours = model.encoder.layers[0].self_attention
    with torch.no_grad():
        for module in (theirs.q, theirs.k, theirs.v, theirs.o, theirs.relative_attention_bias):
            module.weight.normal_(std=0.4)
        ours.in_projection.weight.copy_(
            torch.cat([module.weight for module in (theirs.q, theirs.k, theirs.v)])
        )
        ours.out_projection.weight.copy_(theirs.o.weight)
        model.encoder_input.positions.table.copy_(theirs.relative_attention_bias.weight)
    hidden = random(2, 40, 32)
    found, expected = ours(hidden), theirs(hidden)[0]
    assert torch.allclose(found, expected, atol=1e-5)
    for result in (found, expected):
        (result * random(2, 40, 32)).sum().backward()
    table = model.encoder_input.positions.table
    for ours_grad, theirs_grad in (
        (table.grad, theirs.relative_attention_bias.weight.grad),
        (ours.out_projection.weight.grad, theirs.o.weight.grad),
        (ours.in_projection.weight.grad[:32], theirs.q.weight.grad),
    ):
        assert torch.allclose(ours_grad, theirs_grad, rtol=1e-4, atol=1e-4)


def test_without_projections_weights_are_those_of_the_hidden_states_themselves():
    attention = MultiHeadAttention(12, 3, 4, has_projections=False).eval()
    assert not list(attention.parameters())
    assert not attention.is_plain
    taps = []
    attention.tap(taps.append)
    hidden = random(2, 5, 12)
    heads = hidden.view(2, 5, 3, 4).transpose(1, 2)
    scores = heads @ heads.mT / 2.0
    assert torch.equal(scores, scores.mT)
    expected = functional.softmax(scores, -1)
    assert torch.allclose(taps_of(attention, hidden, taps).weights(), expected, atol=1e-6)
    joined = (expected @ heads).transpose(1, 2).flatten(2)
    assert torch.allclose(attention(hidden), joined, atol=1e-6)
    memory = random(2, 7, 12)
    across = attention(hidden, memory)
    assert torch.allclose(
        across,
        functional.scaled_dot_product_attention(
            heads, *(2 * (memory.view(2, 7, 3, 4).transpose(1, 2),))
        ).transpose(1, 2).flatten(2),
        atol=1e-6,
    )  # fmt: skip


def taps_of(attention, hidden, taps):
    attention(hidden)
    return taps[-1]


def test_copies_stand_for_a_matrix_of_identities():
    copies, values = IdentityProjection(4, 3), random(2, 4)
    for rows in (slice(None), slice(4), slice(4, None), slice(0, 12)):
        assert torch.equal(copies.part(values, rows), values @ copies.weight[rows].T)


def test_heads_without_projections_are_not_taken_out():
    with pytest.raises(ValueError, match="heads without projections cannot be removed"):
        prune_heads(small_model(projections=False), [HeadId("enc", 0, 0)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_key_heads": 3}, "n_key_heads: 3 does not divide n_heads = 4; choose a number"),
        ({"n_key_heads": 2, "projections": False}, "n_key_heads: without projections every head"),
        ({"d_head": 4, "projections": False}, "d_head: without projections heads are parts of"),
        ({"d_head": 5, "positions": "rotary"}, "d_head: rotary positions need heads of an even"),
        ({"n_key_heads": 2, "encoder_heads": (1, 2)}, "n_key_heads: needs the same heads in"),
        ({"projections": False, "cross_heads": (1, 2, 0)}, "projections: needs the same heads"),
    ],
)
def test_impossible_heads_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small_config(**changes)
