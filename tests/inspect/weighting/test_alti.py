from dataclasses import replace

import pytest
import torch

from tformer_cli.inspect.weighting import sublayers
from tformer_cli.inspect.weighting.sublayers import contributions, observe_sublayers

SOURCE, TARGET_INPUT = (5, 9, 7, 11, 6, 8, 3), (2, 20, 24, 21)
PRUNED = {"encoder_heads": (4, 0, 1), "decoder_heads": (2, 0), "cross_heads": (0, 3)}
SHAPES = {"enc": (7, 7), "dec": (4, 4), "cross": (4, 8)}


@pytest.fixture(params=["post", "pre"])
def norm(request):
    return request.param


@pytest.mark.parametrize("pruned", [{}, PRUNED], ids=["whole", "pruned"])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_the_vectors_and_the_biases_add_up_to_the_layers_output(
    make_model, norm, pruned, dtype, most
):
    for sublayer in observe_sublayers(make_model(dtype, norm=norm, **pruned), SOURCE, TARGET_INPUT):
        assert contributions(sublayer).residual <= most


def test_contributions_are_shares_and_causal(make_model, norm):
    for sublayer in observe_sublayers(make_model(norm=norm), SOURCE, TARGET_INPUT):
        shares = contributions(sublayer).shares
        assert shares.shape == SHAPES[sublayer.kind]
        assert shares.min() >= 0.0
        torch.testing.assert_close(shares.sum(dim=-1), torch.ones(len(shares)).double())
        if sublayer.kind == "dec":
            assert shares.triu(1).count_nonzero() == 0


def test_contributions_are_those_of_the_formula_written_out(make_model, norm):
    """One number at a time, with the norm's derivative at hand taken from its definition."""
    model = make_model(torch.float64, norm=norm)
    for sublayer in observe_sublayers(model, SOURCE, TARGET_INPUT):
        weights, values = sublayer.weights(), sublayer.value
        n_queries, n_keys = weights.shape[1:]
        found = contributions(sublayer).shares
        for i in range(n_queries):
            vectors = [
                sum(weights[h, i, j] * (values[h, j] @ sublayer.out_weight[h]) for h in range(4))
                for j in range(n_keys)
            ]
            if sublayer.kind == "cross":
                vectors.append(sublayer.stream[i])
            else:
                vectors[i] = vectors[i] + sublayer.stream[i]
            if norm == "post":
                summed = sum(vectors) + sublayer.out_bias
                deviation = (((summed - summed.mean()) ** 2).sum() / 32 + 1e-5) ** 0.5
                vectors = [sublayer.norm.scale * (v - v.mean()) / deviation for v in vectors]
            length = sublayer.output[i].abs().sum()
            nearer = [
                max(0.0, (length - (sublayer.output[i] - v).abs().sum()).item()) for v in vectors
            ]
            expected = torch.tensor(nearer, dtype=torch.float64) / sum(nearer)
            torch.testing.assert_close(found[i], expected, atol=1e-9, rtol=0)


def test_leaving_the_norms_shift_out_shows_in_the_residual(make_model):
    sublayer = observe_sublayers(make_model(), SOURCE, TARGET_INPUT)[-1]
    norm = replace(sublayer.norm, shift=sublayer.norm.shift + 0.01)
    assert contributions(replace(sublayer, norm=norm)).residual == pytest.approx(0.01, rel=1e-3)


def test_the_deviation_that_divides_by_one_less_does_not_add_up(make_model):
    sublayer = observe_sublayers(make_model(torch.float64), SOURCE, TARGET_INPUT)[0]
    norm = replace(sublayer.norm, deviation=sublayer.norm.deviation * (32 / 31) ** 0.5)
    assert contributions(replace(sublayer, norm=norm)).residual > 1e-3


def test_an_attention_that_adds_nothing_leaves_the_position_itself(make_model, norm):
    model = make_model(norm=norm)
    attention = model.encoder.layers[0].self_attention
    with torch.no_grad():
        attention.out_projection.weight.zero_()
    shares = contributions(observe_sublayers(model, SOURCE, TARGET_INPUT)[0]).shares
    assert torch.equal(shares, torch.eye(7).double())


def test_a_row_that_no_vector_brings_nearer_is_the_position_itself():
    # 10 and -9 on one axis: the sum is 1, and without either it would be farther from 0 than 1
    vectors = torch.tensor([[[10.0, 0.0], [-9.0, 0.0]]]).double()
    shares = sublayers._shares(vectors, vectors.sum(dim=1), torch.tensor([1]))
    assert shares.tolist() == [[0.0, 1.0]]


def test_long_sentences_are_taken_in_parts_that_change_nothing(make_model, monkeypatch):
    sublayers = observe_sublayers(make_model(), SOURCE, TARGET_INPUT)
    whole = [contributions(sublayer) for sublayer in sublayers]
    monkeypatch.setattr("tformer_cli.inspect.weighting.sublayers.MOST_NUMBERS", 2 * 8 * 32)
    for sublayer, expected in zip(sublayers, whole, strict=True):
        in_parts = contributions(sublayer)
        torch.testing.assert_close(in_parts.shares, expected.shares, atol=1e-14, rtol=0)
        assert in_parts.residual == pytest.approx(expected.residual, rel=1e-6)
