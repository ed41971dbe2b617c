"""Constraints on the next token: rules that change the log-probabilities of a step.

A search hands each processor the (R, V) log-probabilities of the next token of its R hypotheses.
-inf forbids a token. What hypotheses are ranked by changes with them; the log-probability that is
reported of a hypothesis stays the model's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from tformer_cli.search.hypothesis import longest_translation, shortest_translation
from tformer_cli.text.tokenizer import EOS_ID, PAD_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.search.config import DecodingConfig

FORBIDDEN = float("-inf")


@dataclass(frozen=True, slots=True)
class StepRows:
    """The hypotheses to extend."""

    tokens: Tensor
    """(R, T) what each has so far, without beginning of sentence."""
    sentences: Tensor
    """(R) which sentence of the batch each belongs to."""
    log_probabilities: Tensor
    """(R, V) the model's own log-probabilities of the next token."""


class ScoreProcessor(Protocol):
    """A rule about the next token."""

    def __call__(self, scores: Tensor, rows: StepRows) -> Tensor:
        """Returns the scores (R, V), changed in place or not; none may rise above 0."""
        ...


class MinimumLength:
    """Forbids the end of sentence before a translation has its least number of tokens."""

    def __init__(self, shortest: Sequence[int], device: torch.device) -> None:
        """Takes for each sentence the least number of tokens."""
        # A plain number, so that later steps ask nothing of the device
        self._most = max(shortest, default=0)
        self._shortest = torch.tensor(shortest, device=device)

    def __call__(self, scores: Tensor, rows: StepRows) -> Tensor:
        """See `ScoreProcessor`."""
        length = rows.tokens.shape[1]
        if length < self._most:
            is_short = self._shortest[rows.sentences] > length
            scores[:, EOS_ID].masked_fill_(is_short, FORBIDDEN)
        return scores


class NoRepeatNgram:
    """Forbids the token that would make a hypothesis say the same n tokens twice."""

    def __init__(self, n: int) -> None:
        """Takes n; 1 forbids every token that was said."""
        self._n = n

    def __call__(self, scores: Tensor, rows: StepRows) -> Tensor:
        """See `ScoreProcessor`."""
        length = rows.tokens.shape[1]
        if length < self._n:
            return scores
        # the runs of n tokens: (R, T) -> (R, T - n + 1, n)
        ngrams = rows.tokens.unfold(1, self._n, 1)
        last = rows.tokens[:, length - self._n + 1 :].unsqueeze(1)
        is_same = (ngrams[..., :-1] == last).all(dim=-1)
        return scores.scatter_(1, _or_padding(ngrams[..., -1], is_same), FORBIDDEN)


class RepetitionPenalty:
    """Multiplies the log-probability of tokens already said by θ ≥ 1 (Keskar et al. 2019).

    The paper divides scores by θ and multiplies negative ones; log-probabilities all are.
    """

    def __init__(self, theta: float) -> None:
        """Takes θ."""
        self._theta = theta

    def __call__(self, scores: Tensor, rows: StepRows) -> Tensor:
        """See `ScoreProcessor`."""
        # Read before anything is written: a token said twice is penalized once
        repeated = scores.gather(1, rows.tokens)
        return scores.scatter_(1, rows.tokens, repeated * self._theta)


class ForcedPrefix:
    """Lets every translation begin with given tokens, whatever other rules say."""

    def __init__(self, prefixes: Sequence[Sequence[int]], device: torch.device) -> None:
        """Takes for each sentence its first tokens, or none."""
        self._longest = max(map(len, prefixes), default=0)
        rows = [[*prefix, *[-1] * (self._longest - len(prefix))] for prefix in prefixes]
        self._prefixes = torch.tensor(rows, dtype=torch.int64, device=device)

    def __call__(self, scores: Tensor, rows: StepRows) -> Tensor:
        """See `ScoreProcessor`."""
        length = rows.tokens.shape[1]
        if length >= self._longest:
            return scores
        forced = self._prefixes[rows.sentences, length].unsqueeze(1)
        is_forced = forced >= 0
        index = forced.clamp(min=0)
        # The model's own, because another rule may have forbidden the token
        own = rows.log_probabilities.gather(1, index)
        only = torch.full_like(scores, FORBIDDEN).scatter_(1, index, own)
        return torch.where(is_forced, only, scores)


def make_processors(
    config: DecodingConfig,
    n_sources: Sequence[int],
    max_positions: int,
    device: torch.device,
    *,
    prefixes: Sequence[Sequence[int]] = (),
    n_given: Sequence[int] = (),
) -> list[ScoreProcessor]:
    """Returns the rules for searching a batch; by default none.

    `n_given` are the tokens of each prefix that no limit of length counts.
    """
    processors: list[ScoreProcessor] = []
    if config.repetition_penalty != 1.0:
        processors.append(RepetitionPenalty(config.repetition_penalty))
    if config.min_length or config.min_length_ratio:
        lengths = list(zip(n_sources, n_given or [0] * len(n_sources), strict=True))
        longest = [
            longest_translation(n, config, max_positions, n_prefix) for n, n_prefix in lengths
        ]
        least = [shortest_translation(n, config, n_prefix) for n, n_prefix in lengths]
        # Where they conflict the longest length wins, or the sentence could not end
        processors.append(MinimumLength(list(map(min, least, longest)), device))
    if config.no_repeat_ngram:
        processors.append(NoRepeatNgram(config.no_repeat_ngram))
    # Last, because a prefix holds whatever other rules say
    if any(prefixes):
        processors.append(ForcedPrefix(prefixes, device))
    return processors


def process(processors: Sequence[ScoreProcessor], rows: StepRows) -> Tensor:
    """Applies rules one after the other to scores (R, V).

    Where they leave a hypothesis no token at all it may end: a sentence always has a translation.
    """
    # A copy: rules write in place, and the model's own are still reported
    scores = rows.log_probabilities.clone()
    for processor in processors:
        scores = processor(scores, rows)
    scores[:, :EOS_ID] = FORBIDDEN
    is_stuck = scores.isneginf().all(dim=1)
    ends = rows.log_probabilities[:, EOS_ID]
    scores[:, EOS_ID] = torch.where(is_stuck, ends, scores[:, EOS_ID])
    return scores


def _or_padding(tokens: Tensor, is_meant: Tensor) -> Tensor:
    """Puts padding, which is never generated, where a token is not meant."""
    return torch.where(is_meant, tokens, PAD_ID)
