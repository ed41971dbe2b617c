"""Settings of the search: the recipe's `[decoding]` table and the options of `translate`."""

import math
from dataclasses import dataclass

LARGEST_LENGTH_PENALTY = 10.0
"""Beyond it the divisor of a long translation leaves the range of numbers."""


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """How translations are searched for. Kept in the model directory as its defaults."""

    beam_size: int = 5
    """Hypotheses kept for each sentence; 1 is greedy search."""
    length_penalty: float = 0.6
    """Exponent α of ((5 + T)/6)^α by which a log-probability is divided (Wu et al. 2016)."""
    n_best: int = 1
    """Translations returned for each sentence, at most `beam_size`."""
    max_length: int = 0
    """Longest translation in tokens (0: no limit but `max_length_ratio` and the model's own)."""
    max_length_ratio: float = 3.0
    """A translation has at most this many times the source's tokens, plus 20."""
    batch_tokens: int = 4096
    """Source tokens decoded together."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best", "batch_tokens"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name}: must be at least 1, but is {value}")
        if self.n_best > self.beam_size:
            raise ValueError(
                f"n_best: must be at most beam_size = {self.beam_size}, but is {self.n_best}; "
                "raise the beam size"
            )
        if self.max_length < 0:
            raise ValueError(f"max_length: must be at least 0, but is {self.max_length}")
        if not 0.0 < self.max_length_ratio < math.inf:
            raise ValueError(
                f"max_length_ratio: must be a number above 0, but is {self.max_length_ratio}"
            )
        if not 0.0 <= self.length_penalty <= LARGEST_LENGTH_PENALTY:
            raise ValueError(
                f"length_penalty: must be from 0 to {LARGEST_LENGTH_PENALTY:g}, "
                f"but is {self.length_penalty}"
            )
