"""Minimum-Bayes-risk decoding: the candidate that all candidates agree with most.

Each candidate is compared with every other as if that were the reference; the one with the highest
mean score is first (Kumar & Byrne 2004; with samples, Eikema & Aziz 2020). Scores are sacreBLEU's
for sentences.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Utility = Literal["chrf", "bleu"]


def by_expected_utility(texts: Sequence[str], utility: Utility) -> list[int]:
    """Ranks candidates.

    Args:
        texts: the candidates; equal ones, as samples may be, count as often as they occur.
        utility: "chrf" (chrF2) or "bleu" (smoothed, with effective order).

    Returns:
        Indices of all candidates, best first; of equal worth the earlier first.
    """
    score = _sentence_score(utility)
    counts = Counter(texts)
    worth = {
        text: sum(score(text, other) * n for other, n in counts.items() if other != text)
        + 100.0 * (counts[text] - 1)
        for text in counts
    }
    return sorted(range(len(texts)), key=lambda index: -worth[texts[index]])


def _sentence_score(utility: Utility) -> Callable[[str, str], float]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF() if utility == "chrf" else BLEU(effective_order=True)
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)
