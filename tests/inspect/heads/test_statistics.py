import tracemalloc
from functools import cache

import numpy as np
import pytest
import torch

from tests.inspect.conftest import batch_of
from tests.oracles import plain_metrics
from tformer_cli.heads.names import KINDS, HeadId, HeadLayout
from tformer_cli.heads.roles import role_of
from tformer_cli.inspect.capture.batches import CapturedBatch
from tformer_cli.inspect.capture.forced import AttentionMaps, TappedAttention
from tformer_cli.inspect.heads.metrics import head_metrics
from tformer_cli.inspect.heads.statistics import HeadStatistics

LAYOUT = HeadLayout((2, 3), (2,), (2,))
LENGTHS = [(1, 1), (2, 1), (7, 4), (3, 9), (12, 12), (5, 2)]


@cache
def made_maps(n_source, n_target):
    generator = torch.Generator().manual_seed(100 * n_source + n_target)

    def layer(n_heads, n_rows, n_keys, is_causal=False):
        scores = 2 * torch.randn(n_heads, n_rows, n_keys, generator=generator)
        if is_causal:
            scores = scores.masked_fill(~torch.ones(n_rows, n_keys).tril().bool(), -torch.inf)
        return scores.softmax(dim=-1)

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
    sentences = [made_maps(*lengths) for lengths in LENGTHS]
    for summary in summed_up(enumerate(sentences), resamples=resamples):
        assert summary.intervals.keys() == (summary.metrics.keys() if resamples else set())
        kind, layer, head = summary.head
        n_rows, totals = {}, {}
        for maps in sentences:
            weights = maps.layers(kind)[layer]
            alone = head_metrics(weights, kind)[head]
            for name, (_, rows) in plain_metrics.metric_sums(weights, kind).items():
                totals[name] = totals.get(name, 0.0) + rows * alone[name]
                n_rows[name] = n_rows.get(name, 0) + rows
        expected = {name: total / n_rows[name] for name, total in totals.items()}
        assert summary.metrics == pytest.approx(expected, abs=1e-9)
        assert summary.n_rows == n_rows["entropy"]
        assert summary.n_sentences == len(LENGTHS)
        assert summary.role == role_of(expected)
        assert summary.residual == pytest.approx(12e-8)
    assert [s.head for s in summed_up(enumerate(sentences))] == list(LAYOUT)


def test_the_order_of_sentences_changes_nothing():
    sentences = [(i, made_maps(*LENGTHS[i % len(LENGTHS)])) for i in range(100)]
    forwards, backwards = summed_up(sentences), summed_up(reversed(sentences))
    for one, other in zip(forwards, backwards, strict=True):
        assert one.metrics == pytest.approx(other.metrics, abs=1e-12)
        for name, interval in one.intervals.items():
            assert interval == pytest.approx(other.intervals[name], abs=1e-12)


def test_intervals_are_those_of_a_normal_mean_and_follow_the_seed():
    # the source's length decides an even head's confidence, and is the same for all its rows
    lengths = np.random.default_rng(4).integers(3, 8, 400)
    sentences = [(i, made_maps(int(n), 4)) for i, n in enumerate(lengths)]
    found = {s.head: s for s in summed_up(sentences)}[HeadId("cross", 0, 0)]
    by_length = {
        n: head_metrics(made_maps(n, 4).cross[0], "cross")[0]["confidence"] for n in range(3, 8)
    }
    values = [by_length[int(n)] for n in lengths]
    low, high = found.intervals["confidence"]
    half = 1.96 * np.std(values) / np.sqrt(len(values))
    assert low < found.metrics["confidence"] < high
    assert (high - low) / 2 == pytest.approx(half, rel=0.15)
    again, other = summed_up(sentences[:9], seed=1), summed_up(sentences[:9], seed=2)
    assert again == summed_up(sentences[:9], seed=1)
    assert again[0].intervals != other[0].intervals
    assert again[0].metrics == other[0].metrics


def test_memory_does_not_grow_with_the_sentences():
    """One batch again and again: a new one leaves free lists behind that grow, too."""
    one, n = batch_of(made_maps(7, 4)), 64
    tapped = {
        place: TappedAttention(*(values.expand(n, *values.shape[1:]) for values in found))
        for place, found in one.tapped.items()
    }
    batch = CapturedBatch(one.sources * n, one.targets * n, one.next_ids * n, tapped)
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
