"""Small random models and sentences."""

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer

VOCAB_SIZE = 50


def small_config(**changes) -> ModelConfig:
    shape = {
        "d_model": 32,
        "n_heads": 4,
        "d_ff": 64,
        "n_encoder_layers": 2,
        "n_decoder_layers": 3,
        "dropout": 0.0,
        "max_positions": 64,
    }
    return ModelConfig(**{**shape, **changes})


def small_model(seed: int = 0, **changes) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(small_config(**changes), VOCAB_SIZE).eval()
    with torch.no_grad():  # biases and norms off their neutral values, so that a swap would show
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        for table in model.buffers():
            table.normal_()
    return model


@pytest.fixture
def sentences():
    """Three source sentences of 7, 5 and 7 tokens, padded, and targets of 6 tokens."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(4, VOCAB_SIZE, (3, 7), generator=generator)
    source_mask = torch.ones(3, 7, dtype=torch.bool)
    source_mask[1, 5:] = False
    target = torch.randint(4, VOCAB_SIZE, (3, 6), generator=generator)
    return source, source_mask, target


@pytest.fixture
def make_model():
    """Makes a small random model; keyword arguments change its shape."""
    return small_model
