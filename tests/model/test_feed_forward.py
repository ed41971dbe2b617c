"""Feed-forward layers, norms, dropout and recurrent cells."""

import pytest
import torch
from torch.nn import functional

from tformer_cli.model.attention import Mask
from tformer_cli.model.feed_forward import FeedForward, gelu_tanh, swish
from tformer_cli.model.methods import ACTIVATIONS
from tformer_cli.model.norms import RMSNorm, make_norm
from tformer_cli.model.operations import Dropout, Spans, dropout, keep_mask
from tformer_cli.model.recurrence import Recurrence, cumulative

VALUES = torch.tensor([-3e38, -200.0, -100.0, -88.0, -3.0, -1e-6, 0.0, 1e-6, 2.0, 88.0, 3e38])


def test_gelu_by_tanh_is_torchs_with_and_without_gradients():
    exact = functional.gelu(VALUES.double(), approximate="tanh")
    assert torch.allclose(gelu_tanh(VALUES), functional.gelu(VALUES, approximate="tanh"))
    with torch.no_grad():
        found = gelu_tanh(VALUES)
    assert torch.allclose(found.double(), exact, rtol=1e-6, atol=1e-7)
    assert found.isfinite().all()


def test_swish_is_silu_with_and_without_gradients():
    exact = VALUES.double() * torch.sigmoid(VALUES.double())
    assert torch.allclose(swish(VALUES), functional.silu(VALUES))
    with torch.no_grad():
        found = swish(VALUES)
    assert torch.allclose(found.double(), exact, rtol=1e-6, atol=1e-36)
    assert found.isfinite().all()
    assert torch.isnan(swish(torch.tensor([torch.nan]))).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_layer_is_two_products_and_an_activation(activation):
    torch.manual_seed(0)
    layer = FeedForward(8, 24, activation=activation).eval()
    hidden = torch.randn(2, 5, 8)
    theirs = {
        "relu": torch.nn.ReLU(),
        "gelu": torch.nn.GELU(),
        "gelu-tanh": torch.nn.GELU("tanh"),
        "swish": torch.nn.SiLU(),
    }[activation]
    expected = torch.nn.Sequential(layer.inner, theirs, layer.outer)(hidden)
    assert torch.allclose(layer(hidden), expected, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(layer(hidden), expected, atol=1e-6)


@pytest.mark.parametrize("activation", ["gelu-tanh", "swish"])
def test_gated_layers_are_those_of_t5_and_llama_with_their_gradients(activation):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    torch.manual_seed(0)
    if activation == "swish":
        config = llama.LlamaConfig(hidden_size=12, num_attention_heads=2, intermediate_size=30)
        theirs = llama.LlamaMLP(config)
        gate, inner, outer = theirs.gate_proj, theirs.up_proj, theirs.down_proj
    else:
        config = t5.T5Config(d_model=12, d_ff=30, feed_forward_proj="gated-gelu", dropout_rate=0.0)
        theirs = t5.T5DenseGatedActDense(config)
        gate, inner, outer = theirs.wi_0, theirs.wi_1, theirs.wo
    ours = FeedForward(12, 30, activation=activation, gated=True, bias=False)
    pairs = [(ours.gate, gate), (ours.inner, inner), (ours.outer, outer)]
    for our, their in pairs:
        our.weight.data.copy_(their.weight.data.normal_(std=0.5))
    hidden = torch.randn(2, 5, 12)
    expected = theirs(hidden)
    assert torch.allclose(ours(hidden), expected, atol=1e-5)
    with torch.inference_mode():  # which computes with other formulas
        assert torch.allclose(ours(hidden), expected, atol=1e-5)
    for result in (ours(hidden), expected):
        result.square().sum().backward()
    for our, their in pairs:
        assert torch.allclose(our.weight.grad, their.weight.grad, rtol=1e-4, atol=1e-4)
    right, ours.activation = ours.activation, functional.gelu
    assert not torch.allclose(ours(hidden), expected, atol=1e-4)
    ours.activation, ours.gate, ours.inner = right, ours.inner, ours.gate
    assert not torch.allclose(ours(hidden), expected, atol=1e-2)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


def results(norm, hidden):
    """The output, and the gradients of the input and of the weights."""
    hidden = hidden.clone().requires_grad_()
    output = norm(hidden)
    (output * random(*output.shape)).sum().backward()
    return output, hidden.grad, norm.weight.grad


@pytest.mark.parametrize("size", [1.0, 1e-3])  # of small numbers epsilon counts
@pytest.mark.parametrize(
    "name", ["llama.modeling_llama.LlamaRMSNorm", "t5.modeling_t5.T5LayerNorm"]
)
def test_rms_norms_are_those_of_llama_and_t5_with_their_gradients(name, size):
    module, _, kind = name.rpartition(".")
    modeling = pytest.importorskip(f"transformers.models.{module}")
    theirs, ours = getattr(modeling, kind)(24, eps=1e-6), make_norm("rms", 24, 1e-6, bias=True)
    assert isinstance(ours, RMSNorm)
    with torch.no_grad():
        for norm in (theirs, ours):
            norm.weight.copy_(random(24))
    hidden = size * random(3, 5, 24) + 0.3 * size
    expected = results(theirs, hidden)
    for result, wanted in zip(results(ours, hidden), expected, strict=True):
        assert torch.allclose(result, wanted, rtol=1e-4, atol=1e-6)
    wrong = make_norm("rms", 24, 1e-5, bias=True)
    wrong.weight = ours.weight
    assert torch.allclose(wrong(hidden), expected[0], atol=1e-3) == (size == 1.0)
    centered = make_norm("layer", 24, 1e-6, bias=False)
    centered.weight = ours.weight
    assert not torch.allclose(centered(hidden), expected[0], atol=1e-2)


def test_an_rms_norm_has_no_bias():
    assert [name for name, _ in make_norm("rms", 8, 1e-6, bias=True).named_parameters()] == [
        "weight"
    ]
    assert make_norm("layer", 8, 1e-6, bias=True).bias is not None


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
