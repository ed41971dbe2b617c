import pytest
import torch

from tformer_cli.model.attention import Mask
from tformer_cli.model.operations import Spans
from tformer_cli.model.recurrence import Recurrence, cumulative


def loop(gate, new):
    state, states = torch.zeros_like(new[:, 0]), []
    for position in range(new.shape[1]):
        state = gate[:, position] * state + new[:, position]
        states.append(state)
    return torch.stack(states, dim=1)


@pytest.mark.parametrize("n_positions", [2, 3, 8, 37])
def test_all_positions_at_once_are_the_loop_with_its_gradients(n_positions):
    torch.manual_seed(0)
    inputs = [
        torch.rand(3, n_positions, 5, dtype=torch.float64, requires_grad=True),
        torch.randn(3, n_positions, 5, dtype=torch.float64, requires_grad=True),
    ]
    together, one_by_one = cumulative(*inputs, n_positions), loop(*inputs)
    assert torch.allclose(together, one_by_one, atol=1e-12)
    for found, expected in zip(
        torch.autograd.grad(together.square().sum(), inputs),
        torch.autograd.grad(one_by_one.square().sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(found, expected, atol=1e-12)


def test_later_positions_change_no_bit_of_earlier_ones():
    gate, new = torch.rand(2, 40, 6), torch.randn(2, 40, 6)
    whole = cumulative(gate, new, 40)
    for n_positions in (1, 5, 16, 31):
        part = cumulative(gate[:, :n_positions], new[:, :n_positions], n_positions)
        assert torch.equal(part, whole[:, :n_positions])


def test_sentences_that_lie_one_after_the_other_do_not_see_each_other():
    torch.manual_seed(0)
    cell = Recurrence(8)
    lengths = (5, 1, 3)
    sentences = [torch.randn(1, length, 8) for length in lengths]
    starts = torch.tensor([0, 5, 6, 9])
    positions = torch.cat([*(torch.arange(length) for length in lengths), torch.zeros(2).long()])
    rows = torch.cat([*sentences, torch.randn(1, 2, 8)], dim=1)  # the last two only fill up
    joined = cell(rows, Mask(spans=Spans(starts, starts, is_causal=True, positions=positions)))
    expected = torch.cat([cell(sentence) for sentence in sentences], dim=1)
    assert torch.allclose(joined[:, :9], expected, atol=1e-6)


def test_steps_are_what_all_positions_at_once_give():
    torch.manual_seed(0)
    cell, hidden, state = Recurrence(8), torch.randn(2, 9, 8), None
    whole = cell(hidden)
    for position in range(9):
        output, state = cell.step(hidden[:, position : position + 1], state)
        assert torch.allclose(output, whole[:, position : position + 1], atol=1e-6)


def test_gradients_equal_finite_differences():
    torch.manual_seed(0)
    cell = Recurrence(3).double()
    hidden = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(cell, (hidden,))


def test_in_bfloat16_the_state_keeps_its_digits():
    torch.manual_seed(0)
    cell, hidden = Recurrence(16), torch.randn(2, 30, 16)
    exact = cell(hidden)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = cell(hidden)
    assert rounded.dtype == torch.float32
    assert (rounded - exact).norm() / exact.norm() < 0.02
