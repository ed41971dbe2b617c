import pytest
import torch
from torch import nn

from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.optimizers.optimizer import (
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
)


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
