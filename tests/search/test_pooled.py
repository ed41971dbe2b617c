"""Heads on the hidden states of one text against the modules in torch."""

import numpy as np
import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier, EncoderOnly, MaskedLanguageModel
from tformer_cli.search.pooled import LabelHead, TokenHead, pooled

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


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish", "gelu-tanh"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"bias": False}, {"tied_embeddings": "none"}, {"norm_kind": "rms", "norm": "pre"}],
)
def test_tokens_are_as_probable_as_to_the_model(activation, changes):
    config = ModelConfig(head="tokens", activation=activation, **SHAPE, **changes)
    torch.manual_seed(2)
    model = MaskedLanguageModel(config, 30).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn_like(weight)
        # large, so that an exponential that overflows would be seen
        rows = HIDDEN * torch.tensor([0.1, 1.0, 1.0, 10.0, 50.0, 100.0, 1.0]).unsqueeze(1)
        expected = model.project(model.transformed(rows)).double().log_softmax(1)
    head = TokenHead(config, {name: one.numpy() for name, one in model.state_dict().items()})
    for row, wanted in zip(rows.numpy(), expected, strict=True):
        np.testing.assert_allclose(head.log_probabilities(row), wanted.numpy(), atol=1e-4)
        never = [0, int(wanted.argmax())]
        found = head.candidates(row, 3, never=never)
        order = [n for n in wanted.argsort(descending=True).tolist() if n not in never][:3]
        assert [token for token, _ in found] == order
        shares = [probability for _, probability in found]
        np.testing.assert_allclose(shares, wanted[order].exp().numpy(), rtol=1e-3, atol=1e-9)
    assert head.candidates(rows[0].numpy(), 0) == []
    assert len(head.candidates(rows[0].numpy(), 99, never=[0, 1])) == 28
