"""Heads on the hidden states of one text against the modules in torch."""

import numpy as np
import pytest
import torch

from tformer_cli.decoding.pooled import LabelHead, pooled
from tformer_cli.model.classifier import Classifier
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import EncoderOnly

SHAPE = {
    "d_model": 16, "n_heads": 2, "d_ff": 16, "n_encoder_layers": 1, "n_decoder_layers": 0,
    "max_positions": 20,
}  # fmt: skip
HIDDEN = torch.randn(7, 16, generator=torch.Generator().manual_seed(1))
MASK = torch.ones(1, 7, dtype=torch.bool)


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("unit_length", [False, True])
def test_vectors_are_those_of_the_model(pooling, unit_length):
    config = ModelConfig(head="none", pooling=pooling, unit_length=unit_length, **SHAPE)
    model = EncoderOnly(config, 30).eval()
    expected = model.pool(HIDDEN.unsqueeze(0), MASK)
    if unit_length:
        expected = torch.nn.functional.normalize(expected, dim=1)
    found = pooled(HIDDEN.numpy(), pooling, unit_length=unit_length)
    np.testing.assert_allclose(found, expected[0].numpy(), atol=1e-6)
    assert not pooled(np.zeros((3, 4), np.float32), pooling, unit_length=unit_length).any()


def test_a_pooling_of_images_is_refused():
    with pytest.raises(ValueError, match="first-and-mean is not of texts"):
        pooled(HIDDEN.numpy(), "first-and-mean")


@pytest.mark.parametrize("pooler", ["none", "tanh", "relu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_probabilities_are_those_of_the_model(pooler, bias, pooling):
    config = ModelConfig(n_labels=5, pooler=pooler, bias=bias, pooling=pooling, **SHAPE)
    torch.manual_seed(2)
    model = Classifier(config, 30).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn_like(weight)
        expected = model.project(model.summarize(model.pool(HIDDEN.unsqueeze(0), MASK)))
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    found = LabelHead(config, weights).probabilities(HIDDEN.numpy())
    np.testing.assert_allclose(found, expected[0].softmax(0).numpy(), atol=1e-5)
    assert sum(found) == pytest.approx(1.0, abs=1e-12)
