"""Texts in windows: tokens read at once, the new ones among them, and sums of their scores.

A text is read in windows. With `<s>` before each, as the model was trained, a window of W positions
predicts W tokens; without it, all its tokens but the first, and the next one after it. The next
window begins `stride` tokens later, and only its new tokens count: each token but those of the
first window has at least W - stride tokens before it. With a stride of W every token is read once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.model.config import ModelConfig

TextScorer = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], list[list[float]]]
"""Computes log p of each target token, given its context."""
_WINDOWS_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class TextScores:
    """Scores of texts, all tokens alike."""

    loss: float
    """Mean -ln p of a token, in nats."""
    bits_per_byte: float
    """Σ -log₂ p of all tokens by the bytes of the texts in UTF-8."""
    n_tokens: int
    """Tokens that were predicted."""
    n_bytes: int
    """Bytes of the texts; the end of a text, where it is predicted, is one."""

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        # Above 709 the exponential overflows
        return math.exp(min(self.loss, 700.0))


class TextWindow(NamedTuple):
    """Some tokens of a text: those read, those predicted, and how many are new."""

    text: int
    """Number of the text."""
    read: list[int]
    """Tokens that are read."""
    predicted: list[int]
    """The token after each."""
    n_new: int
    """Number of new tokens at the end, which no earlier window predicted."""

    @property
    def context(self) -> list[int]:
        """Tokens that are read before the first new one."""
        return self.read[: len(self.read) - self.n_new + 1]

    @property
    def target(self) -> list[int]:
        """The tokens that are new."""
        return self.predicted[len(self.predicted) - self.n_new :]


def text_scores(log_probabilities: Sequence[Sequence[float]], n_bytes: int) -> TextScores:
    """Totals of `score_texts` over texts of n_bytes bytes."""
    n_tokens = sum(map(len, log_probabilities))
    total = -math.fsum(value for text in log_probabilities for value in text)
    return TextScores(
        # Without tokens nothing is lost, and nothing may be divided by 0
        loss=total / max(1, n_tokens),
        bits_per_byte=total / math.log(2.0) / max(1, n_bytes),
        n_tokens=n_tokens,
        n_bytes=n_bytes,
    )


def text_windows(
    number: int, ids: Sequence[int], window: int, stride: int, config: ModelConfig
) -> Iterator[TextWindow]:
    """Divides the tokens of a text; see the head of this file."""
    tokens = [*ids, EOS_ID] if config.target_eos else list(ids)
    begin = [BOS_ID] if config.target_bos else []
    # Without `<s>` nothing predicts the first token, so it counts as done
    n_done, start = 1 - len(begin), 0
    while n_done < len(tokens):
        read = [*begin, *tokens[start : start + window - len(begin)]]
        predicted = tokens[start + 1 - len(begin) : start + 1 - len(begin) + window]
        n_new = start + 1 - len(begin) + len(predicted) - n_done
        yield TextWindow(number, read[: len(predicted)], predicted, n_new)
        n_done += n_new
        start += stride


def scored_windows(
    scorer: TextScorer,
    texts: Sequence[Sequence[int]],
    config: ModelConfig,
    *,
    window: int,
    stride: int,
    before_batch: Callable[[], None],
) -> list[list[float]]:
    """Computes log p of tokens as `search.text_scoring.score_texts` does."""
    scored: list[list[float]] = [[] for _ in texts]
    windows = [
        chunk
        for number, ids in enumerate(texts)
        for chunk in text_windows(number, ids, window, stride, config)
    ]
    for start in range(0, len(windows), _WINDOWS_AT_ONCE):
        before_batch()
        chunks = windows[start : start + _WINDOWS_AT_ONCE]
        rows = scorer([chunk.context for chunk in chunks], [chunk.target for chunk in chunks])
        for chunk, row in zip(chunks, rows, strict=True):
            scored[chunk.text] += row
    return scored
