""""""

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from torch.nn import functional

from tformer_cli.heads.names import HeadId, HeadLayout
from tformer_cli.inspect.capture.maps import AttentionMaps
from tformer_cli.plugins.instruments.comparison import (
    LARGEST,
    HeadDistances,
    default_matching,
    divergence_sums,
    match_heads,
    minimal_assignment,
)


def one_hot(*keys):
    """(H, 3, 4) heads that look at one key alone."""
    weights = np.zeros((len(keys), 3, 4), np.float32)
    for head, key in enumerate(keys):
        weights[head, :, key] = 1.0
    return weights


def maps(*layers):
    return AttentionMaps(
        source_ids=(1, 2, 3), target_input_ids=(1,), enc=layers, dec=(), cross=(), residuals={}
    )


def match_names(first, second, matching):
    layouts = [
        HeadLayout(tuple(len(layer) for layer in layers), (), ()) for layers in (first, second)
    ]
    distances = HeadDistances(*layouts, ["enc"])
    distances.add(maps(*first), maps(*second))
    return [
        (match.first and str(match.first), match.second and str(match.second), match.divergence)
        for match in match_heads(*layouts, distances, "enc", matching)
    ]


def test_heads_are_paired_by_where_they_look():
    pairs = match_names([one_hot(0, 1, 2)], [one_hot(2, 0, 1)], "layer")
    assert pairs == [
        ("enc.0.0", "enc.0.1", 0.0),
        ("enc.0.1", "enc.0.2", 0.0),
        ("enc.0.2", "enc.0.0", 0.0),
    ]


def test_across_layers_a_head_finds_its_counterpart_and_within_them_it_does_not():
    first, second = [one_hot(0, 1), one_hot(2, 3)], [one_hot(2, 1), one_hot(0, 3)]
    across = match_names(first, second, "kind")
    assert [pair[1] for pair in across] == ["enc.1.0", "enc.0.1", "enc.0.0", "enc.1.1"]
    assert [pair[2] for pair in across] == [0.0] * 4
    within = match_names(first, second, "layer")
    assert [pair[:2] for pair in within] == [
        (f"enc.{n}", f"enc.{n}") for n in ("0.0", "0.1", "1.0", "1.1")
    ]
    assert [pair[2] for pair in within] == pytest.approx([0.6931, 0.0, 0.6931, 0.0], abs=1e-4)


@pytest.mark.parametrize("matching", ["layer", "kind"])
def test_of_heads_that_look_alike_those_of_one_name_pair(matching):
    alike = [one_hot(1, 1, 1), one_hot(1, 1)]
    assert all(first == second for first, second, _ in match_names(alike, alike, matching))


def test_heads_without_a_counterpart_are_listed():
    fewer = match_names([one_hot(0, 1, 2)], [one_hot(2, 0)], "layer")
    assert fewer == [
        ("enc.0.0", "enc.0.1", 0.0),
        ("enc.0.1", None, None),
        ("enc.0.2", "enc.0.0", 0.0),
    ]
    more = match_names([one_hot(3)], [one_hot(2, 3), one_hot(0)], "kind")
    assert more == [("enc.0.0", "enc.0.1", 0.0), (None, "enc.0.0", None), (None, "enc.1.0", None)]


def test_a_moved_head_also_has_its_distance_from_its_namesake():
    layout = HeadLayout((2,), (), ())
    distances = HeadDistances(layout, layout, ["enc"])
    distances.add(maps(one_hot(0, 1)), maps(one_hot(1, 0)))
    match, _ = match_heads(layout, layout, distances, "enc", "layer")
    assert match.has_moved
    assert match.second == HeadId("enc", 0, 1)
    assert match.divergence_in_place == pytest.approx(0.6931, abs=1e-4)


def test_layers_are_kept_apart_where_both_models_have_as_many():
    layout = HeadLayout((4, 4), (4,), (4,))
    assert default_matching(layout, HeadLayout((2, 1), (0,), (3,))) == "layer"
    assert default_matching(layout, HeadLayout((4, 4, 4), (4,), (4,))) == "kind"


def maps_distance(n_heads, n_rows=5, n_keys=7, seed=1, is_causal=False):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(n_heads, n_rows, n_keys, generator=generator)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(n_rows, n_keys).tril().bool(), -math.inf)
    return scores.softmax(dim=-1).numpy()


def by_definition(first, second):
    """½ KL(p ‖ m) + ½ KL(q ‖ m), by torch's own divergence."""
    first, second = first.double(), second.double()
    mixture = ((first + second) / 2).clamp(min=1e-300).log()
    return sum(functional.kl_div(mixture, part, reduction="sum") / 2 for part in (first, second))


@pytest.mark.parametrize("is_causal", [False, True])
def test_it_is_the_divergence_of_the_definition(is_causal):
    n_keys = 5 if is_causal else 7
    first = maps_distance(3, n_keys=n_keys, is_causal=is_causal)
    second = maps_distance(4, n_keys=n_keys, seed=2, is_causal=is_causal)
    sums = divergence_sums(first, second)
    assert sums.shape == (3, 4)
    for g in range(3):
        for h in range(4):
            expected = by_definition(*map(torch.from_numpy, (first[g], second[h])))
            assert sums[g, h].item() == pytest.approx(expected.item(), rel=1e-9)
    assert np.allclose(divergence_sums(second, first), sums.T, atol=1e-12)


def test_equal_maps_are_exactly_0_apart_and_disjoint_ones_ln_2():
    same = maps_distance(6)
    assert divergence_sums(same, same).diagonal().tolist() == [0.0] * 6
    first, second = np.zeros((1, 3, 4)), np.zeros((1, 3, 4))
    first[..., 0], second[..., 2] = 1.0, 1.0
    assert divergence_sums(first, second).item() == pytest.approx(3 * math.log(2), rel=1e-12)
    assert math.log(2) == LARGEST


def test_one_key_against_two_is_the_closed_form():
    one_key, two_keys = np.array([[[1.0, 0.0]]]), np.array([[[0.5, 0.5]]])
    # m = (3/4, 1/4): ½ ln(4/3) + ½ (½ ln(2/3) + ½ ln 2)
    expected = 0.5 * math.log(4 / 3) + 0.25 * (math.log(2 / 3) + math.log(2))
    assert divergence_sums(one_key, two_keys).item() == pytest.approx(expected, rel=1e-12)


def test_means_are_over_the_rows_of_all_sentences(make_record):
    records = [make_record(), make_record(source=("a", "b"), target=("x", "y", "z"))]
    layout = layout_of(records[0])
    distances = HeadDistances(layout, layout, ["enc", "cross"])
    for record in records:
        distances.add(record.captured, record.captured)
    for kind in ("enc", "cross"):
        pieces = [np.concatenate(record.captured.layers(kind)) for record in records]
        total = sum(divergence_sums(weights, weights) for weights in pieces)
        expected = total / sum(weights.shape[1] for weights in pieces)
        assert np.allclose(distances.means(kind), expected, atol=1e-15)


def layout_of(record):
    from tests.inspect.conftest import LAYOUT

    assert set(record.heads) == set(LAYOUT)
    return LAYOUT


def cost_of(costs, pairs):
    return sum(costs[pair] for pair in pairs)


def least_of_all(costs):
    """The least cost of all assignments, one after the other."""
    if costs.shape[0] > costs.shape[1]:
        costs = costs.T
    rows = range(costs.shape[0])
    columns = permutations(range(costs.shape[1]), len(rows))
    return min(
        sum(costs[row, column] for row, column in zip(rows, p, strict=True)) for p in columns
    )


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (6, 6), (3, 6), (6, 3), (1, 5), (5, 1)])
@pytest.mark.parametrize("values", ["real", "few", "negative"])
def test_no_other_assignment_costs_less(shape, values):
    generator = np.random.default_rng([*shape, len(values)])
    for _ in range(20):
        costs = generator.random(shape)
        if values == "few":  # many ties
            costs = np.floor(3 * costs)
        elif values == "negative":
            costs = 1e3 * (costs - 0.5)
        pairs = minimal_assignment(costs)
        assert len(pairs) == min(shape)
        assert pairs == sorted(pairs)
        for side in zip(*pairs, strict=True):
            assert len(set(side)) == len(pairs)
        assert cost_of(costs, pairs) == pytest.approx(least_of_all(costs), abs=1e-9)


@pytest.mark.parametrize("shape", [(96, 96), (48, 96), (96, 48)])
def test_a_planted_optimum_is_found_where_not_all_can_be_tried(shape):
    generator = np.random.default_rng(7)
    n_pairs = min(shape)
    rows, columns = (generator.permutation(n)[:n_pairs] for n in shape)
    # Reduced costs are at least 0, and 0 for the planted pairs alone: by duality these are best.
    reduced = 0.01 + generator.random(shape)
    reduced[rows, columns] = 0.0
    offsets = generator.random(shape[0])[:, None] if shape[0] <= shape[1] else 0.0
    offsets = offsets + (generator.random(shape[1])[None] if shape[1] <= shape[0] else 0.0)
    expected = sorted(zip(rows.tolist(), columns.tolist(), strict=True))
    assert minimal_assignment(reduced + offsets) == expected


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_nobody_is_paired_with_nobody(shape):
    assert minimal_assignment(np.zeros(shape)) == []


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_costs_must_be_finite(wrong):
    with pytest.raises(ValueError, match="every cost must be finite"):
        minimal_assignment(np.array([[1.0, wrong], [0.0, 1.0]]))
