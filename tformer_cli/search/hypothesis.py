"""Hypotheses that a search returns, the penalty that makes them comparable, and their lengths."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import field
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from tformer_cli.errors import UsageError
from tformer_cli.settings import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.search.config import DecodingConfig

T = TypeVar("T")
PENALTY_OFFSET = 5.0
"""The 5 of ((5 + T)/6)^α; T = 1 gives 1."""
EXTRA_TOKENS = 20
"""Added to `max_length_ratio` times the source's tokens, so that short sources have room."""
MOST_TOKENS = 10**9
"""More than any model takes."""


class Several(ABC, Generic[T]):
    """A result that is indexed, counted and iterated as its items.

    It is not a `Sequence` of the standard library, whose method `index` would hide the field of
    that name.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def _held(self) -> Sequence[T]:
        """The parts that it holds."""

    def __len__(self) -> int:
        return len(self._held)

    def __bool__(self) -> bool:
        # A result is there, of a blank line too, which has no label
        return True

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        return self._held[place]

    def __iter__(self) -> Iterator[T]:
        return iter(self._held)


CrossHead = tuple[int, int]
"""Layer and head of a decoder's attention to the source, from 0."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceAttention:
    """Weights of some heads on the source while a translation was written: their mean."""

    heads: tuple[CrossHead, ...]
    """The heads that the search was asked to listen to."""
    weights: NDArray[np.float32]
    """(T + 1, S) a row for each position of the decoder: row t has read t of the tokens and
    predicts the next one, or the end of sentence. S counts the source's end of sentence, if the
    model reads it."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One candidate translation in token ids, ended by the end of sentence."""

    token_ids: tuple[int, ...]
    """The target tokens without beginning and end of sentence."""
    log_probability: float
    """Σ log p of the tokens and of the end of sentence, natural logarithm."""
    score: float
    """`log_probability` after the length penalty; hypotheses are ranked by it."""
    token_log_probabilities: tuple[float, ...]
    """log p of every token, the end of sentence last; empty if the engine has none."""
    is_finished: bool
    """False where the length limit ended it although the model preferred to continue."""
    attention: SourceAttention | None = field(default=None, compare=False, repr=False)
    """Its attention to the source, where the search was asked and the engine can tell."""
    utility: float | None = None
    """Its expected utility, if minimum Bayes risk decoding ranks by that in place of the score."""

    @property
    def n_tokens(self) -> int:
        """T of the length penalty: the tokens and the end of sentence."""
        return len(self.token_ids) + 1


def length_penalty(n_tokens: int, exponent: float) -> float:
    """Returns ((5 + T)/6)^α, by which a log-probability is divided.

    Source: Wu et al. 2016, "Google's Neural Machine Translation System", section 7, equation 14.
    """
    return float(((PENALTY_OFFSET + n_tokens) / (PENALTY_OFFSET + 1.0)) ** exponent)


def length_divisor(n_tokens: int, config: DecodingConfig) -> float:
    """Returns what a log-probability is divided by to give its score; it never falls with T."""
    if config.length_normalization == "average":
        return float(n_tokens)
    return length_penalty(n_tokens, config.length_penalty)


def worst_wanted(scores: Iterable[float], n_searched: int) -> float:
    """Returns the score of the last hypothesis that is wanted; -inf while fewer are found."""
    best = sorted(scores, reverse=True)
    return best[n_searched - 1] if len(best) >= n_searched else float("-inf")


def is_certain(worst: float, best_live: float, largest_divisor: float) -> bool:
    """Returns whether no live hypothesis can come among those wanted: every search's stop rule."""
    # It changes no result: a log-probability only falls, so a live hypothesis can at best keep
    # its own and be divided by the penalty of the longest translation
    return worst >= best_live / largest_divisor


def longest_source(max_positions: int) -> int:
    """Returns the maximum number of source tokens: all positions except the end of sentence."""
    return max_positions - 1


def longest_translation(
    n_source_tokens: int, config: DecodingConfig, max_positions: int, n_prefix: int = 0
) -> int:
    """Returns the most tokens a translation may have, its end of sentence not counted.

    It is the smallest of: the positions of the model less one, `max_length` where it is set, and
    `max_length_ratio` times the source tokens (end of sentence not counted) plus 20, or the fewest
    tokens where those are more. Only the positions count the tokens of a prefix.
    """
    by_ratio = _most_by_ratio(n_source_tokens, config)
    limit = max(by_ratio, shortest_translation(n_source_tokens, config))
    limit = min(limit, config.max_length) if config.max_length else limit
    # The decoder also reads the beginning of sentence, which takes a position
    return min(max_positions - 1, n_prefix + limit)


def shortest_translation(n_source_tokens: int, config: DecodingConfig, n_prefix: int = 0) -> int:
    """Returns the fewest tokens a translation may have, its end of sentence not counted.

    It is the larger of `min_length` and `min_length_ratio` times the source tokens, after a prefix;
    see `length_conflict`.
    """
    by_ratio = _times(config.min_length_ratio, n_source_tokens)
    return n_prefix + max(config.min_length, by_ratio)


def _most_by_ratio(n_source_tokens: int, config: DecodingConfig) -> int:
    return _times(config.max_length_ratio, n_source_tokens) + EXTRA_TOKENS


def _times(ratio: float, n_tokens: int) -> int:
    # No model has more positions, and a product of floats may be infinite
    return int(min(ratio * n_tokens, MOST_TOKENS))


def length_conflict(
    n_source_tokens: int, config: DecodingConfig, max_positions: int, n_prefix: int = 0
) -> UsageError | None:
    """Returns which length limits conflict; None if a translation can keep them all.

    The default of `max_length_ratio` yields, since no user chose it.
    """
    room = longest_source(max_positions)
    if n_prefix > room:
        return UsageError(
            f'"target_prefix" has {n_prefix} tokens, but the model writes at most {room}; '
            "shorten it"
        )
    least = shortest_translation(n_source_tokens, config)
    most, limit = room - n_prefix, f"the model's {max_positions} positions have room for"
    if config.max_length and config.max_length < most:
        most, limit = config.max_length, "{max_length} allows"
    by_ratio = _most_by_ratio(n_source_tokens, config)
    if by_ratio < most and config.max_length_ratio != type(config).max_length_ratio:
        most, limit = by_ratio, f"{{max_length_ratio}} {config.max_length_ratio:g} allows"
    if least <= most:
        return None
    name, value = "min_length", str(config.min_length)
    if config.min_length < least:
        name, value = "min_length_ratio", f"{config.min_length_ratio:g}"
    behind = ' after its "target_prefix"' if n_prefix else ""
    return UsageError.of(
        f"{{{name}}} {value} requires {least} tokens or more{behind}, but {limit} {most}; change "
        "one of the two"
    )


def scored_hypothesis(
    target: Sequence[int],
    steps: Sequence[float],
    config: DecodingConfig,
    bonus: float = 0.0,
    *,
    is_finished: bool = True,
) -> Hypothesis:
    """Builds the hypothesis of a complete translation."""
    log_probability = math.fsum(steps)
    # The steps include the end of sentence, which the length penalty counts
    score = log_probability / length_divisor(len(steps), config) + bonus
    return Hypothesis(tuple(target), log_probability, score, tuple(steps), is_finished)


def never_interrupt() -> None:
    """Does nothing before a batch: for searches that nothing interrupts."""
