"""Heads that share keys and values, and heads without projections."""

import pytest
import torch
from torch.nn import functional

from tests.model.conftest import small_config, small_model
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.ablation import prune_heads
from tformer_cli.model.attention import MultiHeadAttention, causal_mask
from tformer_cli.model.operations import IdentityProjection
from tformer_cli.model.positions import RotaryPositions


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
    three = theirs.q_proj, theirs.k_proj, theirs.v_proj
    for one in (*three, theirs.o_proj):
        torch.nn.init.normal_(one.weight, std=0.3)
    with torch.no_grad():
        ours.in_projection.weight.copy_(torch.cat([one.weight for one in three]))
        ours.out_projection.weight.copy_(theirs.o_proj.weight)
    hidden, causal = random(2, 9, 24), causal_mask(9)
    added = torch.zeros(9, 9).masked_fill(~causal.visible, -torch.inf)[None, None]
    angles = rotary(hidden, torch.arange(9)[None])
    expected, _ = theirs(hidden, position_embeddings=angles, attention_mask=added)
    found = ours(hidden, mask=causal)
    assert torch.allclose(found, expected, atol=1e-5)
    for result in (found, expected):
        (result * random(2, 9, 24)).sum().backward()
    gradient = torch.cat([one.weight.grad for one in three])
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
        for one in (theirs.q, theirs.k, theirs.v, theirs.o, theirs.relative_attention_bias):
            one.weight.normal_(std=0.4)
        ours.in_projection.weight.copy_(
            torch.cat([one.weight for one in (theirs.q, theirs.k, theirs.v)])
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
    with pytest.raises(ValueError, match="heads without projections cannot be taken out"):
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
