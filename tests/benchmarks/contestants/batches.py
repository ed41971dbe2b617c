"""Token batches for peers that come without a loader of their own."""

import random
from typing import NamedTuple

import torch
from job import read_ids
from torch import Tensor

PAD, BOS, EOS = 0, 2, 3


class Batch(NamedTuple):
    """B pairs, padded."""

    source: Tensor
    """(B, S): ids, EOS."""
    target_input: Tensor
    """(B, T): BOS, ids."""
    target_output: Tensor
    """(B, T): ids, EOS."""
    n_target_tokens: int
    """Without padding."""


def endless_batches(job):
    """Makes batches epoch after epoch: pairs of like length together, the batches shuffled."""
    sources, targets = (read_ids(job.ids / f"train.{side}") for side in ("source", "target"))
    order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i])))
    groups = list(_groups(order, sources, targets, job.tokens_per_batch))
    shuffler = random.Random(job.seed)
    while True:
        shuffler.shuffle(groups)
        for group in groups:
            yield _collate([sources[i] for i in group], [targets[i] for i in group])


def endless_random_batches(job, n_pairs):
    """Makes batches of so many pairs, drawn anew each epoch whatever their lengths."""
    sources, targets = (read_ids(job.ids / f"train.{side}") for side in ("source", "target"))
    order = list(range(len(sources)))
    shuffler = random.Random(job.seed)
    while True:
        shuffler.shuffle(order)
        for start in range(0, len(order), n_pairs):
            group = order[start : start + n_pairs]
            yield _collate([sources[i] for i in group], [targets[i] for i in group])


def pad_rows(rows):
    """(B, longest) ids."""
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def _groups(order, sources, targets, budget):
    """Cuts the row of pairs where sentences × longest side, EOS included, would pass the budget."""
    group = []
    longest = 0
    for i in order:
        longest = max(longest, len(sources[i]) + 1, len(targets[i]) + 1)
        if group and (len(group) + 1) * longest > budget:
            yield group
            group, longest = [], max(len(sources[i]), len(targets[i])) + 1
        group.append(i)
    yield group


def _collate(sources, targets):
    return Batch(
        source=pad_rows([[*ids, EOS] for ids in sources]),
        target_input=pad_rows([[BOS, *ids] for ids in targets]),
        target_output=pad_rows([[*ids, EOS] for ids in targets]),
        n_target_tokens=sum(map(len, targets)) + len(targets),
    )
