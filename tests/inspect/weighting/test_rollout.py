import pytest
import torch

from tformer_cli.inspect.capture.forced import AttentionMaps, capture_maps
from tformer_cli.inspect.weighting.maps import attention_mixing, roll_out, roll_out_stack

SOURCE, TARGET = (5, 9, 7, 11, 6, 8), (20, 24, 21)


def maps_of(enc, dec, cross):
    n_target, n_source = cross[0].shape[1:]
    return AttentionMaps(
        source_ids=(5,) * n_source,
        target_input_ids=(2,) * n_target,
        enc=tuple(enc),
        dec=tuple(dec),
        cross=tuple(cross),
        residuals={},
    )


def causal(n):
    return (torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]).expand(2, n, n)


def test_uniform_attention_has_its_closed_form():
    n, n_layers = 7, 6
    maps = maps_of(
        [torch.full((2, n, n), 1 / n)] * n_layers, [causal(3)], [torch.ones(2, 3, n) / n]
    )
    for layer, rolled in enumerate(roll_out(attention_mixing(maps)).enc, start=1):
        off = (1 - 2**-layer) / n
        expected = torch.full((n, n), off).double() + 2**-layer * torch.eye(n).double()
        torch.testing.assert_close(rolled, expected, atol=1e-7, rtol=0)
    assert rolled[2, 2].item() == pytest.approx(0.15625, abs=1e-7)
    assert rolled[2, 3].item() == pytest.approx(0.140625, abs=1e-7)


def test_heads_that_look_at_themselves_leave_every_token_where_it_is():
    maps = maps_of([torch.eye(5).expand(2, 5, 5)] * 4, [causal(3)], [torch.ones(2, 3, 5) / 5])
    assert all(
        torch.equal(rolled, torch.eye(5).double())
        for rolled in roll_out(attention_mixing(maps)).enc
    )


def test_one_layer_by_hand():
    """Of the second position a quarter each stays, comes from the prefix and is halved again."""
    enc = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])  # both look at the first source token
    dec = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])  # both look at the begin of sentence
    cross = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    rolled = roll_out(attention_mixing(maps_of([enc], [dec], [cross])))
    assert rolled.enc[0].tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert rolled.source[0].tolist() == [[0.5, 0.0], [0.25, 0.25]]
    assert rolled.prefix[0].tolist() == [[0.5, 0.0], [0.25, 0.25]]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_rows_sum_to_one_and_the_future_is_exactly_zero(make_model, norm):
    rolled = roll_out(attention_mixing(capture_maps(make_model(norm=norm), SOURCE, TARGET)))
    assert (len(rolled.enc), len(rolled.prefix), len(rolled.source)) == (3, 2, 2)
    for encoder in rolled.enc:
        torch.testing.assert_close(encoder.sum(dim=-1), torch.ones(7).double())
    for prefix, source in zip(rolled.prefix, rolled.source, strict=True):
        assert prefix.triu(1).count_nonzero() == 0
        assert (prefix.tril() >= 0).all()
        assert source.shape == (4, 7)
        torch.testing.assert_close(prefix.sum(-1) + source.sum(-1), torch.ones(4).double())


def test_a_causal_stack_is_lower_triangular():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(5, 6, 6, generator=generator).double()
    hidden = torch.ones(6, 6).triu(1).bool()
    layers = list(scores.masked_fill(hidden, -torch.inf).softmax(dim=-1))
    for rolled in roll_out_stack(layers):
        assert rolled.triu(1).count_nonzero() == 0
        assert (rolled.diagonal() > 0).all()
        torch.testing.assert_close(rolled.sum(-1), torch.ones(6).double())


def test_layers_apply_in_their_order():
    first, second = torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    rolled = roll_out_stack([first.double(), second.double()])
    # after the second layer all look at state 0, which the first one had made of token 1
    assert rolled[1].tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_a_layer_without_heads_passes_its_input_on():
    none = torch.zeros(0, 4, 4)
    maps = maps_of([none], [torch.zeros(0, 3, 3)], [torch.zeros(0, 3, 4)])
    mixing = attention_mixing(maps)
    assert torch.equal(mixing.enc[0], torch.eye(4).double())
    rolled = roll_out(mixing)
    assert torch.equal(rolled.prefix[0], torch.eye(3).double())
    assert rolled.source[0].count_nonzero() == 0
