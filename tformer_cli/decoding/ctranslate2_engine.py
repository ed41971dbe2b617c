"""Search by the CTranslate2 engine instead of tformer's own, with the same lines in and out."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tformer_cli.data.tokenizer import EOS_ID
from tformer_cli.decoding.hypothesis import Hypothesis
from tformer_cli.decoding.length_penalty import length_penalty
from tformer_cli.decoding.limits import longest_translation
from tformer_cli.decoding.translator import Translator
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.decoding.search import Sentence

SENTENCES_PER_BATCH = 64
"""Larger batches gain nothing on CPUs: the engine's products are already large enough."""


class CTranslate2Translator(Translator):
    """Translates with the engine; splitting, blank lines, order and text are `Translator`'s own.

    The engine divides a log-probability by T^α where tformer divides by ((5 + T)/6)^α, so its
    hypotheses are scored and ordered once more by tformer's penalty. With α = 0 both rank alike.
    """

    engine: Any
    """A `ctranslate2.Translator`; set by `use`."""

    def use(self, engine: Any) -> None:  # noqa: ANN401  # the package has no types
        """Sets the engine that searches."""
        self.engine = engine
        size = self._tokenizer.vocab_size
        self._names: list[str] = self._tokenizer.pieces(range(size))
        self._ids = {name: token for token, name in enumerate(self._names)}

    def _search(self, sentences: Sequence[Sentence]) -> list[list[Hypothesis]]:
        """Finds the hypotheses of each part; parts of one length have one limit and go together.

        Raises:
            UsageError: if a part has a prefix or constraints, which are for the own search.
        """
        if any(sentence.prefix or sentence.is_constrained for sentence in sentences):
            raise UsageError(
                "--engine: ctranslate2 does not support prefixes and constraints; omit it"
            )
        parts = [sentence.tokens for sentence in sentences]
        by_length: dict[int, list[int]] = defaultdict(list)
        for index, part in enumerate(parts):
            by_length[len(part)].append(index)
        # all are handed over before the first is waited for, so that no worker of the engine idles
        waiting = [
            (length, indices, self._start([parts[i] for i in indices], length))
            for length, indices in sorted(by_length.items(), reverse=True)
        ]
        found: dict[int, list[Hypothesis]] = {}
        for length, indices, results in waiting:
            for index, result in zip(indices, results, strict=True):
                found[index] = self._hypotheses(parts[index], result.result(), self._limit(length))
        return [found[index] for index in range(len(parts))]

    def _limit(self, n_source_tokens: int) -> int:
        return longest_translation(n_source_tokens, self.config, self._model.config.max_positions)

    def _start(self, parts: list[Sequence[int]], length: int) -> Any:  # noqa: ANN401
        config = self.config
        return self.engine.translate_batch(
            [[self._names[token] for token in part] for part in parts],
            max_batch_size=SENTENCES_PER_BATCH,
            beam_size=config.beam_size,
            num_hypotheses=config.beam_size,
            length_penalty=config.length_penalty,
            max_input_length=0,
            min_decoding_length=0,
            suppress_sequences=[[name] for name in self._names[:EOS_ID]],
            max_decoding_length=self._limit(length) + 1,  # the end of sentence counts here
            return_scores=True,
            asynchronous=True,
        )

    def _hypotheses(self, part: Sequence[int], result: Any, limit: int) -> list[Hypothesis]:  # noqa: ANN401
        by_tokens: dict[tuple[str, ...], Hypothesis] = {}
        for names, score in zip(result.hypotheses, result.scores, strict=True):
            tokens = tuple(names[:limit])
            if len(names) > limit:
                log_probability = self._forced(part, tokens)
            else:
                log_probability = score * (len(names) + 1) ** self.config.length_penalty
            hypothesis = self._hypothesis(tokens, log_probability, len(names) <= limit)
            by_tokens.setdefault(tokens, hypothesis)
        # sorting is stable: equal scores stay in the engine's order
        ranked = sorted(by_tokens.values(), key=lambda hypothesis: -hypothesis.score)
        return ranked[: self.config.n_best]

    def _forced(self, part: Sequence[int], tokens: Sequence[str]) -> float:
        """Log-probability of tokens and an end of sentence that the engine has not come to."""
        source = [self._names[token] for token in part]
        return float(sum(self.engine.score_batch([source], [list(tokens)])[0].log_probs))

    def _hypothesis(
        self, tokens: Sequence[str], log_probability: float, is_finished: bool
    ) -> Hypothesis:
        penalty = length_penalty(len(tokens) + 1, self.config.length_penalty)
        return Hypothesis(
            token_ids=tuple(self._ids[token] for token in tokens),
            log_probability=log_probability,
            score=log_probability / penalty,
            token_log_probabilities=(),
            is_finished=is_finished,
        )
