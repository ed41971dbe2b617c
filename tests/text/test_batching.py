import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tformer_cli.text.batching import (
    BLUR,
    collate,
    count_batches,
    plan_batches,
    regroup,
)
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID


def lengths_like_sentences(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    source = np.clip(rng.normal(14, 4, n), 3, 50).astype(np.int32)
    target = np.clip(source * rng.normal(1.1, 0.18, n), 2, 60).astype(np.int32)
    return source, target


def test_a_batch_holds_shifted_targets_and_masked_padding():
    batch = collate([[5, 6, 7], [8]], [[9], [10, 11]])
    assert batch.source.tolist() == [[5, 6, 7, EOS_ID], [8, EOS_ID, PAD_ID, PAD_ID]]
    assert batch.source_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.target_input.tolist() == [[BOS_ID, 9, PAD_ID], [BOS_ID, 10, 11]]
    assert batch.target_output.tolist() == [[9, EOS_ID, PAD_ID], [10, 11, EOS_ID]]
    assert batch.n_sentences == 2
    assert batch.n_source_tokens == 6
    assert batch.n_target_tokens == 5
    assert batch.n_cells == 8 + 6


def test_sources_of_some_models_have_no_end():
    batch = collate([[5, 6, 7], [8], []], [[9], [10, 11], [12]], source_eos=False)
    assert batch.source.tolist() == [[5, 6, 7], [8, PAD_ID, PAD_ID], [EOS_ID, PAD_ID, PAD_ID]]
    assert batch.source_mask.sum(1).tolist() == [3, 1, 1]
    assert batch.target_output.tolist() == [[9, EOS_ID, PAD_ID], [10, 11, EOS_ID], [12, 3, PAD_ID]]


@settings(max_examples=60)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=80),
    budget=st.integers(1, 300),
    epoch=st.integers(0, 3),
)
def test_batches_hold_every_pair_once_within_the_budget(lengths, budget, epoch):
    source, target = np.array(lengths, dtype=np.int32).reshape(-1, 2).T
    batches = plan_batches(source, target, budget, seed=1, epoch=epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(source[batch].max(), target[batch].max()) + 1
        assert len(batch) * longest <= budget or len(batch) == 1


def obvious_plan(source, target, budget, seed, epoch):
    """Sorts all pairs and fills one batch after the other; what runs have always seen."""
    rng = np.random.default_rng([seed, epoch])
    noise = rng.random(len(source))
    longer = np.maximum(source, target) + 1
    excess = source.astype(float) - target + BLUR * noise
    order = sorted(
        range(len(source)),
        key=lambda i: (longer[i], excess[i] if longer[i] % 2 == 0 else -excess[i]),
    )
    batches = []
    for i in order:
        if not batches or (len(batches[-1]) + 1) * longer[i] > budget:
            batches.append([])
        batches[-1].append(i)
    return [batches[place] for place in rng.permutation(len(batches))]


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("budget", [1, 40, 500])
def test_the_plan_is_the_obvious_one_and_its_batches_are_counted_without_it(budget, epoch):
    lengths = lengths_like_sentences(700)
    plan = plan_batches(*lengths, budget, 5, epoch)
    assert [batch.tolist() for batch in plan] == obvious_plan(*lengths, budget, 5, epoch)
    assert count_batches(*lengths, budget) == len(plan)
    assert count_batches(np.zeros(0, np.int32), np.zeros(0, np.int32), budget) == 0


def test_windows_of_an_epoch_group_differently():
    lengths = lengths_like_sentences(700)
    plans = [plan_batches(*lengths, 500, 1, 2, window) for window in (0, 1)]
    assert {tuple(batch) for batch in plans[0]} != {tuple(batch) for batch in plans[1]}


def test_epochs_and_seeds_group_and_order_differently():
    lengths = lengths_like_sentences(2000)
    plans = [plan_batches(*lengths, 1000, seed, epoch) for seed, epoch in [(1, 0), (1, 1), (2, 0)]]
    contents = [{frozenset(batch.tolist()) for batch in plan} for plan in plans]
    assert len(contents[0] & contents[1]) < len(contents[0]) / 10
    assert len(contents[0] & contents[2]) < len(contents[0]) / 10
    again = plan_batches(*lengths, 1000, 1, 0)
    assert all(np.array_equal(a, b) for a, b in zip(plans[0], again, strict=True))


def test_little_of_a_batch_is_padding():
    lengths = lengths_like_sentences(29_000)
    tokens = cells = 0
    for batch in plan_batches(*lengths, 4096, 1, 0):
        for side in lengths:
            tokens += int(side[batch].sum()) + len(batch)
            cells += (int(side[batch].max()) + 1) * len(batch)
    assert 1.0 - tokens / cells < 0.08


@settings(max_examples=60)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=60),
    data=st.data(),
)
def test_regrouping_keeps_the_number_of_batches(lengths, data):
    source, target = np.array(lengths, dtype=np.int32).reshape(-1, 2).T
    n_batches = data.draw(st.integers(1, len(lengths)))
    batches = regroup(source, target, n_batches, np.random.default_rng(1))
    assert len(batches) == n_batches
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
