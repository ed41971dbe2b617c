"""The rarest tokens of a sentence, which rare-word heads attend to.

Voita et al. 2019, section 5.3: of the sentences whose least frequent token is not among the 500
most frequent, such a head points to one of the two least frequent tokens in most rows. Frequencies
are counts of source tokens in the training corpus, or in the corpus that is looked at.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tformer_cli.text.tokenizer import without_eos

FREQUENT = 500
"""Tokens that are not rare anywhere (Voita et al. 2019)."""
RAREST = 2
"""Tokens of a sentence that count as its rarest (Voita et al. 2019)."""
NO_RARE_SENTENCE = f"no token outside the {FREQUENT} most frequent"
"""Reason why sentences of frequent tokens alone do not show rare-word heads."""
FEWEST_TOKENS = 6
"""Shorter sentences tell nothing, as two of their tokens are too many of them; ours."""


@dataclass(frozen=True)
class RareTokens:
    """The rarest tokens of a sentence, or why it has none."""

    positions: tuple[int, ...] = ()
    """Positions in the source, in order."""
    reason: str = ""
    """Reason why the sentence cannot show rare-word heads; empty if it can."""


UNKNOWN = RareTokens(reason="no frequencies.json in MODEL; with --corpus, tokens are counted")
"""Of a model whose directory does not say how frequent tokens are."""


class TokenFrequencies:
    """Frequency of each token in source text."""

    def __init__(
        self, counts: Sequence[int] | NDArray[np.int64], mask_id: int | None = None
    ) -> None:
        """Ranks the tokens.

        Args:
            counts: (V) how often each token occurs.
            mask_id: the token that stands for a gap, which is never rare.
        """
        self._counts = np.asarray(counts, dtype=np.int64)
        self._mask_id = mask_id
        most_frequent = np.argsort(-self._counts, kind="stable")[:FREQUENT]
        self._is_frequent = np.zeros(len(self._counts), dtype=bool)
        self._is_frequent[most_frequent] = True

    def rare_tokens(self, source_ids: Sequence[int]) -> RareTokens:
        """Finds the rarest tokens of a sentence; of tokens as rare the first.

        Args:
            source_ids: (S) its tokens, the end of sentence last.
        """
        tokens = without_eos(source_ids)
        if len(tokens) < FEWEST_TOKENS:
            return RareTokens(reason=f"fewer than {FEWEST_TOKENS} tokens")
        kinds = dict.fromkeys(token for token in tokens if token != self._mask_id)
        rarest = sorted(kinds, key=lambda token: self._counts[token])[:RAREST]
        if not rarest or self._is_frequent[rarest[0]]:
            return RareTokens(reason=NO_RARE_SENTENCE)
        return RareTokens(tuple(place for place, token in enumerate(tokens) if token in rarest))


def rare_positions(
    frequencies: TokenFrequencies | None, source_ids: Sequence[int]
) -> tuple[int, ...]:
    """Finds where the rarest tokens of a sentence are; none if it is not known what is frequent.

    Args:
        frequencies: how frequent tokens are, if that is known.
        source_ids: (S) the tokens, the end of sentence last.
    """
    return () if frequencies is None else frequencies.rare_tokens(source_ids).positions


def count_tokens(sentences: Iterable[Sequence[int]], vocab_size: int) -> NDArray[np.int64]:
    """Counts the tokens of sentences: (V)."""
    tokens = np.fromiter(chain.from_iterable(sentences), dtype=np.int64)
    return np.bincount(tokens, minlength=vocab_size)
