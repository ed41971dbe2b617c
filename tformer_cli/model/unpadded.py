"""Sentences one after the other, in one row of a batch: nothing is computed for padding.

What is done for each position by itself needs no change for that. Attention is told which rows
belong together (`Spans`); `Operations` compute it.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

ROW_MULTIPLE = 64
"""Rows are filled up to a multiple of this: a library that prepares each product for its sizes
then has seen most of them after a few steps, and freed memory fits what is asked for next."""


class Unpadded(NamedTuple):
    """Token ids of B sentences."""

    tokens: Tensor
    """(1, N) ids; behind the last sentence any that fill the row up."""
    positions: Tensor
    """(N) place of each token in its sentence, from 0."""
    starts: Tensor
    """(B + 1) where each sentence begins, and where the last one ends."""


class Spans(NamedTuple):
    """Spans of attention: the queries of a sentence attend to its keys."""

    queries: Tensor
    """(B + 1) `Unpadded.starts` of the queries."""
    keys: Tensor
    """(B + 1) the same of the keys."""
    is_causal: bool
    """True if query i sees keys 0 … i alone."""


def unpadded(tokens: Tensor, mask: Tensor) -> Unpadded:
    """Lays padded sentences out one after the other.

    Args:
        tokens: (B, T) ids.
        mask: (B, T) True where a position is a token and not padding; padding comes last.
    """
    lengths = mask.sum(dim=1)
    starts = functional.pad(lengths.cumsum(0), (1, 0))
    n_tokens = int(starts[-1])
    positions = torch.arange(n_tokens) - starts[:-1].repeat_interleave(lengths)
    filling = (0, -n_tokens % ROW_MULTIPLE)
    return Unpadded(
        functional.pad(tokens[mask], filling)[None], functional.pad(positions, filling), starts
    )
