import math

import pytest
import torch

from tformer_cli.heads.roles import role_of
from tformer_cli.inspect.heads.metrics import head_metrics


def uniform(n_rows, n_keys):
    return torch.full((1, n_rows, n_keys), 1 / n_keys)


def causal_uniform(n):
    mask = torch.ones(n, n).tril()
    return (mask / mask.sum(dim=-1, keepdim=True))[None]


def shifted(n, offset):
    weights = torch.zeros(1, n, n)
    rows = torch.arange(n)
    weights[0, rows, (rows + offset).clamp(0, n - 1)] = 1.0
    return weights


@pytest.mark.parametrize("n", [2, 7, 60])
def test_an_even_head_has_the_closed_form_values(n):
    metrics = head_metrics(uniform(n, n), "enc")[0]
    assert metrics["entropy"] == pytest.approx(math.log(n), abs=1e-6)
    assert metrics["entropy_norm"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["distance"] == pytest.approx((n * n - 1) / (3 * n), rel=1e-6)
    for name in ("confidence", "prev", "self", "next", "sink_eos"):
        assert metrics[name] == pytest.approx(1 / n, rel=1e-6)
    assert "sink_bos" not in metrics


def test_an_even_causal_head_has_entropy_ln_of_what_it_sees():
    n = 9
    metrics = head_metrics(causal_uniform(n), "dec")[0]
    assert metrics["entropy"] == pytest.approx(sum(math.log(i + 1) for i in range(n)) / n, abs=1e-6)
    assert metrics["entropy_norm"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["distance"] == pytest.approx(sum(i / 2 for i in range(n)) / n, abs=1e-6)
    assert metrics["next"] == 0.0
    assert metrics["sink_bos"] == pytest.approx(sum(1 / (i + 1) for i in range(n)) / n, abs=1e-6)
    assert "sink_eos" not in metrics


@pytest.mark.parametrize(
    ("offset", "name", "role"),
    [(-1, "prev", "previous"), (0, "self", "self"), (1, "next", "next")],
)
def test_a_positional_head_is_found_over_the_rows_that_have_the_position(offset, name, role):
    metrics = head_metrics(shifted(12, offset), "enc")[0]
    assert metrics[name] == 1.0
    assert metrics[f"{name}_argmax"] == 1.0
    assert role_of(metrics) == role
    assert metrics["entropy"] == 0.0
    assert math.copysign(1.0, metrics["entropy"]) == 1.0


@pytest.mark.parametrize("n", [16, 64, 256])
def test_rotated_sinusoids_make_a_head_of_the_previous_token(n):
    d_model = 64
    angles = torch.arange(n)[:, None] * 10000 ** (-torch.arange(0, d_model, 2) / d_model)
    keys = torch.cat([angles.sin(), angles.cos()], dim=1)
    queries = torch.cat([(angles - angles[1]).sin(), (angles - angles[1]).cos()], dim=1)
    weights = torch.softmax(64 * queries @ keys.T / math.sqrt(d_model), dim=-1)
    assert head_metrics(weights[None], "enc")[0]["prev"] >= 0.999


def test_confidence_leaves_the_end_of_sentence_out():
    weights = torch.tensor([[[0.3, 0.1, 0.6], [0.0, 0.2, 0.8]]])
    assert head_metrics(weights, "cross")[0]["confidence"] == pytest.approx(0.25)
    square = torch.tensor([[[1.0, 0.0], [0.4, 0.6]]])
    assert head_metrics(square, "dec")[0]["confidence"] == pytest.approx(0.8)


def test_cross_attention_has_no_positions_and_a_distance_in_shares():
    weights = torch.zeros(1, 3, 5)
    weights[0, [0, 1, 2], [0, 2, 4]] = 1.0
    metrics = head_metrics(weights, "cross")[0]
    assert metrics["distance"] == 0.0
    assert not {"prev", "self", "next"} & metrics.keys()
    assert head_metrics(weights.flip(2), "cross")[0]["distance"] == pytest.approx(2 / 3)
    assert metrics["sink_eos"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("kind", "absent"),
    [("enc", {"prev", "entropy_norm", "confidence"}), ("dec", {"prev", "next", "entropy_norm"})],
)
def test_what_is_not_defined_for_one_position_is_left_out(kind, absent):
    metrics = head_metrics(torch.ones(1, 1, 1), kind)[0]
    assert not absent & metrics.keys()
    assert all(math.isfinite(value) for value in metrics.values())


def test_heads_are_measured_each_by_itself():
    together = torch.cat([shifted(6, -1), uniform(6, 6)])
    assert head_metrics(together, "enc") == [
        *head_metrics(shifted(6, -1), "enc"),
        *head_metrics(uniform(6, 6), "enc"),
    ]


@pytest.mark.parametrize(("n_rows", "n_keys"), [(7, 7), (5, 11), (9, 3)])
def test_diagonality_is_1_along_the_diagonal_and_0_where_rows_do_not_differ(n_rows, n_keys):
    even = head_metrics(uniform(n_rows, n_keys), "cross")[0]
    assert even["diagonality"] == pytest.approx(0.0, abs=1e-9)
    one_key = torch.zeros(1, n_rows, n_keys)
    one_key[:, :, 1] = 1.0
    assert head_metrics(one_key, "cross")[0]["diagonality"] == 0.0
    square = torch.eye(n_rows)[None]
    assert head_metrics(square, "cross")[0]["diagonality"] == pytest.approx(1.0)
    assert head_metrics(square.flip(1), "cross")[0]["diagonality"] == pytest.approx(-1.0)
    mixed = head_metrics(0.6 * square + 0.4 / n_rows, "cross")[0]
    assert mixed["diagonality"] == pytest.approx(0.6)


def test_monotonicity_counts_the_steps_that_do_not_go_back():
    keys = torch.tensor([[0, 1, 1, 3], [3, 2, 1, 0], [0, 3, 1, 2]])
    weights = torch.nn.functional.one_hot(keys, 5).float()
    found = [metrics["monotonicity"] for metrics in head_metrics(weights, "cross")]
    assert found == pytest.approx([1.0, 0.0, 2 / 3])
    assert "monotonicity" not in head_metrics(weights, "enc")[0]
    assert "monotonicity" not in head_metrics(weights[:, :1], "cross")[0]
