import pytest
import torch

from tests.oracles import plain_metrics
from tformer_cli.heads.roles import METRICS
from tformer_cli.inspect.heads.metrics import batch_metric_sums, head_metrics

LENGTHS = [(1, 1), (2, 1), (1, 2), (7, 4), (3, 9), (12, 12), (5, 2)]
"""Source and target tokens of the sentences of a batch."""
N_HEADS, WIDEST = 3, 16


def padded(kind, sharpness):
    """(B, H, Q, K) weights as a padded model computes them: rows of padding hold numbers too."""
    generator = torch.Generator().manual_seed(5)
    shape = len(LENGTHS), N_HEADS, WIDEST, WIDEST
    scores = sharpness * torch.randn(shape, generator=generator)
    rows, keys = (
        torch.tensor(
            [{"enc": (s, s), "dec": (t, t), "cross": (t, s)}[kind][side] for s, t in LENGTHS]
        )
        for side in (0, 1)
    )
    visible = torch.arange(WIDEST) < keys[:, None, None, None]
    if kind == "dec":
        visible = torch.ones(WIDEST, WIDEST, dtype=torch.bool).tril().expand(shape)
    return scores.masked_fill(~visible, -torch.inf).softmax(dim=-1), rows, keys


@pytest.mark.parametrize("kind", ["enc", "dec", "cross"])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("eos", [True, False])
def test_a_batch_and_a_sentence_alone_are_measured_by_the_plain_formulas(kind, sharpness, eos):
    weights, rows, keys = padded(kind, sharpness)
    rare = torch.zeros(len(LENGTHS), WIDEST, dtype=torch.bool)
    rare[3, [0, 2]] = rare[5, 11] = True
    sums = batch_metric_sums(
        weights, rows, keys, kind, rare, has_eos=torch.tensor([eos] * len(LENGTHS))
    )
    assert list(sums) == [name for name in METRICS if name in sums]
    for place in range(len(LENGTHS)):
        alone = weights[place, :, : rows[place], : keys[place]]
        rare_here = rare[place].nonzero().flatten().tolist()
        expected = plain_metrics.metric_sums(alone, kind, rare_here, has_eos=eos)
        for head, own in enumerate(head_metrics(alone, kind, rare_here, has_eos=eos)):
            assert list(own) == list(expected)
            means = {name: (one.total[head] / one.n_rows).item() for name, one in expected.items()}
            assert own == pytest.approx(means, rel=1e-12, abs=1e-12)
        for name, (totals, n_rows) in sums.items():
            if name in expected:
                torch.testing.assert_close(
                    totals[place], expected[name].total, rtol=1e-12, atol=1e-12, msg=name
                )
                assert n_rows[place] == expected[name].n_rows
            else:
                assert n_rows[place] == 0
                assert (totals[place] == 0).all()
        assert set(expected) <= set(sums)


def test_without_frequencies_no_head_is_measured_by_rare_tokens():
    has_eos = torch.tensor([True] * len(LENGTHS))
    sums = batch_metric_sums(*padded("enc", 1.0), "enc", has_eos=has_eos)
    assert "rare_argmax" not in sums
