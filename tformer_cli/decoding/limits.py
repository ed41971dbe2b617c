"""Length limits of sources and translations."""

from tformer_cli.decoding.config import DecodingConfig

EXTRA_TOKENS = 20
"""Added to `max_length_ratio` times the source's tokens, so that short sources have room."""


def longest_source(max_positions: int) -> int:
    """Returns the source tokens a model can take: all positions but that of the end of sentence."""
    return max_positions - 1


def longest_translation(n_source_tokens: int, config: DecodingConfig, max_positions: int) -> int:
    """Returns the most tokens a translation may have, its end of sentence not counted.

    It is the smallest of: the positions of the model less one (the decoder also reads the
    beginning of sentence), `max_length` where it is set, and `max_length_ratio` times the source
    tokens (end of sentence not counted) plus 20.
    """
    by_ratio = int(config.max_length_ratio * n_source_tokens) + EXTRA_TOKENS
    limit = min(max_positions - 1, by_ratio)
    return min(limit, config.max_length) if config.max_length else limit


def shortest_translation(n_source_tokens: int, config: DecodingConfig) -> int:
    """Returns the fewest tokens a translation may have, its end of sentence not counted.

    It is the larger of `min_length` and `min_length_ratio` times the source tokens; the limit of
    `longest_translation` comes before it.
    """
    return max(config.min_length, int(config.min_length_ratio * n_source_tokens))
