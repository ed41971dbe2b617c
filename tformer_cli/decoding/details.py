"""Details of a hypothesis in JSONL output on request: its tokens' scores, and warning signs.

=============  ==================================================================================
unfinished     the length limit ended it
repetition     a run of 1 to 8 tokens stands at least 4 times in a row, 8 tokens or more in all,
               and no such run is in the source
length         it has over 2.5 times the source's tokens and 10 more, or under a fifth of them
improbable     its tokens have a mean log-probability below -2.5, a perplexity above 12
=============  ==================================================================================

The last two are signs of a hallucination. All are cheap guesses to sort output by, no judgment;
what is usual differs from model to model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.decoding.translator import TranslatedText, Translation

LONGEST_RUN, LEAST_REPEATS, LEAST_REPEATED = 8, 4, 8
LARGEST_RATIO, LARGEST_EXTRA, SMALLEST_RATIO = 2.5, 10, 0.2
LEAST_MEAN = -2.5


@dataclass(frozen=True, kw_only=True)
class Details:
    """Details of every hypothesis besides its text and score."""

    token_scores: bool = False
    """Its token ids with their log-probabilities; the last is that of the end of sentence."""
    flags: bool = False
    """A list of warning signs, empty for most."""

    def of(self, hypothesis: TranslatedText, translation: Translation) -> dict[str, Any]:
        """Returns what is asked for, as fields of a JSON object."""
        fields: dict[str, Any] = {}
        if self.token_scores:
            fields["token_ids"] = list(hypothesis.token_ids)
            fields["token_log_probabilities"] = list(hypothesis.token_log_probabilities)
        if self.flags:
            fields["flags"] = flags_of(hypothesis, translation.source_ids)
        return fields


NO_DETAILS = Details()


def flags_of(hypothesis: TranslatedText, source_ids: Sequence[int]) -> list[str]:
    """Names the warning signs of a hypothesis; see the head of this file."""
    n_source, n_target = len(source_ids), len(hypothesis.token_ids)
    steps = hypothesis.token_log_probabilities
    signs = {
        "unfinished": not hypothesis.is_finished,
        "repetition": repeats(hypothesis.token_ids) and not repeats(source_ids),
        "length": n_target > LARGEST_RATIO * n_source + LARGEST_EXTRA
        or n_target < SMALLEST_RATIO * n_source,
        "improbable": sum(steps) < LEAST_MEAN * len(steps),
    }
    return [name for name, is_there in signs.items() if is_there]


def repeats(tokens: Sequence[int]) -> bool:
    """Returns whether a run of tokens stands several times in a row."""
    for period in range(1, LONGEST_RUN + 1):
        needed = max(LEAST_REPEATS * period, LEAST_REPEATED) - period
        n_same = 0
        for token, earlier in zip(tokens[period:], tokens, strict=False):
            n_same = n_same + 1 if token == earlier else 0
            if n_same >= needed:
                return True
    return False
