import torch

from tformer_cli.model.operations import Dropout, dropout, keep_mask


def test_the_rate_is_met():
    torch.manual_seed(0)
    for rate in (0.1, 0.3, 0.9):
        share = 1.0 - keep_mask(torch.Size((1000, 1001)), rate).float().mean().item()
        assert abs(share - rate) < 4 * (rate * (1 - rate) / 1_001_000) ** 0.5


def test_kept_values_are_scaled_so_that_the_mean_stays():
    torch.manual_seed(0)
    dropped = dropout(torch.ones(1000, 1000), 0.25)
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(4 / 3).item()}
    assert abs(dropped.mean().item() - 1.0) < 0.005


def test_neighboring_values_are_dropped_independently():
    torch.manual_seed(0)
    kept = keep_mask(torch.Size((400_000,)), 0.5).float() - 0.5
    for lag in (1, 2, 3, 4):
        correlation = (kept[:-lag] * kept[lag:]).mean().item() / 0.25
        assert abs(correlation) < 0.01


def test_the_same_generator_state_gives_the_same_mask():
    torch.manual_seed(5)
    first = keep_mask(torch.Size((7, 11)), 0.3)
    torch.manual_seed(5)
    assert torch.equal(first, keep_mask(torch.Size((7, 11)), 0.3))


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero():
    values = torch.randn(5, 5)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0).train()(values) is values


def test_gradients_flow_through_kept_values_alone():
    torch.manual_seed(0)
    values = torch.ones(100, requires_grad=True)
    result = dropout(values, 0.5)
    result.sum().backward()
    assert torch.equal(values.grad, result.detach())
