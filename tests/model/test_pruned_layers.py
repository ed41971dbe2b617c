import pytest
import torch

from tests.model.conftest import small_config, small_model
from tformer_cli.model.attention import causal_mask
from tformer_cli.model.transformer import Transformer
from tformer_cli.model.weight_shapes import parameter_count


def test_a_gate_of_one_changes_no_bit_and_zero_everywhere_leaves_the_bias_of_w_o():
    layer = small_model().decoder.layers[0].self_attention
    hidden = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    ungated = layer(hidden, mask=causal_mask(5))
    for shape in ((4, 1, 1), (2, 4, 1, 1), (2, 4, 5, 1)):
        layer.gate = torch.ones(shape)
        assert torch.equal(layer(hidden, mask=causal_mask(5)), ungated)
    layer.gate = torch.zeros(4, 1, 1)
    off = layer(hidden, mask=causal_mask(5))
    assert torch.equal(off, layer.out_projection.bias.expand_as(off))
    assert "gate" not in layer.state_dict()


def test_layers_may_differ_in_heads_and_decode_step_by_step_as_in_full(sentences):
    shape = {"encoder_heads": (1, 3), "decoder_heads": (2, 0, 4), "cross_heads": (0, 4, 1)}
    model = small_model(**shape)
    assert sum(p.numel() for p in model.parameters()) == parameter_count(model.config, 50)
    source, source_mask, target = sentences
    with torch.inference_mode():
        full = model(source, source_mask, target)
        cache = model.start_cache(model.encode(source, source_mask), source_mask, 1, 6)
        steps = [model.decode_step(target[:, i], cache) for i in range(6)]
    assert torch.allclose(torch.stack(steps, dim=1), full, atol=1e-5)


def test_layers_of_equal_heads_are_the_same_model():
    torch.manual_seed(3)
    implicit = Transformer(small_config(), 50).state_dict()
    torch.manual_seed(3)
    explicit = Transformer(small_config(encoder_heads=(4, 4), cross_heads=(4, 4, 4)), 50)
    assert all(torch.equal(v, implicit[name]) for name, v in explicit.state_dict().items())


@pytest.mark.parametrize(
    ("name", "heads", "message"),
    [
        ("encoder_heads", (4,), "encoder_heads: must name 2 layers, but names 1"),
        ("cross_heads", (4, 5, 4), "cross_heads: must be 0 to n_heads = 4"),
        ("decoder_heads", (4, -1, 4), "decoder_heads: must be 0 to n_heads = 4"),
        ("bias_heads", (0, 1), "bias_heads: must name 20 heads, those of self-attention, but"),
        ("bias_heads", (4,) * 20, "bias_heads: must be below n_heads = 4"),
    ],
)
def test_impossible_heads_are_refused(name, heads, message):
    with pytest.raises(ValueError, match=message):
        small_config(**{name: heads})


def test_heads_that_share_biases_say_which_are_theirs():
    with pytest.raises(ValueError, match="bias_heads: must say which heads of 4 are left"):
        small_model(positions="alibi", encoder_heads=(2, 4))
    small_model(positions="alibi", encoder_heads=(0, 4))
