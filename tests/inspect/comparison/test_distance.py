import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from tformer_cli.inspect.comparison.matching import LARGEST, HeadDistances, divergence_sums


def maps(n_heads, n_rows=5, n_keys=7, seed=1, is_causal=False):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(n_heads, n_rows, n_keys, generator=generator)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(n_rows, n_keys).tril().bool(), -math.inf)
    return scores.softmax(dim=-1)


def by_definition(first, second):
    """½ KL(p ‖ m) + ½ KL(q ‖ m), by torch's own divergence."""
    mixture = ((first + second) / 2).clamp(min=1e-300).log()
    return sum(functional.kl_div(mixture, part, reduction="sum") / 2 for part in (first, second))


@pytest.mark.parametrize("is_causal", [False, True])
def test_it_is_the_divergence_of_the_definition(is_causal):
    n_keys = 5 if is_causal else 7
    first = maps(3, n_keys=n_keys, is_causal=is_causal)
    second = maps(4, n_keys=n_keys, seed=2, is_causal=is_causal)
    sums = divergence_sums(first, second)
    assert sums.shape == (3, 4)
    for g in range(3):
        for h in range(4):
            expected = by_definition(first[g].double(), second[h].double())
            assert sums[g, h].item() == pytest.approx(expected.item(), rel=1e-9)
    assert torch.allclose(divergence_sums(second, first), sums.T, atol=1e-12)


def test_equal_maps_are_exactly_0_apart_and_disjoint_ones_ln_2():
    same = maps(6)
    assert divergence_sums(same, same).diagonal().tolist() == [0.0] * 6
    first, second = torch.zeros(1, 3, 4), torch.zeros(1, 3, 4)
    first[..., 0], second[..., 2] = 1.0, 1.0
    assert divergence_sums(first, second).item() == pytest.approx(3 * math.log(2), rel=1e-12)
    assert math.log(2) == LARGEST


def test_one_key_against_two_is_the_closed_form():
    one, two = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.5, 0.5]]])
    # m = (3/4, 1/4): ½ ln(4/3) + ½ (½ ln(2/3) + ½ ln 2)
    expected = 0.5 * math.log(4 / 3) + 0.25 * (math.log(2 / 3) + math.log(2))
    assert divergence_sums(one, two).item() == pytest.approx(expected, rel=1e-12)


def test_means_are_over_the_rows_of_all_sentences(make_record):
    records = [make_record(), make_record(source=("a", "b"), target=("x", "y", "z"))]
    layout = layout_of(records[0])
    distances = HeadDistances(layout, layout, ["enc", "cross"])
    for record in records:
        distances.add(record.captured, record.captured)
    for kind in ("enc", "cross"):
        pieces = [torch.cat(record.captured.layers(kind)) for record in records]
        total = sum(divergence_sums(weights, weights) for weights in pieces)
        expected = total / sum(weights.shape[1] for weights in pieces)
        assert np.allclose(distances.means(kind), expected.numpy(), atol=1e-15)


def layout_of(record):
    from tests.inspect.conftest import LAYOUT

    assert set(record.heads) == set(LAYOUT)
    return LAYOUT
