import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.recipe import make_recipe
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.optimizers.optimizer import MovingAverage, decay_at


def transformer(seed=1):
    torch.manual_seed(seed)
    shape = ModelConfig(d_model=8, n_heads=2, d_ff=16, n_encoder_layers=1, n_decoder_layers=1)
    return Transformer(shape, vocab_size=12)


def disturb(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))


def test_equals_the_sum_of_all_weights_times_what_each_later_step_left_of_them():
    model, decay, n_steps = transformer(), 0.4, 9
    average = MovingAverage(model, decay)
    seen = []
    for step in range(1, n_steps + 1):
        disturb(model, step)
        average.update(step)
        seen.append({name: value.double() for name, value in model.state_dict().items()})
    decays = [min(decay, (1 + t) / (10 + t)) for t in range(1, n_steps + 1)]
    assert decays[0] == 2 / 11, "the rule's first value"
    assert decays[-1] == decay, "the largest is reached in between"
    initial = {name: value.double() for name, value in transformer().state_dict().items()}
    for name, found in average.tensors().items():
        expected = torch.tensor(decays, dtype=torch.float64).prod() * initial[name]
        for place, weights in enumerate(seen):
            left = torch.tensor([1.0, *decays[place + 1 :]], dtype=torch.float64).prod()
            expected = expected + (1.0 - decays[place]) * left * weights[name]
        assert torch.allclose(found.double(), expected, atol=1e-5), name


def test_the_decay_rises_to_the_largest_and_stays():
    rates = [decay_at(0.999, step) for step in (1, 10, 100, 8_989, 8_990, 1_000_000)]
    assert rates == sorted(rates)
    assert rates[1] == 11 / 20
    assert rates[3] < 0.999 == rates[4] == rates[5]


def test_weights_that_stay_are_their_own_average_and_tied_ones_stay_tied():
    model = transformer()
    average = MovingAverage(model, 0.9)
    for step in range(1, 4):
        average.update(step)
    for ours, theirs in zip(average.model.parameters(), model.parameters(), strict=True):
        assert ours is not theirs
        assert torch.allclose(ours, theirs, atol=1e-7)
    assert len(list(average.model.parameters())) == len(list(model.parameters()))
    assert average.model.output_matrix is next(
        p for p in average.model.parameters() if p.shape == model.output_matrix.shape
    )


def test_the_average_is_neither_trained_nor_dropped_from():
    average = MovingAverage(transformer(), 0.9)
    assert not average.model.training
    assert not any(parameter.requires_grad for parameter in average.model.parameters())


def test_what_was_kept_goes_on_bit_for_bit():
    model = transformer()
    average = MovingAverage(model, 0.9)
    disturb(model, 1)
    average.update(1)
    kept = {name: value.clone() for name, value in average.tensors().items()}
    resumed = MovingAverage(model, 0.9)
    resumed.load(kept)
    disturb(model, 2)
    for one in (average, resumed):
        one.update(2)
    for name, value in average.tensors().items():
        assert torch.equal(resumed.tensors()[name], value)
    average.restart()
    for name, value in average.tensors().items():
        assert torch.equal(value, model.state_dict()[name])


def test_a_decay_without_a_moving_average_is_an_error():
    with pytest.raises(ValueError, match='ema_decay: needs average = "ema", but average is "last"'):
        TrainingConfig(ema_decay=0.99)
    with pytest.raises(ValueError, match=r"ema_decay: must be at least 0 and below 1, but is 1\.0"):
        TrainingConfig(average="ema", ema_decay=1.0)
    recipe = make_recipe(
        {
            "data": {"train": [{"tsv": "x"}]},
            "training": {"max_steps": 1, "average": "ema", "ema_decay": 0.99},
        },
        "test",
    )
    assert recipe.training.ema_decay == 0.99
