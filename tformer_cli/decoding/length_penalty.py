"""The length penalty that makes hypotheses of different lengths comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tformer_cli.decoding.config import DecodingConfig

PENALTY_OFFSET = 5.0
"""The 5 of ((5 + T)/6)^α; T = 1 gives 1."""


def length_penalty(n_tokens: int, exponent: float) -> float:
    """Returns ((5 + T)/6)^α, by which a log-probability is divided.

    Source: Wu et al. 2016, "Google's Neural Machine Translation System", section 7, equation 14.

    Args:
        n_tokens: T, target tokens with the end of sentence counted.
        exponent: α; 0 ranks by log-probability alone, larger values favor longer translations.
    """
    return float(((PENALTY_OFFSET + n_tokens) / (PENALTY_OFFSET + 1.0)) ** exponent)


def length_divisor(n_tokens: int, config: DecodingConfig) -> float:
    """Returns what a log-probability is divided by to give its score; it never falls with T.

    Args:
        n_tokens: T, target tokens with the end of sentence counted.
        config: says which: `length_penalty` of "gnmt", or T itself of "average".
    """
    if config.length_normalization == "average":
        return float(n_tokens)
    return length_penalty(n_tokens, config.length_penalty)
