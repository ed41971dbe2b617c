"""State of beam search, passed from one part of a step to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.decoding.hypothesis import Hypothesis

IMPOSSIBLE = float("-inf")


@dataclass
class BeamSentence:
    """Hypotheses that a sentence has found so far."""

    limit: int
    """Most tokens of a translation, the end of sentence not counted."""
    largest_divisor: float
    """Length penalty of the longest translation possible; no score is divided by more."""
    n_slots: int
    found: list[Hypothesis] = field(default_factory=list)
    worst_wanted: float = IMPOSSIBLE
    """Score of the last of the first `n_searched` found; -inf while there are fewer."""


@dataclass
class Continuations:
    """The best continuations of each sentence, best first; (B, C) each, C at most W."""

    total: Tensor
    """Rank value of the hypothesis with its new token; -inf where there is none."""
    token_log_probability: Tensor
    """Of the new token, by the model."""
    token: Tensor
    """The new token."""
    slot: Tensor
    """The slot of the hypothesis that it continues."""


@dataclass
class Candidates:
    """The best next tokens of each row; (B·W, C) each, best first."""

    gain: Tensor
    """Gain of the token for its hypothesis's rank value."""
    log_probability: Tensor
    """Of the token, by the model."""
    token: Tensor
    own_ends: Tensor | None
    """(B·W) where rows are as long as they may be: whether the model ends there by itself."""
