import pytest
import torch

from tformer_cli.data.batching import collate
from tformer_cli.errors import TformerError
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.training import memory
from tformer_cli.training.gradients import add_gradients
from tformer_cli.training.memory import GradientsInMemory, halves
from tformer_cli.training.window import Window

SETTINGS = {"label_smoothing": 0.1, "precision": "float32"}
BATCHES = [
    collate([[5, 6, 7], [8, 9], [10], [11, 12, 13, 14]], [[6], [7, 8, 9], [11, 12], [13]]),
    collate([[5, 6], [8, 9, 4]], [[6, 7], [7, 8, 9]]),
]


def model():
    torch.manual_seed(4)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=24, n_encoder_layers=1, n_decoder_layers=1, dropout=0.0
    )
    return Transformer(config, 20)


def limited(monkeypatch, most_rows):
    """Lets batches of more rows fail after they have added to the gradients; counts the tries."""
    tries = []

    def adding(trained, batches, window, **settings):
        tries.append([batch.n_sentences for batch in batches])
        add_gradients(trained, batches, window, **settings)
        if max(tries[-1]) > most_rows:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(memory, "add_gradients", adding)
    return tries


@pytest.mark.parametrize("most_rows", [1, 2, 3])
def test_a_split_batch_has_the_gradient_of_the_whole(monkeypatch, most_rows):
    whole, expected = model(), Window(0.0)
    add_gradients(whole, BATCHES, expected, **SETTINGS)
    tries = limited(monkeypatch, most_rows)
    split, window = model(), Window(0.0)
    n_parts = GradientsInMemory().add(split, BATCHES, window, **SETTINGS)
    assert n_parts == len(tries[-1]) > 2
    assert max(tries[-1]) <= most_rows
    for one, other in zip(whole.parameters(), split.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=0.0, atol=1e-6)
    assert window.n_target_tokens == expected.n_target_tokens
    assert window.mean_loss == pytest.approx(expected.mean_loss, rel=1e-6)


def test_batches_as_large_as_one_that_failed_are_split_at_once(monkeypatch):
    tries = limited(monkeypatch, 2)
    gradients, trained = GradientsInMemory(), model()
    gradients.add(trained, BATCHES, Window(0.0), **SETTINGS)
    assert tries == [[4, 2], [2, 2, 2]]
    trained.zero_grad()
    gradients.add(trained, BATCHES, Window(0.0), **SETTINGS)
    assert tries[2:] == [[2, 2, 2]]


def test_a_pair_that_does_not_fit_is_an_error_and_other_errors_pass(monkeypatch):
    limited(monkeypatch, 0)
    with pytest.raises(TformerError, match=r"a sentence pair of .* does not fit in memory"):
        GradientsInMemory().add(model(), BATCHES, Window(0.0), **SETTINGS)
    monkeypatch.setattr(memory, "add_gradients", lambda *a, **k: torch.zeros(2) @ torch.zeros(3))
    with pytest.raises(RuntimeError, match="size"):
        GradientsInMemory().add(model(), BATCHES, Window(0.0), **SETTINGS)


def test_halves_have_all_rows_once():
    first, second = halves(BATCHES[0])
    for name in ("source", "source_mask", "target_input", "target_output"):
        joined = torch.cat([getattr(first, name), getattr(second, name)])
        assert torch.equal(joined, getattr(BATCHES[0], name))
