import math

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.positions import (
    LinearBiases,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    sinusoids,
    slopes,
)


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


def arrows(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("base", [10_000, 500_000])
def test_rotary_positions_turn_pairs_as_complex_numbers(base):
    heads = arrows(2, 3, 50, 12)
    pairs = torch.complex(heads[..., :6].double(), heads[..., 6:].double())
    angle = torch.arange(50.0, dtype=torch.float64)[:, None] * base ** -(
        torch.arange(6.0, dtype=torch.float64) / 6
    )
    expected = pairs * torch.polar(torch.ones_like(angle), angle)
    turned = RotaryPositions(64, 12, base).rotate_heads(heads, slice(0, 50))
    assert torch.allclose(turned[..., :6], expected.real.float(), atol=1e-5)
    assert torch.allclose(turned[..., 6:], expected.imag.float(), atol=1e-5)


def test_they_are_those_of_llama_and_gpt_neox():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    query, key = arrows(2, 4, 300, 16), arrows(2, 4, 300, 16) + 1.0
    config = llama.LlamaConfig(hidden_size=64, num_attention_heads=4, max_position_embeddings=512)
    cosine, sine = llama.LlamaRotaryEmbedding(config)(query, torch.arange(300)[None])
    ours = RotaryPositions(512, 16)
    found = [ours.rotate_heads(heads, slice(0, 300)) for heads in (query, key)]
    for theirs in (llama, neox):
        expected = theirs.apply_rotary_pos_emb(query, key, cosine, sine)
        for turned, wanted in zip(found, expected, strict=True):
            assert torch.allclose(turned, wanted, atol=1e-4)  # their late angles are float32


def test_scores_of_turned_arrows_depend_on_the_offset_alone():
    query, key = arrows(1, 8), arrows(1, 8) - 0.5
    rotate = RotaryPositions(100, 8).rotate_heads
    at = [rotate(query, slice(p, p + 1)) @ rotate(key, slice(p + 7, p + 8)).T for p in (0, 1, 60)]
    assert torch.allclose(at[0], at[1], atol=1e-5)
    assert torch.allclose(at[0], at[2], atol=1e-5)
    assert not torch.allclose(at[0], query @ key.T, atol=1e-2)


def test_positions_of_each_row_turn_like_those_of_all_rows():
    heads = arrows(2, 3, 4, 8)
    rotary = RotaryPositions(100, 8)
    places = torch.tensor([[[5, 5, 5, 5]], [[9, 9, 9, 9]]])
    turned = rotary.rotate_heads(heads, places)
    assert torch.equal(turned[0], rotary.rotate_heads(heads[0], slice(5, 6)))
    assert torch.equal(turned[1], rotary.rotate_heads(heads[1], slice(9, 10)))
    assert rotary.rotate_heads(heads.bfloat16(), places).dtype == torch.bfloat16


def test_a_table_made_while_translating_serves_training():
    rotary = RotaryPositions(100, 8)
    with torch.inference_mode():
        rotary.rotate_heads(arrows(4, 8), slice(0, 4))
    heads = arrows(4, 8).requires_grad_()
    rotary.rotate_heads(heads, slice(0, 4)).square().sum().backward()
    assert torch.allclose(heads.grad, 2 * heads, atol=1e-5)  # a turn changes no length


def test_rotary_heads_have_an_even_width():
    with pytest.raises(ValueError, match=r"even width, but d_model / n_heads is 3"):
        ModelConfig(d_model=6, n_heads=2, positions="rotary")


@pytest.mark.parametrize(("n_buckets", "far"), [(32, 128), (8, 6), (64, 40), (256, 4000)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_buckets_are_those_of_t5(n_buckets, far, is_causal):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    distances = torch.arange(-5000, 5000)
    expected = t5._relative_position_bucket(distances, not is_causal, n_buckets, far)
    ours = RelativePositions(2, n_buckets, far, is_causal=is_causal)
    assert torch.equal(ours.buckets(distances), expected)
    for other in (
        RelativePositions(2, n_buckets + 2, far, is_causal=is_causal),
        RelativePositions(2, n_buckets, 2 * far, is_causal=is_causal),
        RelativePositions(2, n_buckets, far, is_causal=not is_causal),
    ):
        assert not torch.equal(other.buckets(distances), expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_relative_positions_are_the_bias_of_t5_with_its_gradients(is_causal):
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = modeling.T5Config(
        d_model=24, d_kv=8, num_heads=3, relative_attention_num_buckets=16,
        relative_attention_max_distance=20, is_decoder=is_causal, dropout_rate=0.0,
    )  # fmt: skip
    theirs = modeling.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = RelativePositions(3, 16, 20, is_causal=is_causal)
    with torch.no_grad():
        ours.table.copy_(theirs.relative_attention_bias.weight.normal_())
    at, weights = torch.arange(50), arrows(3, 50, 50)
    expected = theirs.compute_bias(50, 50)[0]
    assert torch.equal(ours.bias(at, at), expected)
    for bias in (ours.bias(at, at), expected):
        (bias * weights).sum().backward()
    assert torch.allclose(
        ours.table.grad, theirs.relative_attention_bias.weight.grad, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 6, 8, 12, 16, 20])
def test_slopes_are_those_of_mpt_and_bloom(n_heads):
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    ours = torch.tensor(slopes(n_heads))
    # theirs leave out what all keys of a query have in common
    assert torch.allclose(
        mpt.build_mpt_alibi_tensor(n_heads, 9)[:, 0], ours[:, None] * torch.arange(-8.0, 1.0)
    )
    theirs = bloom.build_alibi_tensor(torch.ones(1, 9), n_heads, torch.float32)
    assert torch.allclose(theirs[:, 0], ours[:, None] * torch.arange(9.0), rtol=1e-6)


def test_linear_biases_fall_alike_on_both_sides_and_softmax_as_mpts_where_it_is_causal():
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    at, scores = torch.arange(9), arrows(6, 9, 9)
    bias = LinearBiases(6).bias(at, at)
    assert torch.equal(bias, bias.mT)
    assert torch.equal(bias.diagonal(dim1=1, dim2=2), torch.zeros(6, 9))
    hidden = ~torch.ones(9, 9).tril().bool()
    found, expected = (
        (scores + biases).masked_fill(hidden, -math.inf).softmax(-1)
        for biases in (bias, mpt.build_mpt_alibi_tensor(6, 9))
    )
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "positions", [RelativePositions(4, 8, 6, is_causal=False), LinearBiases(4)]
)
@torch.no_grad()
def test_biases_of_each_row_are_those_of_all_rows(positions):
    for table in positions.parameters():
        table.normal_()
    whole = positions.bias(torch.arange(9), torch.arange(9))
    rows = positions.bias(torch.tensor([[5, 2], [8, 8]]), torch.arange(9))
    assert torch.equal(rows[0], whole[:, [5, 2]])
    assert torch.equal(rows[1], whole[:, [8, 8]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_buckets": 9}, "relative_buckets: must be even"),
        ({"relative_buckets": 2}, "relative_buckets: must be 4 to 65536, but is 2"),
        ({"relative_distance": 16}, "relative_distance: must be above 16, half of"),
        ({"decoder_cell": "ssru"}, 'positions: "relative" needs self-attention'),
    ],
)
def test_impossible_relative_positions_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**{"positions": "relative"} | changes)
