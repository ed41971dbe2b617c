"""The counts of linked tokens against counting them one by one."""

from collections import Counter

import numpy as np
import pytest

from tformer_cli.inspect.alignment import lexicon as lexicon_module
from tformer_cli.inspect.alignment.lexicon import Lexicon
from tformer_cli.text.tokenizer import EOS_ID

N_SOURCES, N_TARGETS = 30, 40


def random_pairs(n=60):
    dice = np.random.default_rng(3)
    for _ in range(n):
        source = dice.integers(4, N_SOURCES, dice.integers(1, 9)).tolist()
        target = (4 + dice.zipf(1.5, dice.integers(1, 9)) % (N_TARGETS - 4)).tolist()
        links = {(dice.integers(len(source)), dice.integers(len(target))) for _ in range(5)}
        yield source, target, links


@pytest.fixture(params=[1, 7, 1 << 20], ids="counted every {}".format)
def counted(request, monkeypatch):
    monkeypatch.setattr(lexicon_module, "MOST_PENDING", request.param)
    lexicon, counts, frequencies = Lexicon(N_SOURCES, N_TARGETS), Counter(), Counter()
    for source, target, links in random_pairs():
        lexicon.add(source, target, links)
        counts.update((source[s], target[t]) for s, t in links)
        frequencies.update(target)
    return lexicon, counts, frequencies


def best_of(counts, source, n):
    found = [(-count, t) for (s, t), count in counts.items() if s == source]
    return [t for _, t in sorted(found)[:n]]


@pytest.mark.parametrize("n_best", [None, 1, 3])
def test_entries_are_the_most_probable_targets_of_each_source(counted, n_best):
    lexicon, counts, _ = counted
    totals = Counter()
    for (source, _), count in counts.items():
        totals[source] += count
    expected = [
        (source, target, counts[source, target] / totals[source])
        for source in sorted(totals)
        for target in best_of(counts, source, n_best)
    ]
    assert list(lexicon.entries(n_best)) == expected
    assert lexicon.n_linked == len(totals)


@pytest.mark.parametrize("is_joint", [False, True])
def test_a_sentence_may_have_its_best_targets_frequent_tokens_and_copies(counted, is_joint):
    lexicon, counts, frequencies = counted
    shortlist = lexicon.shortlist(5, 2, is_joint=is_joint)
    assert (len(shortlist.offsets), shortlist.offsets[-1]) == (
        N_SOURCES + 1,
        len(shortlist.targets),
    )
    frequent = sorted(frequencies, key=lambda token: (-frequencies[token], token))[:5]
    for source in range(4, N_SOURCES):
        best = best_of(counts, source, 2)
        expected = {*range(EOS_ID + 1), *frequent, *best, *([source] if is_joint else [])}
        assert shortlist.candidates([source, EOS_ID]) == tuple(sorted(expected))


def test_tokens_that_never_occur_are_not_frequent():
    lexicon = Lexicon(6, 9)
    lexicon.add([4], [7, 8], [(0, 0)])
    assert lexicon.shortlist(100, 100, is_joint=False).candidates([EOS_ID]) == (0, 1, 2, 3, 7, 8)
