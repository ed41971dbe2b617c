import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.shapes import shapes_alone
from tformer_cli.model.transformer import Transformer


@pytest.mark.parametrize(
    "options", [{}, {"positions": "learned", "tied_embeddings": "none", "activation": "gelu"}]
)
def test_a_model_of_shapes_alone_has_them_all_and_draws_nothing(options):
    config = ModelConfig(
        d_model=32, n_heads=2, d_ff=48, n_encoder_layers=1, n_decoder_layers=2, **options
    )
    before = torch.get_rng_state()
    with shapes_alone():
        shapes = Transformer(config, 50).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert {tensor.device.type for tensor in shapes.values()} == {"meta"}
    whole = Transformer(config, 50).state_dict()
    assert {name: (v.shape, v.dtype) for name, v in shapes.items()} == {
        name: (v.shape, v.dtype) for name, v in whole.items()
    }


def test_outside_of_it_models_have_values_again():
    with shapes_alone():
        pass
    torch.manual_seed(1)
    layer = torch.nn.Linear(4, 4)
    assert layer.weight.device.type == "cpu"
    assert layer.weight.std() > 0
