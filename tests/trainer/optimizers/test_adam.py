import subprocess
import sys

import pytest
import torch
from torch import nn

from tformer_cli.trainer.optimizers.adam import Adam, ParameterGroup

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
        for one in (ours, theirs):
            put_gradients(one, step)
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
