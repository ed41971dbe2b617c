"""What the position of a token changes: its embedding, its queries and keys, or the scores.

A method of positions is a `Positions` that overrides one of three hooks. Every stack has one, which
its embedding and the self-attention of all its layers share; cross-attention compares positions of
two languages and takes none of it.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tformer_cli.model.config import PositionKind

if TYPE_CHECKING:
    from collections.abc import Callable

Places = slice | Tensor
"""Positions in a sentence: start … stop - 1 of all sentences, or a tensor of integers."""


class Positions(nn.Module):
    """Positions that change nothing; a method overrides the hooks that it needs."""

    turns = False
    """True if `turned` does anything."""
    biases = False
    """True if `bias` does anything."""

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor | None:
        """Returns (stop - start, D) vectors that are added to embeddings; None: nothing is."""
        del start, stop, device
        return None

    def turned(self, heads: Tensor, at: Places) -> Tensor:
        """Changes queries or keys before they are compared.

        Args:
            heads: (…, Q, E) queries or keys.
            at: their positions; as a tensor broadcastable to (…, Q).

        Returns:
            (…, Q, E).
        """
        del at
        return heads

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Computes what is added to the scaled scores.

        Args:
            queries: (…, Q) positions of the queries.
            keys: (K) positions of the keys.

        Returns:
            (…, H, Q, K).
        """
        raise NotImplementedError

    def vectors(self, n_positions: int) -> Tensor | None:
        """Returns (n_positions, ·) what stands for each position, to look at; None: nothing."""
        return self.rows(0, n_positions, torch.device("cpu"))


def sinusoids(n_positions: int, width: int) -> Tensor:
    """Computes the fixed position vectors of Vaswani et al. 2017, section 3.5.

    PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos(p / 10000^(2i/D)), computed in float64
    and rounded once, so that late positions keep their digits.

    Returns:
        (n_positions, width) float32.
    """
    position = torch.arange(n_positions, dtype=torch.float64).unsqueeze(1)
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angle = position * torch.exp(-math.log(10_000.0) * even / width)
    # two (P, D/2) -> (P, D/2, 2) -> (P, D): sine and cosine alternate
    return torch.stack((torch.sin(angle), torch.cos(angle)), dim=-1).flatten(1).float()


class SinusoidTable:
    """Sinusoids, computed as far as they were asked for; no parameter, not in the weights file."""

    def __init__(self, max_positions: int, width: int) -> None:
        """Prepares a table of at most `max_positions` rows, (·, width)."""
        self._max_positions = max_positions
        self._width = width
        self._table = torch.empty(0, width, device="cpu")

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Returns rows start … stop - 1 of `sinusoids`, (stop - start, width)."""
        if self._table.shape[0] < stop or self._table.device != device:
            # twice as many as needed, for the next sentence may be longer
            n_positions = min(max(256, 2 * stop), max(stop, self._max_positions))
            self._table = sinusoids(n_positions, self._width).to(device)
        return self._table[start:stop]


class SinusoidalPositions(Positions):
    """Sinusoids, added to embeddings."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self._sinusoids = SinusoidTable(max_positions, d_model)

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Returns the vectors of positions start … stop - 1, (stop - start, D)."""
        return self._sinusoids.rows(start, stop, device)


class LearnedPositions(Positions):
    """One learned vector for each position, added to embeddings."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_positions, d_model))

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Returns the vectors of positions start … stop - 1, (stop - start, D)."""
        return self.table[start:stop].to(device)


def make_positions(
    kind: PositionKind, max_positions: int, d_model: int, head_width: int
) -> Positions:
    """Makes the positions of a stack.

    Args:
        kind: the method.
        max_positions: tokens of the longest sentence.
        d_model: D, of vectors that are added to embeddings.
        head_width: E, of queries and keys that are changed.
    """
    del head_width
    methods: dict[PositionKind, Callable[[], Positions]] = {
        "sinusoidal": lambda: SinusoidalPositions(max_positions, d_model),
        "learned": lambda: LearnedPositions(max_positions, d_model),
    }
    return methods[kind]()
