"""Search by the CTranslate2 engine instead of tformer's own."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, ClassVar

from tformer_cli.allow_list import unknown_setting
from tformer_cli.data.tokenizer import EOS_ID
from tformer_cli.decoding.config import BEAM_SEARCH
from tformer_cli.decoding.engine import demand_of
from tformer_cli.decoding.hypothesis import Hypothesis, length_penalty, longest_translation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.decoding.engine import SearchedModel, Sentence

SENTENCES_PER_BATCH = 64
"""Larger batches gain nothing on CPUs: the engine's products are already large enough."""


class CTranslate2Engine:
    """Searches with a model's export, whatever the model given computes with.

    The engine divides a log-probability by T^α where tformer divides by ((5 + T)/6)^α, so its
    hypotheses are scored and ordered once more by tformer's penalty. With α = 0 both rank alike.
    """

    name: ClassVar[str] = "ctranslate2"

    def __init__(self, engine: Any, tokenizer: Tokenizer) -> None:  # noqa: ANN401 - has no types
        """Takes a `ctranslate2.Translator` that has loaded the model's export."""
        self._engine = engine
        self._names, self._source_names = (
            side.pieces(range(side.vocab_size)) for side in (tokenizer.target, tokenizer.source)
        )

    def supports(self, config: DecodingConfig, model: SearchedModel) -> str | None:  # noqa: ARG002
        """See `SearchEngine`; models that it does not know cannot be exported."""
        unknown = unknown_setting(config, BEAM_SEARCH)
        return None if unknown is None else f"it knows beam search alone, not {unknown}"

    def takes(self, sentence: Sentence) -> str | None:
        """See `SearchEngine`."""
        return demand_of(sentence)

    def prepare(self, model: SearchedModel) -> CTranslate2Search:
        """See `SearchEngine`."""
        return CTranslate2Search(self._engine, self._names, self._source_names, model.max_positions)


class CTranslate2Search:
    """Searches sentences of one length, and so of one limit, together."""

    def __init__(
        self,
        engine: Any,  # noqa: ANN401 - has no types
        names: list[str],
        source_names: list[str],
        max_positions: int,
    ) -> None:
        """Takes the engine, both vocabularies in the engine's words, and the model's limit."""
        self._engine = engine
        self._names, self._source_names = names, source_names
        self._ids = {name: token for token, name in enumerate(names)}
        self._max_positions = max_positions

    def search(
        self,
        sentences: Sequence[Sentence],
        config: DecodingConfig,
        before_batch: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        """See `PreparedSearch`."""
        before_batch()
        parts = [sentence.tokens for sentence in sentences]
        by_length: dict[int, list[int]] = defaultdict(list)
        for index, part in enumerate(parts):
            by_length[len(part)].append(index)
        # all are handed over before the first is waited for, so that no worker of the engine idles
        waiting = [
            (length, indices, self._start([parts[i] for i in indices], length, config))
            for length, indices in sorted(by_length.items(), reverse=True)
        ]
        found: dict[int, list[Hypothesis]] = {}
        for length, indices, results in waiting:
            for index, result in zip(indices, results, strict=True):
                found[index] = self._hypotheses(
                    parts[index], result.result(), self._limit(length, config), config
                )
        return [found[index] for index in range(len(parts))]

    def _limit(self, n_source_tokens: int, config: DecodingConfig) -> int:
        return longest_translation(n_source_tokens, config, self._max_positions)

    def _start(self, parts: list[Sequence[int]], length: int, config: DecodingConfig) -> Any:  # noqa: ANN401
        return self._engine.translate_batch(
            [[self._source_names[token] for token in part] for part in parts],
            max_batch_size=SENTENCES_PER_BATCH,
            beam_size=config.beam_size,
            num_hypotheses=config.beam_size,
            length_penalty=config.length_penalty,
            max_input_length=0,
            min_decoding_length=0,
            suppress_sequences=[[name] for name in self._names[:EOS_ID]],
            max_decoding_length=self._limit(length, config) + 1,  # the end of sentence counts here
            return_scores=True,
            asynchronous=True,
        )

    def _hypotheses(
        self,
        part: Sequence[int],
        result: Any,  # noqa: ANN401
        limit: int,
        config: DecodingConfig,
    ) -> list[Hypothesis]:
        by_tokens: dict[tuple[str, ...], Hypothesis] = {}
        for names, score in zip(result.hypotheses, result.scores, strict=True):
            tokens = tuple(names[:limit])
            if len(names) > limit:
                log_probability = self._forced(part, tokens)
            else:
                log_probability = score * (len(names) + 1) ** config.length_penalty
            hypothesis = self._hypothesis(tokens, log_probability, len(names) <= limit, config)
            by_tokens.setdefault(tokens, hypothesis)
        # sorting is stable: equal scores stay in the engine's order
        ranked = sorted(by_tokens.values(), key=lambda hypothesis: -hypothesis.score)
        return ranked[: config.n_best]

    def _forced(self, part: Sequence[int], tokens: Sequence[str]) -> float:
        """Log-probability of tokens and an end of sentence that the engine has not come to."""
        source = [self._source_names[token] for token in part]
        return float(sum(self._engine.score_batch([source], [list(tokens)])[0].log_probs))

    def _hypothesis(
        self,
        tokens: Sequence[str],
        log_probability: float,
        is_finished: bool,
        config: DecodingConfig,
    ) -> Hypothesis:
        penalty = length_penalty(len(tokens) + 1, config.length_penalty)
        return Hypothesis(
            token_ids=tuple(self._ids[token] for token in tokens),
            log_probability=log_probability,
            score=log_probability / penalty,
            token_log_probabilities=(),
            is_finished=is_finished,
        )
