"""Tests of a difference between two systems by paired bootstrap resampling.

Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation". Sentences
are drawn with replacement, as many as there are; both systems are scored on the same draw. The
p-value is the share of draws on which the system that is better on the whole text is not better,
the text itself counted as one draw: (1 + #) / (1 + draws).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

Statistics = NDArray[np.float64]
# Draws, as in the paper.
RESAMPLES = 1000
_SHARE_OUTSIDE = 0.025


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Two systems on the same sentences."""

    name: str
    """Name of the measure, such as "loss" or "BLEU"."""
    baseline: float
    value: float
    low: float
    """95 % of the draws have a difference of at least this …"""
    high: float
    """… and at most this."""
    p_value: float
    """Chance of such a sign if there were no difference; 1 where there is none, and of a single
    sentence."""

    @property
    def difference(self) -> float:
        return self.value - self.baseline

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high


def draws(n_sentences: int, n_resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yields how often each sentence is in each draw, (N): the same for the same seed."""
    generator = np.random.default_rng(seed)
    for _ in range(n_resamples):
        chosen = generator.integers(n_sentences, size=n_sentences)
        # counts: their product with sums over sentences scores a draw
        yield np.bincount(chosen, minlength=n_sentences)


def compare_losses(
    baseline: Statistics,
    others: Statistics,
    n_tokens: NDArray[np.int64],
    *,
    n_resamples: int = RESAMPLES,
    seed: int = 1,
    name: str = "loss",
) -> list[PairedDifference]:
    """Compares losses per token, or other sums that are shared by tokens.

    baseline: (N) each sentence's loss, summed over its n_tokens; others: (R, N) of R systems.
    """
    # one product a draw gives tokens and losses of all systems
    sums = np.column_stack((n_tokens, baseline, others.T))
    drawn = np.stack([counts @ sums for counts in draws(len(sums), n_resamples, seed)])
    means, whole = drawn[:, 1:] / drawn[:, :1], sums.sum(axis=0)
    observed = whole[1:] / whole[0]
    return [
        _difference(name, observed[0], observed[i], means[:, i] - means[:, 0], len(sums))
        for i in range(1, len(observed))
    ]


def compare_labels(
    baseline: Sequence[str],
    others: Sequence[str],
    right: Sequence[str],
    *,
    n_resamples: int = RESAMPLES,
    seed: int = 1,
) -> list[PairedDifference]:
    numbers = {name: number for number, name in enumerate(sorted({*baseline, *others, *right}))}
    before, after, answers = (
        np.array([numbers[label] for label in labels]) for labels in (baseline, others, right)
    )
    # every example once: the scores themselves, before those of the draws
    whole = np.ones(len(right), dtype=np.int64)
    drawn = np.array(
        [
            [_label_scores(counts, labels, answers, len(numbers)) for labels in (before, after)]
            for counts in (whole, *draws(len(right), n_resamples, seed))
        ]
    )
    return [
        _difference(
            name,
            drawn[0, 0, place],
            drawn[0, 1, place],
            drawn[1:, 1, place] - drawn[1:, 0, place],
            len(right),
        )
        for place, name in enumerate(("accuracy", "macro F1"))
    ]


def _label_scores(
    counts: NDArray[np.int64], labels: NDArray[np.int64], right: NDArray[np.int64], n_labels: int
) -> tuple[float, float]:
    """Accuracy and macro F1 of (N) examples, each there `counts` times; see `labels.macro_f1`."""
    hit = labels == right
    n_right = np.bincount(right[hit], counts[hit], n_labels)
    total = np.bincount(labels, counts, n_labels) + np.bincount(right, counts, n_labels)
    f1 = 2.0 * n_right[total > 0.0] / total[total > 0.0]
    return 100.0 * float(n_right.sum() / counts.sum()), 100.0 * float(f1.mean())


class PairedScores:
    """Compares translations with those of a baseline by BLEU and chrF."""

    def __init__(
        self,
        baseline: Sequence[str],
        references: Sequence[Sequence[str]],
        *,
        n_resamples: int = RESAMPLES,
        seed: int = 1,
    ) -> None:
        self._references = [list(stream) for stream in references]
        self._draws = (len(baseline), n_resamples, seed)
        self._metrics: dict[str, BLEU | CHRF] = {"BLEU": BLEU(), "chrF2": CHRF()}
        self._baseline = {name: self._scores(name, baseline) for name in self._metrics}

    @property
    def baseline(self) -> dict[str, float]:
        return {name: float(scores[0]) for name, scores in self._baseline.items()}

    @property
    def signatures(self) -> dict[str, str]:
        return {name: str(metric.get_signature()) for name, metric in self._metrics.items()}

    def compare(self, hypotheses: Sequence[str]) -> list[PairedDifference]:
        """Compares other translations of the same sentences with the baseline."""
        differences = []
        for name, before in self._baseline.items():
            after = self._scores(name, hypotheses)
            drawn = after[1:] - before[1:]
            differences.append(_difference(name, before[0], after[0], drawn, len(hypotheses)))
        return differences

    def _scores(self, name: str, hypotheses: Sequence[str]) -> Statistics:
        """The score of the whole text, then of each draw: sums of the sentences' statistics."""
        metric = self._metrics[name]
        # Private, because sacreBLEU's public `PairedTest` draws its own samples (others than those
        # of the losses, from a seed in the environment), and `corpus_score` on each draw would
        # split every sentence into n-grams a thousand times. A test compares the two.
        extract = metric._extract_corpus_statistics
        statistics = np.asarray(extract(list(hypotheses), self._references))
        sums = [statistics.sum(axis=0), *(counts @ statistics for counts in draws(*self._draws))]
        score = metric._compute_score_from_stats
        return np.array([score(row.tolist()).score for row in sums])


def _difference(
    name: str, baseline: float, value: float, drawn: Statistics, n_sentences: int
) -> PairedDifference:
    # All draws of one sentence are that sentence, which tells nothing of others
    sign = np.sign(value - baseline) if n_sentences > 1 else 0.0
    # not "<=": an undefined score speaks against a difference, too
    n_against = int((~(drawn * sign > 0.0)).sum()) if sign else len(drawn)
    low, high = np.quantile(drawn, (_SHARE_OUTSIDE, 1.0 - _SHARE_OUTSIDE))
    # the text itself counts as one draw, so that p is never 0
    p_value = (1 + n_against) / (1 + len(drawn))
    return PairedDifference(name, float(baseline), float(value), float(low), float(high), p_value)
