import math

import pytest
import torch

from tests.oracles.plain_loss import plain_r_drop_loss
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.batching import collate
from tformer_cli.text.tokenizer import EOS_ID
from tformer_cli.trainer import gradients
from tformer_cli.trainer.gradients import add_gradients, batch_loss, clip_gradients
from tformer_cli.trainer.loss import projected_loss
from tformer_cli.trainer.report_interval import ReportInterval

SOURCE = [[5, 6, 7], [8, 9], [10], [11, 12, 13, 14]]
TARGET = [[6], [7, 8, 9, 10], [11, 12], [13, 14, 15]]


def model(dropout=0.0):
    torch.manual_seed(4)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=24, n_encoder_layers=1, n_decoder_layers=1, dropout=dropout
    )
    return Transformer(config, 20)


def gradients_of(batches):
    trained, window = model(), ReportInterval(0.0)
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


def test_r_drop_without_dropout_is_the_ordinary_loss_and_counts_each_token_once():
    batch, settings = collate(SOURCE, TARGET), {"label_smoothing": 0.1, "precision": "float32"}
    trained, twice, window = model(), model(), ReportInterval(0.0)
    add_gradients(trained, [batch], expected := ReportInterval(0.0), **settings)
    add_gradients(twice, [batch], window, r_drop=5.0, **settings)
    for one, other in zip(trained.parameters(), twice.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-6)
    assert math.isclose(window.mean_loss, expected.mean_loss, rel_tol=1e-5)
    assert math.isclose(window.perplexity, expected.perplexity, rel_tol=1e-5)
    assert window.n_target_tokens == expected.n_target_tokens == 14
    assert window.n_cells == expected.n_cells


def test_r_drop_is_the_plain_formula_of_two_passes_with_their_own_dropout(monkeypatch):
    trained = model(dropout=0.3)
    batch, seen = collate(SOURCE, TARGET), []

    def noting(hidden, matrix, targets, *settings):
        seen.append((hidden @ matrix.T, targets))
        return projected_loss(hidden, matrix, targets, *settings)

    monkeypatch.setattr(gradients, "projected_loss", noting)
    found = batch_loss(trained, batch, label_smoothing=0.1, precision="float32", r_drop=5.0)
    ((logits, targets),) = seen
    first, second = logits[0::2], logits[1::2]
    assert targets.tolist() == [token for row in TARGET for token in [*row, EOS_ID]]
    assert (first - second).abs().min() > 0.0, "no token has the same dropout twice"
    expected = plain_r_drop_loss(first, second, targets, 0.1, 5.0)
    assert torch.allclose(found.smoothed, expected.smoothed)
    assert found.smoothed > plain_r_drop_loss(first, second, targets, 0.1, 0.0).smoothed
    got = torch.autograd.grad(found.smoothed, list(trained.parameters()), retain_graph=True)
    for one, other in zip(
        got, torch.autograd.grad(expected.smoothed, list(trained.parameters())), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("largest", [0.01, 1e6, 0.0])
def test_clipping_scales_down_to_the_norm_and_never_up(largest):
    trained = model()
    batch = collate(SOURCE, TARGET)
    add_gradients(trained, [batch], ReportInterval(0.0), label_smoothing=0.1, precision="float32")
    flat = torch.cat([p.grad.flatten() for p in trained.parameters()])
    norm = clip_gradients(trained, largest)
    clipped = torch.cat([p.grad.flatten() for p in trained.parameters()])
    assert math.isclose(float(norm), float(flat.norm()), rel_tol=1e-5)
    if largest == 0.01:
        assert math.isclose(float(clipped.norm()), 0.01, rel_tol=1e-3)
    else:
        assert torch.equal(clipped, flat)
