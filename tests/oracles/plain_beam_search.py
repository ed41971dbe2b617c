"""Beam search of one sentence in plain Python, the oracle of every search engine.

Nothing is batched, cached or ended early, and every next token of every hypothesis is looked at.
"""

from collections.abc import Callable, Iterable, Sequence

from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.hypothesis import length_divisor
from tformer_cli.text.tokenizer import EOS_ID


def anything(tokens: tuple[int, ...], choices: Sequence[int]) -> Iterable[int]:
    """Allows every next token."""
    return choices


def plain_beam_search(
    log_probabilities: Callable[[tuple[int, ...]], Sequence[float]],
    config: DecodingConfig,
    limit: int,
    allowed: Callable[[tuple[int, ...], Sequence[int]], Iterable[int]] = anything,
) -> list[tuple[float, tuple[int, ...], bool]]:
    """Finds the best translations."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...], bool]] = []
    n_slots = config.beam_size
    while live and n_slots > 0:
        grown = []
        for total, tokens in live:
            values = list(log_probabilities(tokens))
            # padding, unknown and beginning are never generated; at the limit only the end is
            choices = list(allowed(tokens, range(EOS_ID, len(values)))) or [EOS_ID]
            best = max(choices, key=values.__getitem__)
            choices = [EOS_ID] if len(tokens) == limit else choices
            grown += [(total + values[token], tokens, token, best) for token in choices]
        # equal ones stay in the order of the hypotheses that they continue
        kept = sorted(grown, key=lambda candidate: -candidate[0])[:n_slots]
        for total, tokens, token, best in kept:
            if token == EOS_ID:  # finished: it keeps its slot
                score = total / length_divisor(len(tokens) + 1, config)
                finished.append((score, tokens, len(tokens) < limit or best == EOS_ID))
                n_slots -= 1
        live = [(total, (*tokens, token)) for total, tokens, token, _ in kept if token != EOS_ID]
    return sorted(finished, key=lambda candidate: -candidate[0])[: config.n_searched]
