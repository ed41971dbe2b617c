import pytest
import torch
from torch import nn

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.training.adam import ParameterGroup
from tformer_cli.training.config import TrainingConfig
from tformer_cli.training.muon import Muon, layer_matrices
from tformer_cli.training.optimizer import make_optimizer, optimizer_tensors, restore_optimizer
from tformer_cli.training.orthogonal import orthogonalized


def transformer(seed=1):
    torch.manual_seed(seed)
    shape = ModelConfig(d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=1)
    return Transformer(shape, vocab_size=20)


def put_gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("shape", [(12, 12), (12, 30), (30, 12)])
def test_equals_torchs_muon_iterated_to_the_end(shape):
    torch.manual_seed(1)
    ours = nn.Parameter(torch.randn(shape))
    theirs = nn.Parameter(ours.detach().clone())
    muon = Muon(
        [ParameterGroup(params=[ours], lr=0.02, weight_decay=0.1)],
        {ours: 1},
        betas=(0.9, 0.98),
        eps=1e-9,
        momentum=0.95,
    )
    reference = torch.optim.Muon(
        [theirs],
        lr=0.02,
        weight_decay=0.1,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
        ns_coefficients=(1.875, -1.25, 0.375),  # all singular values end at 1
        ns_steps=20,
    )
    for _ in range(4):
        ours.grad = torch.randn(shape)
        # torch's momentum is a mean where ours is a sum: normalizing removes the factor
        theirs.grad = ours.grad.clone()
        before = theirs.detach().clone()
        muon.step()
        reference.step()
        change = (theirs.detach() - before).abs().mean()
        assert (ours - theirs).abs().mean() < 0.2 * change
        theirs.data.copy_(ours)


def test_the_layers_matrices_are_found_and_nothing_else():
    model = transformer()
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = {names[parameter]: n_parts for parameter, n_parts in layer_matrices(model).items()}
    assert len(found) == 3 * 2 + 2 * 2
    assert {n for name, n in found.items() if name.endswith("in_projection.weight")} == {3}
    assert {n for name, n in found.items() if not name.endswith("in_projection.weight")} == {1}
    assert not any("embedding" in name or "norm" in name for name in found)


def test_parts_of_a_joined_projection_are_updated_each_by_itself():
    joined, apart = (nn.Parameter(torch.zeros(9, 3)) for _ in range(2))
    settings = {"betas": (0.9, 0.98), "eps": 1e-9, "momentum": 0.0}
    groups = [ParameterGroup(params=[joined], lr=0.1)]
    muon = Muon(groups, {joined: 3}, **settings)
    gradient = torch.randn(9, 3, generator=torch.Generator().manual_seed(1))
    joined.grad = gradient.clone()
    muon.step()
    for part, of_part in zip(apart.detach().chunk(3), gradient.chunk(3), strict=True):
        part.sub_(orthogonalized(of_part[None])[0], alpha=0.1 * 0.2 * 3**0.5)
    assert torch.allclose(joined, apart, atol=1e-6)


def test_all_but_the_layers_matrices_follow_adamw():
    model, other = transformer(), transformer()
    muon = make_optimizer(model, TrainingConfig(optimizer="muon", weight_decay=0.1))
    adamw = make_optimizer(other, TrainingConfig(optimizer="adamw", weight_decay=0.1))
    for seed in range(3):
        for network, optimizer in ((model, muon), (other, adamw)):
            put_gradients(network, seed)
            optimizer.step()
    matrices = layer_matrices(model)
    for parameter, of_adamw in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(parameter, of_adamw) == (parameter not in matrices)


def test_restored_state_goes_on_bit_for_bit():
    config = TrainingConfig(optimizer="muon")
    model = transformer()
    optimizer = make_optimizer(model, config)
    for seed in range(2):
        put_gradients(model, seed)
        optimizer.step()
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    tensors = {name: value.clone() for name, value in optimizer_tensors(optimizer, model).items()}
    other = transformer(seed=9)
    other.load_state_dict(saved)
    restored = make_optimizer(other, config)
    restore_optimizer(restored, other, tensors)
    for network, of_network in ((model, optimizer), (other, restored)):
        put_gradients(network, 7)
        of_network.step()
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_a_parameter_without_a_gradient_stays_and_gets_no_state():
    model = transformer()
    optimizer = make_optimizer(model, TrainingConfig(optimizer="muon"))
    put_gradients(model, 1)
    left_out = next(iter(layer_matrices(model)))
    left_out.grad = None
    before = left_out.detach().clone()
    optimizer.step()
    assert torch.equal(left_out, before)
    assert left_out not in optimizer.state


def test_momentum_without_muon_is_an_error():
    with pytest.raises(ValueError, match='momentum: needs optimizer = "muon"'):
        TrainingConfig(optimizer="adamw", momentum=0.9)
    assert TrainingConfig(optimizer="muon", momentum=0.9).momentum == 0.9
