import math

import pytest
import torch

from tformer_cli.data.batching import collate
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.training.gradients import add_gradients, batch_loss, clip_gradients
from tformer_cli.training.window import Window

SOURCE = [[5, 6, 7], [8, 9], [10], [11, 12, 13, 14]]
TARGET = [[6], [7, 8, 9, 10], [11, 12], [13, 14, 15]]


def model():
    torch.manual_seed(4)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=24, n_encoder_layers=1, n_decoder_layers=1, dropout=0.0
    )
    return Transformer(config, 20)


def gradients_of(batches):
    trained, window = model(), Window(0.0)
    add_gradients(trained, batches, window, label_smoothing=0.1, precision="float32")
    return [parameter.grad for parameter in trained.parameters()], window


def test_accumulated_batches_give_the_gradient_of_one_large_batch():
    large, whole = gradients_of([collate(SOURCE, TARGET)])
    parts = [collate(SOURCE[:1], TARGET[:1]), collate(SOURCE[1:], TARGET[1:])]
    small, summed = gradients_of(parts)
    for one, other in zip(large, small, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert math.isclose(whole.mean_loss, summed.mean_loss, rel_tol=1e-5)
    assert whole.n_target_tokens == summed.n_target_tokens == 14


def test_padding_adds_nothing_to_the_loss():
    batch = collate(SOURCE, TARGET)
    alone = [collate([source], [target]) for source, target in zip(SOURCE, TARGET, strict=True)]
    trained = model()
    together = batch_loss(trained, batch, label_smoothing=0.1, precision="float32")
    parts = [batch_loss(trained, one, label_smoothing=0.1, precision="float32") for one in alone]
    assert torch.allclose(together.smoothed, sum(part.smoothed for part in parts), atol=1e-4)


@pytest.mark.parametrize("largest", [0.01, 1e6, 0.0])
def test_clipping_scales_down_to_the_norm_and_never_up(largest):
    trained = model()
    batch = collate(SOURCE, TARGET)
    add_gradients(trained, [batch], Window(0.0), label_smoothing=0.1, precision="float32")
    flat = torch.cat([p.grad.flatten() for p in trained.parameters()])
    norm = clip_gradients(trained, largest)
    clipped = torch.cat([p.grad.flatten() for p in trained.parameters()])
    assert math.isclose(float(norm), float(flat.norm()), rel_tol=1e-5)
    if largest == 0.01:
        assert math.isclose(float(clipped.norm()), 0.01, rel_tol=1e-3)
    else:
        assert torch.equal(clipped, flat)
