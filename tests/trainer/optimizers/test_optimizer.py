"""Optimizers by the formula of Adam, their state and schedules."""

import math
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from torch import nn

from tformer_cli.trainer.config import TrainingConfig, ValidationConfig
from tformer_cli.trainer.optimizers.adam import Adam, ParameterGroup
from tformer_cli.trainer.optimizers.optimizer import (
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
)
from tformer_cli.trainer.optimizers.schedule import (
    batches_per_step,
    end_reason,
    learning_rate,
    scaled_to_batch,
    share_done,
)
from tformer_cli.trainer.resuming.state import TrainingState


def take_steps(model, optimizer, n_steps, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n_steps):
        model(torch.randn(4, 6, generator=generator)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def test_equals_the_formula_of_adam_with_the_papers_constants():
    parameter = nn.Parameter(torch.tensor([[1.0, -2.0]]))
    model = nn.Module()
    model.register_parameter("weight", parameter)
    config = TrainingConfig(learning_rate=0.1)
    optimizer = make_optimizer(model, config)
    m = v = torch.zeros(1, 2)
    expected = parameter.detach().clone()
    for step in range(1, 4):
        gradient = torch.tensor([[0.5 * step, -0.25]])
        parameter.grad = gradient.clone()
        optimizer.step()
        m = 0.9 * m + 0.1 * gradient
        v = 0.98 * v + 0.02 * gradient**2
        expected -= 0.1 * (m / (1 - 0.9**step)) / ((v / (1 - 0.98**step)).sqrt() + 1e-9)
    assert torch.allclose(parameter, expected, atol=1e-6)


def test_restored_state_goes_on_bit_for_bit():
    config = TrainingConfig(optimizer="adamw", weight_decay=0.1)
    model = network()
    optimizer = make_optimizer(model, config)
    take_steps(model, optimizer, 3, seed=1)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    tensors = {name: value.clone() for name, value in optimizer_tensors(optimizer, model).items()}
    take_steps(model, optimizer, 3, seed=2)

    other = network(seed=9)
    other.load_state_dict(saved)
    restored = make_optimizer(other, config)
    restore_optimizer(restored, other, tensors)
    take_steps(other, restored, 3, seed=2)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_a_missing_state_is_named():
    model = network()
    optimizer = make_optimizer(model, TrainingConfig())
    with pytest.raises(KeyError, match=r"0\.weight"):
        restore_optimizer(optimizer, model, {})


def test_weight_decay_spares_biases_and_norms():
    model = network()
    optimizer = make_optimizer(model, TrainingConfig(optimizer="adamw", weight_decay=0.5))
    decays = {p.dim(): group.weight_decay for group in optimizer.param_groups for p in group.params}
    assert decays == {2: 0.5, 1: 0.0}


def test_a_parameter_that_never_had_a_gradient_has_no_state_to_miss():
    config = TrainingConfig()
    model, other = network(), network()
    optimizer, restored = make_optimizer(model, config), make_optimizer(other, config)
    for parameter in model[0].parameters():
        parameter.requires_grad_(requires_grad=False)
    take_steps(model, optimizer, 2, seed=1)
    tensors = optimizer_tensors(optimizer, model)
    assert {name.split(".")[0] for name in tensors} == {"2"}
    restored.state[other[0].weight]["step"] = torch.ones(())  # of a later step, gone back from
    restore_optimizer(restored, other, tensors)
    assert optimizer_tensors(restored, other).keys() == tensors.keys()


STEPS = """
import sys
import torch
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.optimizers.optimizer import make_optimizer

shape = ModelConfig(d_model=8, n_heads=2, d_ff=8, n_encoder_layers=1, n_decoder_layers=1)
for name in ("adam", "adamw", "muon"):
    model = Transformer(shape, vocab_size=10)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    make_optimizer(model, TrainingConfig(optimizer=name)).step()
print("torch._dynamo" in sys.modules)
"""


def parameters(seed=1):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 5), (40, 33), (7,), ()]
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def put_gradients(parameters, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_every_bit_is_that_of_torchs_fused_optimizer(decay):
    ours, theirs = parameters(), parameters()
    settings = {"betas": (0.9, 0.98), "eps": 1e-9}
    optimizer = Adam([ParameterGroup(params=ours, lr=0.0, weight_decay=decay)], **settings)
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    reference = kind(theirs, lr=0.0, weight_decay=decay, fused=True, **settings)
    for step in range(5):
        for side in (ours, theirs):
            put_gradients(side, step)
        optimizer.param_groups[0].lr = reference.param_groups[0]["lr"] = 0.01 / (step + 1)
        optimizer.step()
        reference.step()
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine, other)
            assert optimizer.state[mine].keys() == reference.state[other].keys()
            for key, value in reference.state[other].items():
                assert torch.equal(optimizer.state[mine][key], value)


def test_each_group_has_its_own_settings():
    first, second = parameters(1)[:2], parameters(2)[:2]
    groups = [
        ParameterGroup(params=first, lr=0.1, weight_decay=0.5),
        ParameterGroup(params=second, lr=0.0),
    ]
    before = [parameter.detach().clone() for parameter in (*first, *second)]
    put_gradients([*first, *second], 3)
    Adam(groups, betas=(0.9, 0.98), eps=1e-9).step()
    # the first step of Adam is of the size of the learning rate, whatever the gradient
    for parameter, old in zip(first, before[:2], strict=True):
        expected = old * (1 - 0.1 * 0.5) - 0.1 * parameter.grad.sign()
        assert torch.allclose(parameter, expected, atol=1e-5)
    for parameter, old in zip(second, before[2:], strict=True):
        assert torch.equal(parameter, old)


def test_a_parameter_without_a_gradient_stays_and_gets_no_state():
    trained, left_out = parameters()[:2]
    optimizer = Adam(
        [ParameterGroup(params=[left_out, trained], lr=0.1)], betas=(0.9, 0.98), eps=1e-9
    )
    optimizer.step()
    assert not optimizer.state
    before = left_out.detach().clone()
    put_gradients([trained], 1)
    optimizer.step()
    assert torch.equal(left_out, before)
    assert list(optimizer.state) == [trained]
    optimizer.zero_grad()
    assert trained.grad is None


def test_no_optimizer_imports_torchs_compiler():
    command = [sys.executable, "-c", STEPS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def rate(schedule, step, share=0.0, **changes):
    config = TrainingConfig(schedule=schedule, warmup_steps=4000, max_steps=100_000, **changes)
    return learning_rate(config, step, share, 512)


def test_noam_is_the_papers_formula():
    for step in (1, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert math.isclose(rate("noam", step, learning_rate=1.0), expected)
    assert math.isclose(rate("noam", 4000, learning_rate=1.0), 6.9877e-4, rel_tol=1e-4)


def test_inverse_sqrt_is_noams_curve_with_another_peak():
    for step in (1, 2000, 4000, 16_000):
        ratio = rate("inverse_sqrt", step, learning_rate=1e-3) / rate("noam", step)
        assert math.isclose(ratio, rate("inverse_sqrt", 1) / rate("noam", 1))
    assert math.isclose(rate("inverse_sqrt", 4000, learning_rate=1e-3), 1e-3)
    assert math.isclose(rate("inverse_sqrt", 16_000, learning_rate=1e-3), 5e-4)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_linear_and_cosine_rise_then_fall_to_nothing(schedule):
    assert math.isclose(rate(schedule, 1000, learning_rate=1.0), 0.25)
    assert math.isclose(rate(schedule, 50_000, 0.5, learning_rate=1.0), 0.5)
    assert rate(schedule, 100_000, 1.0) == pytest.approx(0.0, abs=1e-12)


def test_constant_stays_and_no_warm_up_means_none():
    assert rate("constant", 99_000, 0.99, learning_rate=0.5) == 0.5
    config = TrainingConfig(schedule="constant", warmup_steps=0, learning_rate=0.5)
    assert learning_rate(config, 1, 0.0, 512) == 0.5
    noam = TrainingConfig(schedule="noam", warmup_steps=0, learning_rate=1.0)
    assert learning_rate(noam, 1, 0.0, 256) == 1 / 16


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_step_from_rise_to_fall_is_small_and_the_last_step_still_learns(schedule):
    config = TrainingConfig(schedule=schedule, warmup_steps=20, max_steps=100, learning_rate=1.0)
    rates = [learning_rate(config, step, (step - 1) / 100, 512) for step in range(1, 101)]
    assert max(abs(later - earlier) for earlier, later in pairwise(rates)) <= 1 / 20 + 1e-9
    assert 0.0 < rates[-1] < 0.02
    assert 0.8 <= max(rates) <= 1.0


@pytest.mark.parametrize("schedule", ["noam", "inverse_sqrt", "linear", "cosine", "constant"])
def test_warm_up_fits_the_time_given_however_slow_the_machine(schedule):
    config = TrainingConfig(
        schedule=schedule, warmup_steps=4000, max_minutes=10.0, learning_rate=1.0, warmup_share=0.2
    )
    peak = 4000**-0.5 * 512**-0.5 if schedule == "noam" else 1.0
    for n_steps in (50, 1000, 5000):  # made within the ten minutes
        rates = [
            learning_rate(config, step, (step - 1) / n_steps, 512, 600.0 * (step - 1) / n_steps)
            for step in range(1, n_steps + 1)
        ]
        risen = rates.index(max(rates)) / n_steps
        assert 0.15 <= risen <= 0.24
        assert 0.78 * peak <= max(rates) <= 1.001 * peak


@pytest.mark.parametrize("schedule", ["noam", "inverse_sqrt", "constant"])
@pytest.mark.parametrize(("factor", "taken"), [(4.0, 4), (400.0, 16)])
def test_larger_batches_have_the_rates_of_the_square_root_rule(schedule, factor, taken):
    """Step s is then as far in the data as step κ·s was, at √κ times its rate."""
    config = TrainingConfig(schedule=schedule, learning_rate=0.01, warmup_steps=160)
    scaled = scaled_to_batch(config, factor)
    assert scaled.warmup_steps == 160 / taken
    for step in (1, 5, 10, 40, 41, 300):
        expected = taken**0.5 * learning_rate(config, taken * step, 0.0, 512)
        assert learning_rate(scaled, step, 0.0, 512) == pytest.approx(expected)


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_rates_of_usual_and_smaller_batches_stay(factor):
    config = TrainingConfig(warmup_steps=0)
    assert scaled_to_batch(config, factor) is config
    assert scaled_to_batch(config, 4.0).warmup_steps == 0


def test_time_does_not_touch_runs_of_another_limit_or_fast_ones():
    config = TrainingConfig(warmup_steps=100, max_steps=50)
    assert learning_rate(config, 7, 0.1, 512, 5.0) == learning_rate(config, 7, 0.1, 512)
    fast = TrainingConfig(warmup_steps=100, max_minutes=1.0)
    steady = TrainingConfig(warmup_steps=100)
    for step in (10, 99, 100, 5000):
        assert learning_rate(fast, step, 0.0, 512, step / 1000) == learning_rate(
            steady, step, 0.0, 512
        )


def test_batches_grow_from_each_share_on():
    growth = ((0.5, 2), (0.75, 5))
    config = TrainingConfig(max_steps=10, accumulate=3, batch_growth=growth)
    shares = (0.0, 0.49, 0.5, 0.74, 0.75, 1.0)
    assert [batches_per_step(config, share) for share in shares] == [3, 3, 6, 6, 15, 15]
    assert batches_per_step(TrainingConfig(accumulate=3), 0.9) == 3


@pytest.mark.parametrize(
    ("growth", "limit", "message"),
    [
        (((0.5, 2),), 0, "batch_growth: needs to know where the run ends; give max_steps"),
        (((0.5, 2), (0.5, 4)), 9, r"shares must rise between 0 and 1, but 0\.5 follows 0\.5"),
        (((1.0, 2),), 9, r"but 1\.0 follows 0\.0"),
        (((0.5, 0),), 9, "factors must be at least 1, but one is 0"),
    ],
)
def test_growth_that_makes_no_sense_is_an_error(growth, limit, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(max_steps=limit, batch_growth=growth)


NEVER = ValidationConfig()


@pytest.mark.parametrize(
    ("limit", "half", "over"),
    [
        ({"max_steps": 10}, {"step": 5}, {"step": 10}),
        ({"max_tokens": 600}, {"tokens": 300}, {"tokens": 610}),
        ({"max_minutes": 0.5}, {"seconds": 15.0}, {"seconds": 30.0}),
        (
            {"max_minutes": 0.5},
            {"seconds": 8.0, "seconds_to_end": 7.0},
            {"seconds": 23.0, "seconds_to_end": 7.0},
        ),
    ],
)
def test_each_limit_has_its_share_and_its_reason(limit, half, over):
    config = TrainingConfig(**limit)
    assert share_done(config, TrainingState(**half), 0.0) == 0.5
    assert end_reason(config, NEVER, TrainingState(**half), 0.0) == ""
    assert share_done(config, TrainingState(**over), 0.0) == 1.0
    name, value = next(iter(limit.items()))
    assert end_reason(config, NEVER, TrainingState(**over), 0.0) == f"{name} = {value} is reached"


def test_a_limit_in_seconds_is_said_in_seconds():
    config = TrainingConfig(max_minutes=10 / 60)
    reason = end_reason(config, NEVER, TrainingState(seconds=10.0), 0.0)
    assert reason == "10 seconds of training are reached"


def test_epochs_count_with_their_fraction():
    config = TrainingConfig(max_epochs=4)
    assert share_done(config, TrainingState(), 3.5) == 0.875
    assert end_reason(config, NEVER, TrainingState(), 3.99) == ""
    assert end_reason(config, NEVER, TrainingState(), 4.0) == "max_epochs = 4 is reached"


def test_the_nearest_limit_decides_and_without_one_nothing_is_done():
    config = TrainingConfig(max_steps=10, max_tokens=1000)
    assert share_done(config, TrainingState(step=2, tokens=900), 0.0) == 0.9
    assert share_done(TrainingConfig(), TrainingState(step=99), 7.0) == 0.0


def test_patience_ends_after_validations_without_a_new_best():
    validation = ValidationConfig(metric="bleu", patience=2)
    state = TrainingState()
    outcomes = []
    for step, bleu in enumerate((1.0, 3.0, 3.0, 2.0, 1.0), start=1):
        state.step = step
        is_best = state.add_validation({"bleu": bleu}, validation)
        outcomes.append((is_best, bool(end_reason(TrainingConfig(), validation, state, 0.0))))
    assert outcomes == [(True, False), (True, False), (False, False), (False, True), (False, True)]
