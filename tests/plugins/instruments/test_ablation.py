import pytest
import torch

from tests.model.conftest import small_model
from tformer_cli.heads.gates import heads_off, keep_only, set_gates
from tformer_cli.heads.names import HeadId, attentions, head_layout
from tformer_cli.plugins.instruments.ablation import (
    importance_sums,
    layer_normalized,
    losses_along,
    losses_without_each,
    prune_heads,
    sentence_losses,
)
from tformer_cli.text.batching import collate

VALUELESS = HeadId("cross", 1, 2)


def made_batch():
    generator = torch.Generator().manual_seed(1)

    def ids(n_tokens):
        return torch.randint(4, 50, (n_tokens,), generator=generator).tolist()

    return collate([ids(n) for n in (7, 5, 3)], [ids(n) for n in (4, 6, 9)])


@pytest.fixture
def model(one_thread):
    """A model one of whose heads has no values: W_V and its bias are 0."""
    model = small_model().requires_grad_(False)
    layer = model.decoder.layers[VALUELESS.layer].cross_attention
    rows = slice(2 * 32 + 8 * VALUELESS.head, 2 * 32 + 8 * VALUELESS.head + 8)
    layer.in_projection.weight[rows] = 0.0
    layer.in_projection.bias[rows] = 0.0
    return model


def one_at_a_time(model, batch, heads):
    losses = []
    for head in heads:
        with heads_off(model, [head]), torch.inference_mode():
            losses.append(sentence_losses(model, batch))
    return torch.stack(losses)


def no_gates(model):
    return all(attention.gate is None for _, _, attention in attentions(model))


@pytest.mark.parametrize(
    ("largest_positions", "changes"),
    [(1, {}), (100, {}), (1 << 20, {}), (100, {"norm": "pre"}), (100, {"decoder_cell": "ssru"})],
)
def test_all_heads_together_are_as_one_at_a_time(one_thread, changes, largest_positions):
    model, batch = small_model(**changes), made_batch()
    heads = list(head_layout(model))[::-1]
    whole, without = losses_without_each(model, batch, heads, largest_positions)
    with torch.inference_mode():
        assert torch.allclose(whole, sentence_losses(model, batch), rtol=1e-6, atol=0)
    expected = one_at_a_time(model, batch, heads)
    assert ((without - expected).abs() / expected).max() <= 1e-6
    assert (without - whole).abs().min(dim=1).values.min() > 1e-5
    assert no_gates(model)


def test_a_head_without_values_is_worth_exactly_nothing(model):
    heads, batch = list(head_layout(model)), made_batch()
    whole, without = losses_without_each(model, batch, heads)
    place = heads.index(VALUELESS)
    assert torch.equal(without[place], whole)
    for granularity in ("sentence", "token"):
        importance = importance_sums(model, batch, granularity)
        assert importance[VALUELESS] == 0.0
        assert layer_normalized(importance)[VALUELESS] == 0.0
        assert min(v for head, v in importance.items() if head != VALUELESS) > 0.0


def test_importance_is_the_finite_difference_of_each_gate():
    model, batch, step = small_model().double().requires_grad_(False), made_batch(), 1e-5
    by_sentence = importance_sums(model, batch, "sentence")
    by_token = importance_sums(model, batch, "token")
    for head in (HeadId("enc", 0, 3), HeadId("dec", 1, 0), HeadId("cross", 2, 1)):
        losses = []
        for factor in (1 + step, 1 - step):
            gate = torch.ones(4, 1, 1, dtype=torch.float64)
            gate[head.head] = factor
            with set_gates(model, {(head.kind, head.layer): gate}), torch.inference_mode():
                losses.append(sentence_losses(model, batch))
        expected = ((losses[0] - losses[1]) / (2 * step)).abs().sum().item()
        assert by_sentence[head] == pytest.approx(expected, rel=1e-6)
        assert by_token[head] > by_sentence[head]
    norms = layer_normalized(by_sentence)
    assert sum(norms[HeadId("enc", 0, h)] ** 2 for h in range(4)) == pytest.approx(1.0)


def test_the_curve_is_the_loss_with_the_first_k_heads_off(model):
    batch, order = made_batch(), list(head_layout(model))[3:24:4]
    losses = losses_along(model, batch, order)
    assert len(losses) == len(order) + 1
    for k in range(len(order) + 1):
        with heads_off(model, order[:k]), torch.inference_mode():
            assert torch.equal(losses[k], sentence_losses(model, batch))


def test_gates_come_off_even_after_an_error(model):
    with pytest.raises(RuntimeError), heads_off(model, [VALUELESS]):
        raise RuntimeError
    assert no_gates(model)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bias": False},
        {"positions": "relative"},
        {"positions": "alibi"},
        {"positions": "segments"},
        {"similarity": "cosine"},
        {"similarity": "additive"},
        {"n_key_heads": 2, "similarity": "cosine"},
        {"d_head": 6, "positions": "relative", "tied_embeddings": "inputs"},
    ],
    ids=str,
)
def test_a_pruned_model_equals_the_gated_one_even_when_pruned_twice(one_thread, changes):
    model, batch = small_model(**changes), made_batch()
    heads = list(head_layout(model))
    first, second = heads[:5], heads[9:13] + heads[20:28]
    pruned = prune_heads(model, first)
    names = [head for head in heads if head not in first]
    again = prune_heads(
        pruned, [h for h, old in zip(head_layout(pruned), names, strict=True) if old in second]
    )
    assert again.config.layer_heads == ((0, 3), (1, 3, 4), (0, 0, 4))
    with heads_off(model, first + second), torch.inference_mode():
        expected = sentence_losses(model, batch)
    with torch.inference_mode():
        assert torch.allclose(sentence_losses(again, batch), expected, rtol=1e-5)
    whole, without = losses_without_each(again, batch, list(head_layout(again)))
    assert torch.allclose(whole, expected, rtol=1e-5)
    assert without.isfinite().all()
    importance_sums(again, batch, "token")


def test_heads_beside_a_recurrent_unit_are_pruned(one_thread):
    model, batch = small_model(decoder_cell="ssru", output_bias=True), made_batch()
    heads = list(head_layout(model))
    removed = [heads[0], heads[-1]]
    pruned = prune_heads(model, removed)
    assert pruned.config.decoder_heads == ()
    with heads_off(model, removed), torch.inference_mode():
        expected = sentence_losses(model, batch)
    with torch.inference_mode():
        assert torch.allclose(sentence_losses(pruned, batch), expected, rtol=1e-5)


def test_keeping_some_heads_switches_off_the_rest(model):
    batch, kept = made_batch(), [HeadId("cross", 0, 0), HeadId("enc", 1, 1)]
    others = [head for head in head_layout(model) if head not in kept]
    with heads_off(model, others), torch.inference_mode():
        expected = sentence_losses(model, batch)
    keep_only(model, kept)
    with torch.inference_mode():
        assert torch.equal(sentence_losses(model, batch), expected)
