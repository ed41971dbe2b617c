import numpy as np
import pytest
import torch
from torch import nn

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.optimizers import muon
from tformer_cli.trainer.optimizers.adam import Adam, ParameterGroup
from tformer_cli.trainer.optimizers.muon import (
    COEFFICIENTS,
    CUSHION,
    SMALLEST,
    Muon,
    layer_matrices,
    orthogonalize_matrices,
)
from tformer_cli.trainer.optimizers.optimizer import (
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
)


def transformer(seed=1, **changes):
    torch.manual_seed(seed)
    shape = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
    return Transformer(ModelConfig(**shape | changes), vocab_size=20)


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
    counts = {names[parameter]: n_parts for parameter, n_parts in layer_matrices(model).items()}
    assert len(counts) == 3 * 2 + 2 * 2
    assert {n for name, n in counts.items() if name.endswith("in_projection.weight")} == {3}
    assert {n for name, n in counts.items() if not name.endswith("in_projection.weight")} == {1}
    assert not any("embedding" in name or "norm" in name for name in counts)


def test_heads_that_share_keys_are_maps_of_their_own():
    model = transformer(n_heads=4, n_key_heads=2, gated=True)
    counts = layer_matrices(model)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        weight = layer.self_attention.in_projection.weight
        assert (len(weight), counts[weight]) == (32, 4)  # 16 rows of W_Q, 8 of W_K, 8 of W_V
        assert counts[layer.feed_forward.gate.weight] == 1
    assert len(layer_matrices(transformer(projections=False))) == 2 * 2


def test_parts_of_a_joined_projection_are_updated_each_by_itself():
    joined, apart = (nn.Parameter(torch.zeros(9, 3)) for _ in range(2))
    settings = {"betas": (0.9, 0.98), "eps": 1e-9, "momentum": 0.0}
    groups = [ParameterGroup(params=[joined], lr=0.1)]
    muon = Muon(groups, {joined: 3}, **settings)
    gradient = torch.randn(9, 3, generator=torch.Generator().manual_seed(1))
    joined.grad = gradient.clone()
    muon.step()
    for part, of_part in zip(apart.detach().chunk(3), gradient.chunk(3), strict=True):
        part.sub_(orthogonalize_matrices(of_part[None])[0], alpha=0.1 * 0.2 * 3**0.5)
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


def test_normuon_is_the_algorithm_of_its_paper():
    joined = nn.Parameter(random(18, 4).clone())
    weights = joined.detach().clone()
    settings = {"betas": (0.9, 0.98), "eps": 1e-9, "momentum": 0.9}
    groups = [ParameterGroup(params=[joined], lr=0.1, weight_decay=0.5)]
    optimizer = Muon(groups, {joined: 3}, levels_rows=True, **settings)
    momentum, mean_square = torch.zeros(18, 4), torch.zeros(18)
    for step in range(5):
        generator = torch.Generator().manual_seed(step)
        gradient = torch.randn(18, 4, generator=generator) * torch.arange(1, 19)[:, None]
        joined.grad = gradient.clone()
        optimizer.step()
        momentum = 0.9 * momentum + gradient
        weights *= 1 - 0.1 * 0.5
        for first in (0, 6, 12):  # three maps that share a parameter
            part = slice(first, first + 6)
            muon_update = orthogonalize_matrices((gradient + 0.9 * momentum)[None, part])[0]
            mean_square[part] = 0.95 * mean_square[part] + 0.05 * muon_update.square().mean(dim=1)
            leveled = muon_update / mean_square[part].sqrt()[:, None]
            leveled *= muon_update.norm() / leveled.norm()
            weights[part] -= 0.1 * 0.2 * 6**0.5 * leveled
        assert torch.allclose(joined, weights, atol=1e-5)
    assert optimizer.state[joined]["row_square"].shape == (3, 6)


def test_normuons_first_update_has_rows_of_one_length_and_muons_norm():
    updates = {}
    for levels_rows in (False, True):
        weight = nn.Parameter(torch.zeros(24, 8))
        weight.grad = random(24, 8) * torch.arange(24)[:, None]  # the first row has no gradient
        optimizer = Muon(
            [ParameterGroup(params=[weight], lr=1.0)], {weight: 1}, levels_rows=levels_rows,
            betas=(0.9, 0.98), eps=1e-9, momentum=0.9,
        )  # fmt: skip
        optimizer.step()
        updates[levels_rows] = weight.detach()
    lengths = updates[True].norm(dim=1)
    assert torch.allclose(lengths[1:], lengths[1].expand(23), rtol=1e-5)
    assert lengths[0] == 0.0
    assert torch.allclose(updates[True].norm(), updates[False].norm())
    assert updates[False].norm(dim=1)[1:].std() > 0.1 * updates[False].norm(dim=1).mean()


def test_normuon_leaves_a_matrix_without_gradients_as_it_is():
    weight = nn.Parameter(random(6, 4).clone())
    before = weight.detach().clone()
    weight.grad = torch.zeros(6, 4)  # as of W₁ in the first step where W₂ begins at 0
    optimizer = Muon(
        [ParameterGroup(params=[weight], lr=1.0)], {weight: 1}, levels_rows=True,
        betas=(0.9, 0.98), eps=1e-9, momentum=0.9,
    )  # fmt: skip
    optimizer.step()
    assert torch.equal(weight, before)


@pytest.mark.parametrize("optimizer", ["muon", "normuon", "adamw"])
def test_cautious_decay_falls_where_the_update_makes_a_weight_smaller(optimizer):
    rate, decay, weights = 0.1, 0.25, {}
    for name, changes in {
        "none": {}, "all": {"weight_decay": decay},
        "cautious": {"weight_decay": decay, "cautious_decay": True},
    }.items():  # fmt: skip
        model = transformer()
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        config = TrainingConfig(optimizer=optimizer, learning_rate=rate, **changes)
        put_gradients(model, 3)
        make_optimizer(model, config).step()
        weights[name] = {name: weight.detach() for name, weight in model.named_parameters()}
    for name, weight in before.items():
        update = weight - weights["none"][name]  # what is subtracted
        decayed = rate * decay * weight if weight.dim() > 1 else torch.zeros_like(weight)
        expected = weights["none"][name] - torch.where(weight * update > 0.0, decayed, 0.0)
        assert torch.allclose(weights["cautious"][name], expected, atol=1e-6)
        assert torch.allclose(weights["all"][name], weights["none"][name] - decayed, atol=1e-6)
        share = (weight * update > 0.0).float().mean().item()
        assert weight.dim() == 1 or 0.3 < share < 0.7


def test_cautious_decay_has_the_sign_of_an_update_that_is_lost_in_rounding():
    weight = torch.tensor([1.0, 1.0, -1.0, -1.0])
    weight.grad = torch.tensor([1.0, -1.0, 1.0, -1.0])
    group = ParameterGroup(params=[weight], lr=1e-9, weight_decay=1e8)
    Adam([group], betas=(0.9, 0.98), eps=1e-9, is_cautious=True).step()
    assert weight.tolist() == pytest.approx([0.9, 1.0, -1.0, -0.9])


@pytest.mark.parametrize("optimizer", ["muon", "normuon"])
def test_restored_state_goes_on_bit_for_bit(optimizer):
    config = TrainingConfig(optimizer=optimizer, weight_decay=0.1, cautious_decay=True)
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
    with pytest.raises(ValueError, match='momentum: needs optimizer = "muon" or "normuon"'):
        TrainingConfig(optimizer="adamw", momentum=0.9)
    for optimizer in ("muon", "normuon"):
        assert TrainingConfig(optimizer=optimizer, momentum=0.9).momentum == 0.9


def test_cautious_decay_without_a_decay_is_an_error():
    with pytest.raises(ValueError, match="cautious_decay: needs weight_decay above 0; set it"):
        TrainingConfig(optimizer="muon", cautious_decay=True)
    with pytest.raises(ValueError, match='weight_decay: needs optimizer = "adamw", "muon" or "no'):
        TrainingConfig(weight_decay=0.1, cautious_decay=True)


SHAPES = [(8, 8), (8, 24), (24, 8), (20, 28)]
JORDAN = (3.4445, -4.7750, 2.0315)
LARGEST_ERROR = 0.182


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def with_singular_values(values, n_columns):
    """A matrix (R, C) with chosen singular values."""
    left, _ = torch.linalg.qr(random(len(values), len(values)).double())
    right, _ = torch.linalg.qr(random(n_columns, len(values)).double())
    return (left * values) @ right.mT


def rotate_result(matrices, result):
    """The result in the matrices' singular vectors: diagonal if it has the same ones."""
    u, _, v = torch.linalg.svd(matrices.double(), full_matrices=False)
    return u.mT @ result.double() @ v.mT


def polynomial(values, coefficients):
    a, b, c = coefficients
    return a * values + b * values**3 + c * values**5


@pytest.mark.parametrize("shape", SHAPES)
def test_keeps_singular_vectors_and_brings_singular_values_near_1(shape):
    matrices = random(3, *shape)
    product = rotate_result(matrices, orthogonalize_matrices(matrices))
    values = product.diagonal(dim1=1, dim2=2)
    assert (product - torch.diag_embed(values)).abs().max() < 1e-4
    assert values.min() > 0.8
    assert values.max() < 1.2


def test_each_polynomial_is_the_best_of_its_kind():
    """Chebyshev: the error of the best quintic x·q(x²) has its largest size at 4 places, in turns.

    So no other a, b, c come nearer to 1 on [l, u].
    """
    low, high = SMALLEST, 1.0
    for coefficients in COEFFICIENTS:
        x = torch.linspace(low, high, 400_001, dtype=torch.float64)
        error = polynomial(x, coefficients) - 1.0
        inner = error[1:-1]
        is_turn = (inner - error[:-2]) * (error[2:] - inner) < 0.0
        extremes = torch.cat([error[:1], inner[is_turn], error[-1:]])
        largest = error.abs().max()
        expected = largest * torch.tensor([-1.0, 1.0, -1.0, 1.0], dtype=torch.float64)
        assert torch.allclose(extremes, expected, atol=1e-5)
        low, high = 1.0 - float(largest), CUSHION * (1.0 + float(largest))
    assert largest < LARGEST_ERROR, "how near to 1 they come together"


@pytest.mark.parametrize("n_columns", [64, 200])
def test_the_spectrum_of_a_momentum_ends_nearer_1_than_by_jordans_five_iterations(n_columns):
    # quantiles of singular values over the Frobenius norm, after 500 steps on Multi30k
    quantiles = [0.01, 0.05, 0.1, 0.25, 0.5, 0.9, 1.0]
    logs = np.log([0.00028, 0.0018, 0.0038, 0.0106, 0.0234, 0.09, 0.6])
    values = torch.from_numpy(np.exp(np.interp(np.linspace(0.01, 1.0, 64), quantiles, logs)))
    matrix = with_singular_values(values, n_columns)
    ours = torch.linalg.svdvals(orthogonalize_matrices(matrix[None].float())[0].double())
    theirs = values / values.norm()
    for _ in range(5):
        theirs = polynomial(theirs, JORDAN)
    assert (1.0 - ours).abs().mean() < 0.85 * (1.0 - theirs).abs().mean()
    assert (1.0 - ours).square().mean() < 0.9 * (1.0 - theirs).square().mean()
    expected = values / (CUSHION * values.pow(4).sum().sqrt()).sqrt()
    for coefficients in COEFFICIENTS:
        expected = polynomial(expected, coefficients)
    assert torch.allclose(ours.sort().values, expected.sort().values, atol=1e-3)


@pytest.mark.parametrize("n_columns", [256, 400])
def test_bfloat16_stays_in_bounds_where_few_entries_are_large(n_columns):
    matrices = 1e-3 * random(3, 256, n_columns)
    matrices[:, :4, :4] += random(3, 4, 4)
    matrices[:, 7, 9] = torch.tensor([1.0, 10.0, 100.0])
    values = torch.linalg.svdvals(orthogonalize_matrices(matrices, torch.bfloat16))
    assert values.max() < 1.0 + LARGEST_ERROR + 0.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_columns", [32, 96])
@pytest.mark.parametrize("rank", [1, 5, 32])
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
def test_ranks_scales_and_precisions_do_not_make_it_run_away(rank, n_columns, dtype, scale):
    values = torch.zeros(32).double()
    values[:rank] = scale
    matrix = with_singular_values(values, n_columns)[None].float()
    spectrum = rotate_result(matrix, orthogonalize_matrices(matrix, dtype)).diagonal(
        dim1=1, dim2=2
    )[0]
    assert spectrum[:rank].min() > 0.8
    assert spectrum.abs().max() < 1.25
    if dtype == torch.float32 and rank < 32:
        assert spectrum[rank:].abs().max() < 0.01, "directions that are not there stay out"


@pytest.mark.parametrize("shape", [(16, 48), (48, 16), (16, 24)])
def test_a_wide_matrix_is_the_same_by_both_ways(shape, monkeypatch):
    matrices, calls = random(2, *shape), []
    quick = orthogonalize_matrices(matrices)
    product = muon._product
    monkeypatch.setattr(muon, "_product", lambda gram: calls.append(1) or product(gram))
    assert torch.equal(orthogonalize_matrices(matrices), quick)
    assert calls == [1]
    monkeypatch.setattr(muon, "WIDE", 100.0)
    assert torch.allclose(orthogonalize_matrices(matrices), quick, atol=1e-4)
    orthogonalize_matrices(matrices, torch.bfloat16)
    assert calls == [1]


def test_a_matrix_of_zeros_stays_one():
    for shape in SHAPES:
        assert torch.equal(orthogonalize_matrices(torch.zeros(1, *shape)), torch.zeros(1, *shape))


def test_matrices_beside_each_other_do_not_matter():
    matrices = random(5, 16, 32)
    assert torch.allclose(
        orthogonalize_matrices(matrices)[3:4], orthogonalize_matrices(matrices[3:4]), atol=1e-6
    )
