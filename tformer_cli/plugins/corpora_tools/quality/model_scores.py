"""Scores of pairs by translation models: dual conditional cross-entropy.

Source: Junczys-Dowmunt 2018, "Dual Conditional Cross-Entropy Filtering of Noisy Parallel Corpora",
section 2: exp(-(|H_A(y|x) - H_B(x|y)| + (H_A(y|x) + H_B(x|y)) / 2)), with the mean cross-entropy of
the tokens of a side given the other, by a model A of this direction and a model B of the other. Of
only one model the score is exp(-H_A(y|x)).
"""

import json
import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tformer_cli.errors import DataError, UsageError
from tformer_cli.plugins.corpora_tools.quality.checks import SCORE
from tformer_cli.text.corpora import SentencePair, corpus_file
from tformer_cli.text.lines import read_lines
from tformer_cli.wording import count_of

Scores = npt.NDArray[np.float32]
Sides = tuple[str, str]
# Pairs at the beginning whose texts must be those of the corpus.
PAIRS_COMPARED = 1000


class ModelScores:
    """The score of each pair of a corpus, and the least that is good enough."""

    def __init__(self, files: Sequence[str], worst_share: float) -> None:
        if len(files) > 2:
            raise UsageError(
                f"--scores: found {len(files)} files; name one, or one for each direction"
            )
        read = [_log_probabilities(file) for file in files]
        entropies = [-values for values, _ in read]
        self.bare = [
            file
            for file, (values, sides) in zip(files, read, strict=True)
            if len(values) and not sides
        ]
        """Files whose lines are mere numbers."""
        if len({len(scores) for scores in entropies}) > 1:
            counts = " and ".join(f"{len(scores):,}" for scores in entropies)
            raise DataError(
                f"{', '.join(files)}: different numbers of lines ({counts}); score the same pairs"
            )
        # of one file the difference below is 0, and the score its likelihood
        mean = sum(entropies) / np.float32(len(entropies))
        self.values: Scores = np.exp(-(np.abs(entropies[0] - entropies[-1]) + mean))
        self.least = float(np.quantile(self.values, worst_share)) if len(self.values) else 0.0
        self._files, self._share = ", ".join(files), worst_share
        self._sides = [(file, sides) for file, (_, sides) in zip(files, read, strict=True) if sides]

    def check_length(self, n_pairs: int) -> None:
        if len(self.values) != n_pairs:
            raise DataError(
                f"{self._files}: has {count_of(len(self.values), 'score')} of "
                f"{count_of(n_pairs, 'pair')}; score the same pairs"
            )

    def check_pairs(self, pairs: Sequence[SentencePair]) -> None:
        """Checks that the scores belong to a corpus that begins with these pairs."""
        directions = []
        for file, scored in self._sides:
            signs = [_direction(*both) for both in zip(scored, pairs, strict=False)]
            if 2 * signs.count(0) > len(signs):
                raise DataError(
                    f"{file}, line {signs.index(0) + 1}: scores a different pair than the "
                    "corpus has; score the same pairs"
                )
            directions.append(sum(signs) < 0)
        if len(directions) == 2 and directions[0] == directions[1]:
            raise DataError(
                f"{self._files}: have scores of the same direction; name one, or score the other "
                "direction"
            )

    def find(self, place: int) -> dict[str, str]:
        """Returns why the pair at a place, from 0, is doubtful, by the check's name; or nothing."""
        value = float(self.values[place])
        if value >= self.least:
            return {}
        return {SCORE: f"score {value:.3g} is among the lowest {self._share:.3g} of all"}


def _direction(scored: Sides, pair: SentencePair) -> int:
    """Returns 1 if scored as it is, -1 the other way around, 0 if it is another pair."""
    return (scored == pair) or -(scored[::-1] == pair)


def _log_probabilities(file: str) -> tuple[Scores, list[Sides]]:
    """Reads the mean log-probability of the tokens of each line, and the first pairs."""
    scores, sides = array("f"), list[Sides]()
    for number, line in enumerate(read_lines(corpus_file(file, "")), start=1):
        try:
            if line[:1] == "{":
                record = json.loads(line)
                scores.append(_of_object(record))
                if number == len(sides) + 1 <= PAIRS_COMPARED and {"source", "target"} <= {*record}:
                    sides.append((record["source"], record["target"]))
            else:
                scores.append(float(line))
        except (ValueError, KeyError, TypeError, RecursionError):
            scores.append(math.nan)
        if not -math.inf < scores[-1] <= 0.0:
            raise DataError(
                f"{file}, line {number}: is not a mean log-probability, a number of at most 0; "
                "write it with `tformer score --format jsonl`"
            )
    values = np.frombuffer(scores, dtype=np.float32) if scores else np.empty(0, dtype=np.float32)
    return values, sides


def _of_object(record: dict[str, Any]) -> float:
    """The mean of an object that `tformer score` has written."""
    values = record["token_log_probabilities"]
    return sum(values) / len(values) if values else 0.0
