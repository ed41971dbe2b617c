import math

import pytest
import torch

from tformer_cli.model.attention import MultiHeadAttention, attention_weights, causal_mask
from tformer_cli.model.methods import SIMILARITIES, load_method
from tformer_cli.model.similarity import Cosine, Distance, Similarity, make_similarity


def heads(*shape, seed=4):
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights_of(similarity, query, key):
    query, key = similarity.queries(query), similarity.keys(key)
    bias = similarity.bias(query, key)
    return attention_weights(query, key, bias=bias, scale=similarity.scale)


def close(values, expected):
    return torch.allclose(values, expected, atol=1e-6)


def test_distances_are_those_of_cdist_halved_and_divided_by_the_root():
    query, key = heads(2, 3, 5, 8), heads(2, 3, 7, 8, seed=5)
    found = weights_of(Distance(3, 8), query, key)
    squared = torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist").square()
    assert close(found, (-squared / (2 * math.sqrt(8))).softmax(-1))
    assert not close(found, (-squared / 8).softmax(-1))
    assert not close(found, (-squared.sqrt()).softmax(-1))


@torch.no_grad()
def test_cosines_are_those_of_swin_transformer_v2():
    swin = pytest.importorskip("transformers.models.swinv2.modeling_swinv2")
    torch.manual_seed(0)  # both normalize: a short query or key would magnify what rounding does
    config = swin.Swinv2Config(qkv_bias=True, attn_implementation="eager")
    theirs = swin.Swinv2SelfAttention(config, 12, 3, 2).eval()
    ours = MultiHeadAttention(12, 3, 4, similarity=Cosine(3, 4)).eval()
    for parameter in theirs.parameters():
        parameter.normal_()
    theirs.logit_scale.copy_(torch.tensor([0.3, 2.0, 5.0])[:, None, None])  # the last is clamped
    theirs.continuous_position_bias_mlp[-1].weight.zero_()  # a bias that is the same everywhere
    projections = theirs.query, theirs.key, theirs.value
    ours.in_projection.weight.copy_(torch.cat([projection.weight for projection in projections]))
    biases = [
        torch.zeros(12) if projection.bias is None else projection.bias
        for projection in projections
    ]
    ours.in_projection.bias.copy_(torch.cat(biases))
    ours.out_projection.weight.copy_(torch.eye(12))
    ours.out_projection.bias.zero_()
    ours.similarity.log_factor.copy_(theirs.logit_scale.flatten())
    hidden = heads(5, 4, 12)  # windows of 2 times 2
    expected = theirs(hidden)[0]
    assert torch.allclose(ours(hidden), expected, atol=1e-5)
    ours.similarity.log_factor[0] += 0.01
    assert not torch.allclose(ours(hidden), expected, atol=1e-4)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_the_fused_path_and_the_plain_one_agree_and_a_tap_sees_the_weights(name):
    torch.manual_seed(0)
    similarity = make_similarity(name, 4, 8)
    attention = MultiHeadAttention(32, 4, 8, similarity=similarity).eval()
    assert attention.is_plain == (name == "scaled")
    taps = []
    attention.tap(taps.append)
    hidden = heads(2, 200, 32)
    whole = attention(hidden, mask=causal_mask(200))  # the fused kernel
    assert torch.allclose(taps[-1].weights() @ taps[-1].value, taps[-1].context, atol=1e-5)
    some = attention(hidden[:, :9], mask=causal_mask(9))  # the plain formula
    assert torch.allclose(whole[:, :9], some, atol=1e-5)
    assert torch.allclose(taps[-1].weights() @ taps[-1].value, taps[-1].context, atol=1e-6)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_gradients_are_those_of_small_differences(name):
    torch.manual_seed(1)
    similarity = make_similarity(name, 2, 3).double()
    inputs = [heads(1, 2, n, 3).double().requires_grad_() for n in (3, 4)]
    parameters = tuple(similarity.parameters())

    def weights(query, key, *_):
        return weights_of(similarity, query, key)

    assert torch.autograd.gradcheck(weights, (*inputs, *parameters))


def test_every_other_similarity_says_its_formula():
    for name, row in SIMILARITIES.items():
        assert bool(load_method(row).formulas) == (name != "scaled")
    assert load_method(SIMILARITIES["scaled"]) is Similarity
