"""A metric that extracts what it needs of a text once, for all scores that are made of it.

The score of the text, of a part of it, of one sentence and of a thousand resampled texts are all
functions of sums of the sentences' statistics.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU


class MeasuredMetric:
    """A metric of sacreBLEU on one set of references."""

    def __init__(self, metric: Metric, references: Sequence[Sequence[str]]) -> None:
        # Private, because a `corpus_score` for every part and every sentence would compute edit
        # distances and n-grams several times. Tests compare each use with the public functions.
        extract = cache(metric._extract_corpus_statistics)
        metric._extract_corpus_statistics = extract  # type: ignore[method-assign]
        self.metric = metric
        """The metric, for `PairedTest`; it wants texts that are tuples."""
        self.references = tuple(map(tuple, references))
        """The references, as the metric has remembered them."""
        self.less_is_better = type(metric).__name__ == "TER"
        """True for an error rate."""
        self._of_sentence = metric
        if isinstance(metric, BLEU):
            # Most sentences have no 4-gram in common with their reference (Chen & Cherry 2014)
            self._of_sentence = BLEU(effective_order=True)

    def score(self, hypotheses: Sequence[str], chosen: Sequence[int] | None = None) -> float:
        """Computes the score of a text, or of the chosen sentences of it; of none it is 0."""
        rows = self._statistics(hypotheses)
        return self._aggregate(self.metric, rows if chosen is None else rows[list(chosen)])

    def sentence_scores(self, hypotheses: Sequence[str]) -> list[float]:
        """Computes the score of each sentence; of BLEU with its effective order."""
        rows = self._statistics(hypotheses)
        return [self._aggregate(self._of_sentence, row[None]) for row in rows]

    def is_equal(self, hypotheses: Sequence[str], others: Sequence[str]) -> bool:
        """Returns whether two texts are the same to the metric in every sentence."""
        return np.array_equal(self._statistics(hypotheses), self._statistics(others))

    def _statistics(self, hypotheses: Sequence[str]) -> np.ndarray:
        return np.asarray(
            self.metric._extract_corpus_statistics(tuple(hypotheses), self.references)
        )

    @staticmethod
    def _aggregate(metric: Metric, rows: np.ndarray) -> float:
        if not len(rows):
            return 0.0
        return float(metric._aggregate_and_compute(rows.tolist()).score)
