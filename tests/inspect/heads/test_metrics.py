""""""

import math
import tracemalloc
from functools import cache

import numpy as np
import pytest
import torch

from tests.inspect.conftest import batch_of
from tests.oracles import plain_metrics
from tformer_cli.heads.names import KINDS, HeadId, HeadLayout
from tformer_cli.heads.roles import METRICS, role_of
from tformer_cli.inspect.capture.maps import AttentionMaps, CapturedBatch, TappedAttention
from tformer_cli.inspect.heads.metrics import HeadStatistics, batch_metric_sums, head_metrics


def uniform(n_rows, n_keys):
    return np.full((1, n_rows, n_keys), 1 / n_keys, np.float32)


def causal_uniform(n):
    mask = np.tri(n, dtype=np.float32)
    return (mask / mask.sum(axis=-1, keepdims=True))[None]


def shift_weights(n, offset):
    weights = np.zeros((1, n, n), np.float32)
    rows = np.arange(n)
    weights[0, rows, (rows + offset).clip(0, n - 1)] = 1.0
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
    metrics = head_metrics(shift_weights(12, offset), "enc")[0]
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
    assert head_metrics(weights.numpy()[None], "enc")[0]["prev"] >= 0.999


def test_confidence_leaves_the_end_of_sentence_out():
    weights = np.array([[[0.3, 0.1, 0.6], [0.0, 0.2, 0.8]]])
    assert head_metrics(weights, "cross")[0]["confidence"] == pytest.approx(0.25)
    square = np.array([[[1.0, 0.0], [0.4, 0.6]]])
    assert head_metrics(square, "dec")[0]["confidence"] == pytest.approx(0.8)


def test_cross_attention_has_no_positions_and_a_distance_in_shares():
    weights = np.zeros((1, 3, 5))
    weights[0, [0, 1, 2], [0, 2, 4]] = 1.0
    metrics = head_metrics(weights, "cross")[0]
    assert metrics["distance"] == 0.0
    assert not {"prev", "self", "next"} & metrics.keys()
    assert head_metrics(np.flip(weights, 2), "cross")[0]["distance"] == pytest.approx(2 / 3)
    assert metrics["sink_eos"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("kind", "absent"),
    [("enc", {"prev", "entropy_norm", "confidence"}), ("dec", {"prev", "next", "entropy_norm"})],
)
def test_what_is_not_defined_for_one_position_is_left_out(kind, absent):
    metrics = head_metrics(np.ones((1, 1, 1)), kind)[0]
    assert not absent & metrics.keys()
    assert all(math.isfinite(value) for value in metrics.values())


def test_heads_are_measured_each_by_itself():
    together = np.concatenate([shift_weights(6, -1), uniform(6, 6)])
    assert head_metrics(together, "enc") == [
        *head_metrics(shift_weights(6, -1), "enc"),
        *head_metrics(uniform(6, 6), "enc"),
    ]


@pytest.mark.parametrize(("n_rows", "n_keys"), [(7, 7), (5, 11), (9, 3)])
def test_diagonality_is_1_along_the_diagonal_and_0_where_rows_do_not_differ(n_rows, n_keys):
    even = head_metrics(uniform(n_rows, n_keys), "cross")[0]
    assert even["diagonality"] == pytest.approx(0.0, abs=1e-9)
    one_key = np.zeros((1, n_rows, n_keys))
    one_key[:, :, 1] = 1.0
    assert head_metrics(one_key, "cross")[0]["diagonality"] == 0.0
    square = np.eye(n_rows)[None]
    assert head_metrics(square, "cross")[0]["diagonality"] == pytest.approx(1.0)
    assert head_metrics(np.flip(square, 1), "cross")[0]["diagonality"] == pytest.approx(-1.0)
    mixed = head_metrics(0.6 * square + 0.4 / n_rows, "cross")[0]
    assert mixed["diagonality"] == pytest.approx(0.6)


def test_monotonicity_counts_the_steps_that_do_not_go_back():
    keys = torch.tensor([[0, 1, 1, 3], [3, 2, 1, 0], [0, 3, 1, 2]])
    weights = torch.nn.functional.one_hot(keys, 5).float().numpy()
    values = [metrics["monotonicity"] for metrics in head_metrics(weights, "cross")]
    assert values == pytest.approx([1.0, 0.0, 2 / 3])
    assert "monotonicity" not in head_metrics(weights, "enc")[0]
    assert "monotonicity" not in head_metrics(weights[:, :1], "cross")[0]


LENGTHS = [(1, 1), (2, 1), (1, 2), (7, 4), (3, 9), (12, 12), (5, 2)]
"""Source and target tokens of the sentences of a batch."""


N_HEADS, WIDEST = 3, 16


def pad_weights(kind, sharpness):
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
    weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    return weights.numpy(), rows.numpy(), keys.numpy()


@pytest.mark.parametrize("kind", ["enc", "dec", "cross"])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("eos", [True, False])
def test_a_batch_and_a_sentence_alone_are_measured_by_the_plain_formulas(kind, sharpness, eos):
    weights, rows, keys = pad_weights(kind, sharpness)
    rare = np.zeros((len(LENGTHS), WIDEST), dtype=bool)
    rare[3, [0, 2]] = rare[5, 11] = True
    sums = batch_metric_sums(
        weights, rows, keys, kind, rare, has_eos=np.array([eos] * len(LENGTHS))
    )
    assert list(sums) == [name for name in METRICS if name in sums]
    for place in range(len(LENGTHS)):
        alone = weights[place, :, : rows[place], : keys[place]]
        rare_here = rare[place].nonzero()[0].tolist()
        expected = plain_metrics.metric_sums(torch.from_numpy(alone), kind, rare_here, has_eos=eos)
        for head, own in enumerate(head_metrics(alone, kind, rare_here, has_eos=eos)):
            assert list(own) == list(expected)
            means = {
                name: (metric.total[head] / metric.n_rows).item()
                for name, metric in expected.items()
            }
            assert own == pytest.approx(means, rel=1e-12, abs=1e-12)
        for name, (totals, n_rows) in sums.items():
            if name in expected:
                np.testing.assert_allclose(
                    totals[place], expected[name].total, rtol=1e-12, atol=1e-12, err_msg=name
                )
                assert n_rows[place] == expected[name].n_rows
            else:
                assert n_rows[place] == 0
                assert (totals[place] == 0).all()
        assert set(expected) <= set(sums)


def test_without_frequencies_no_head_is_measured_by_rare_tokens():
    has_eos = np.array([True] * len(LENGTHS))
    sums = batch_metric_sums(*pad_weights("enc", 1.0), "enc", has_eos=has_eos)
    assert "rare_argmax" not in sums


LAYOUT = HeadLayout((2, 3), (2,), (2,))


LENGTHS_STATISTICS = [(1, 1), (2, 1), (7, 4), (3, 9), (12, 12), (5, 2)]


@cache
def made_maps(n_source, n_target):
    generator = torch.Generator().manual_seed(100 * n_source + n_target)

    def layer(n_heads, n_rows, n_keys, is_causal=False):
        scores = 2 * torch.randn(n_heads, n_rows, n_keys, generator=generator)
        if is_causal:
            scores = scores.masked_fill(~torch.ones(n_rows, n_keys).tril().bool(), -torch.inf)
        return scores.softmax(dim=-1).numpy()

    return AttentionMaps(
        source_ids=(5,) * (n_source - 1) + (3,),
        target_input_ids=(2,) + (6,) * (n_target - 1),
        enc=tuple(layer(n, n_source, n_source) for n in LAYOUT.enc),
        dec=(layer(2, n_target, n_target, is_causal=True),),
        cross=(layer(2, n_target, n_source),),
        residuals={head: 1e-8 * n_source for head in LAYOUT},
    )


def summed_up(sentences, **options):
    statistics = HeadStatistics(LAYOUT, KINDS, **options)
    for index, maps in sentences:
        statistics.add_batch([index], batch_of(maps))
    return statistics.summaries()


@pytest.mark.parametrize("resamples", [0, 20])
def test_means_are_those_of_the_single_sentences_weighted_by_rows(resamples):
    sentences = [made_maps(*lengths) for lengths in LENGTHS_STATISTICS]
    for summary in summed_up(enumerate(sentences), resamples=resamples):
        assert summary.intervals.keys() == (summary.metrics.keys() if resamples else set())
        kind, layer, head = summary.head
        n_rows, totals = {}, {}
        for maps in sentences:
            weights = maps.layers(kind)[layer]
            alone = head_metrics(weights, kind)[head]
            for name, (_, rows) in plain_metrics.metric_sums(
                torch.from_numpy(weights), kind
            ).items():
                totals[name] = totals.get(name, 0.0) + rows * alone[name]
                n_rows[name] = n_rows.get(name, 0) + rows
        expected = {name: total / n_rows[name] for name, total in totals.items()}
        assert summary.metrics == pytest.approx(expected, abs=1e-9)
        assert summary.n_rows == n_rows["entropy"]
        assert summary.n_sentences == len(LENGTHS_STATISTICS)
        assert summary.role == role_of(expected)
        assert summary.residual == pytest.approx(12e-8)
    assert [s.head for s in summed_up(enumerate(sentences))] == list(LAYOUT)


def test_the_order_of_sentences_changes_nothing():
    sentences = [
        (i, made_maps(*LENGTHS_STATISTICS[i % len(LENGTHS_STATISTICS)])) for i in range(100)
    ]
    forwards, backwards = summed_up(sentences), summed_up(reversed(sentences))
    for summary, other in zip(forwards, backwards, strict=True):
        assert summary.metrics == pytest.approx(other.metrics, abs=1e-12)
        for name, interval in summary.intervals.items():
            assert interval == pytest.approx(other.intervals[name], abs=1e-12)


def test_intervals_are_those_of_a_normal_mean_and_follow_the_seed():
    # the source's length decides an even head's confidence, and is the same for all its rows
    lengths = np.random.default_rng(4).integers(3, 8, 400)
    sentences = [(i, made_maps(int(n), 4)) for i, n in enumerate(lengths)]
    summary = {s.head: s for s in summed_up(sentences)}[HeadId("cross", 0, 0)]
    by_length = {
        n: head_metrics(made_maps(n, 4).cross[0], "cross")[0]["confidence"] for n in range(3, 8)
    }
    values = [by_length[int(n)] for n in lengths]
    low, high = summary.intervals["confidence"]
    half = 1.96 * np.std(values) / np.sqrt(len(values))
    assert low < summary.metrics["confidence"] < high
    assert (high - low) / 2 == pytest.approx(half, rel=0.15)
    again, other = summed_up(sentences[:9], seed=1), summed_up(sentences[:9], seed=2)
    assert again == summed_up(sentences[:9], seed=1)
    assert again[0].intervals != other[0].intervals
    assert again[0].metrics == other[0].metrics


def test_memory_does_not_grow_with_the_sentences():
    """One batch again and again: a new one leaves free lists behind that grow, too."""
    single, n = batch_of(made_maps(7, 4)), 64
    tapped = {
        place: TappedAttention(*(np.repeat(values, n, axis=0) for values in arrays))
        for place, arrays in single.tapped.items()
    }
    batch = CapturedBatch(single.sources * n, single.targets * n, single.next_ids * n, tapped)
    statistics = HeadStatistics(LAYOUT, KINDS, resamples=50)
    tracemalloc.start()
    held = []
    for number in range(96):
        statistics.add_batch(range(n * number, n * (number + 1)), batch)
        if number in (31, 95):
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert held[1] - held[0] < 10_000  # 4,096 sentences at less than 3 bytes each


def test_nothing_read_is_nothing_summed_up():
    assert summed_up([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_without_heads_has_no_numbers(kind):
    lengths = np.array([4, 2]), np.array([4, 2])
    sums = batch_metric_sums(
        np.zeros((2, 0, 4, 4), np.float32), *lengths, kind, has_eos=np.array([True, True])
    )
    assert {metric.totals.shape for metric in sums.values()} == {(2, 0)}
