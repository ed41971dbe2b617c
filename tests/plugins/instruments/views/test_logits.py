import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.views.logits import layer_logits

SOURCE, TARGET_INPUT = (5, 9, 7, 3), (2, 20, 24)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_lens_of_the_last_layer_is_the_models_output_bit_for_bit(norm):
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=48, n_encoder_layers=1, n_decoder_layers=3, norm=norm
    )
    model = Transformer(config, 40).eval()
    with torch.no_grad():  # a final norm that is not neutral
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    logits, lens = layer_logits(model, SOURCE, TARGET_INPUT)
    source, target = torch.tensor([SOURCE]), torch.tensor([TARGET_INPUT])
    with torch.inference_mode():
        expected = model(source, torch.ones_like(source, dtype=torch.bool), target)[0]
    assert torch.equal(logits, expected)
    assert torch.equal(lens[-1], expected)
    assert lens.shape == (3, 3, 40)
    # a model cut after a layer says what the lens of that layer says
    model.decoder.layers = model.decoder.layers[:2]
    shorter, _ = layer_logits(model, SOURCE, TARGET_INPUT)
    assert torch.equal(shorter, lens[1])
    assert not any(layer._forward_hooks for layer in model.decoder.layers)
