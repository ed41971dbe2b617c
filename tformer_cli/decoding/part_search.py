"""From parts of lines in token ids to their hypotheses: batches, constraints, choice."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.data.tokenizer import EOS_ID
from tformer_cli.decoding.constraints import Constraints, constrained_search, holds
from tformer_cli.decoding.processors import make_processors
from tformer_cli.decoding.risk import by_expected_utility
from tformer_cli.decoding.search import Sentence, search
from tformer_cli.decoding.source_batches import LARGEST_LOGITS, plan_source_batches, source_batch
from tformer_cli.fast.continuous.continuous_search import ContinuousSearch
from tformer_cli.fast.native_search import NativeSearch
from tformer_cli.model.runtime import (
    Precision,
    StandardProducts,
    autocast,
    check_threads,
    is_out_of_memory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    from torch import Tensor

    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.decoding.hypothesis import Hypothesis
    from tformer_cli.model.transformer import Transformer

WIDER = 8
"""Times the beam of a second try, where constraints left the first one no way."""


class PartSearcher:
    """Searches the translations of sentences, those with constraints each by itself."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: DecodingConfig,
        device: torch.device,
        precision: Precision,
        *,
        banned: Sequence[Sequence[int]] = (),
        before_batch: Callable[[], None] | None = None,
        tell: Callable[[str], None] | None = None,
        captures: bool = True,
    ) -> None:
        """Connects a model with its tokenizer.

        `banned` tokens stand in no translation; what `before_batch` raises ends the search; `tell`
        is told, in a line, what takes a while before the first one. `captures`: whether CUDA graphs
        may be used.
        """
        self._model = model
        self._tokenizer = tokenizer
        self._config = config
        self._device = device
        self._precision = precision
        self._banned = banned
        self._before_batch = before_batch
        self._native = NativeSearch(model, tell)
        self._continuous = ContinuousSearch(model, device, precision, tell, captures=captures)
        self._has_room = True  # for the longest translations at once, as far as is known

    def with_model(self, model: Transformer) -> PartSearcher:
        """Makes the same searcher for another model of the same vocabulary."""
        other = copy(self)
        other._model = model
        other._native = self._native.with_model(model)
        other._continuous = self._continuous.with_model(model)
        return other

    def native_refusal(self) -> str | None:
        """Gives the reason why torch searches and not the compiled kernels; None if they do.

        It is asked again for every search, since heads may be switched off or listened to. Of a
        sentence only what is asked of itself counts: one with a prefix or constraints is torch's.
        """
        if self._device.type != "cpu":
            return f"the model is on {self._device}"
        if self._precision != "float32":
            return f"the model computes in {self._precision}"
        if self._banned:
            return "tokens are banned"
        return self._native.refusal(self._config)

    def _is_continuous(self) -> bool:
        """True if sentences without a prefix share places that are filled again and again."""
        return (
            self._device.type != "cpu"
            and self._has_room
            and not self._banned
            and self._continuous.refusal(self._config) is None
        )

    def search(self, parts: Sequence[Sentence]) -> list[list[Hypothesis]]:
        """Finds the hypotheses of each part, best first.

        Args:
            parts: sentences that the model can take whole.

        Raises:
            ValueError: if this process was forked from one that had computed with several threads.
        """
        check_threads()
        found = {
            index: self._wanted(self._constrained(part))
            for index, part in enumerate(parts)
            if part.is_constrained
        }
        free = [index for index in range(len(parts)) if index not in found]
        plain = [index for index in free if not parts[index].prefix]
        hypotheses = self._whole([parts[index].tokens for index in plain])
        if hypotheses is not None:
            found.update(zip(plain, map(self._wanted, hypotheses), strict=True))
            free = [index for index in free if index not in found]
        n_rows = self._config.n_candidates if self._config.sampling else self._config.beam_size
        most_sentences = LARGEST_LOGITS // (n_rows * self._model.vocab_size)
        lengths = [len(parts[index].tokens) + 1 for index in free]
        for batch in plan_source_batches(lengths, self._config.batch_tokens, most_sentences):
            places = [free[i] for i in batch]
            hypotheses = self._searched([parts[place] for place in places])
            found.update(zip(places, map(self._wanted, hypotheses), strict=True))
        return [found[index] for index in range(len(parts))]

    def _whole(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]] | None:
        """Finds the hypotheses of sentences of which nothing is asked, all at once.

        Returns:
            Them; None where that has to be done batch by batch.
        """
        if not sources:
            return None
        if self.native_refusal() is None:
            return self._native.search(sources, self._config, self._before_batch)
        if not self._is_continuous():
            return None
        try:
            return self._continuous.search(sources, self._config, self._before_batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Room for the longest translations at once is too much: batches grow with theirs. What was
        # taken is given back, and it is not tried again for every buffer.
        self._continuous = self._continuous.with_model(self._model)
        self._has_room = False
        return None

    def _searched(self, parts: Sequence[Sentence]) -> list[list[Hypothesis]]:
        """Finds the hypotheses of parts that make a batch."""
        source, source_mask = self._batch(parts)
        with self._computing():
            return search(self._model, parts, source, source_mask, self._config, self._banned)

    def _constrained(self, part: Sentence) -> list[Hypothesis]:
        """Finds the hypotheses of a part under its constraints, or without, if there is no way."""
        encoded = self._tokenizer.encode_batch(list(part.required))
        constraints = Constraints(
            required=tuple(tuple(ids) for ids in encoded if ids and min(ids) > EOS_ID),
            banned=tuple(
                phrase
                for phrase in part.banned
                if not any(holds(required, phrase) for required in part.required)
            ),
            token_bytes=self._tokenizer.piece_bytes,
        )
        processors = make_processors(
            self._config,
            [len(part.tokens)],
            self._model.config.max_positions,
            self._device,
            banned=self._banned,
            prefixes=[part.prefix],
        )
        source, source_mask = self._batch([part])
        with self._computing():
            for beam_size in (self._config.beam_size, WIDER * self._config.beam_size):
                config = replace(self._config, beam_size=beam_size)
                found = constrained_search(
                    self._model, source, source_mask, config, constraints, processors
                )
                if found:
                    break
        return found or self._searched([part])[0]

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Computes in the precision; where products need no setting of torch's, with the standard.

        The small products of attention need the standard setting, and changing it takes longer
        than one of them.
        """
        has_products = getattr(self._model, "output_product", None) is not None
        with (
            autocast(self._device, self._precision),
            StandardProducts() if has_products else nullcontext(),
        ):
            yield

    def _batch(self, parts: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
        if self._before_batch is not None:
            self._before_batch()
        sources = [part.tokens for part in parts]
        return source_batch(sources, self._model.config.max_positions, self._device)

    def _wanted(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """Chooses the hypotheses that are returned by their texts, where that is asked for."""
        config = self._config
        if config.risk == "none" and not config.distinct_texts:
            return hypotheses
        texts = self._tokenizer.decode_batch([found.token_ids for found in hypotheses])
        order = list(range(len(texts)))
        if config.risk != "none":
            order = by_expected_utility(texts, config.risk)
        if config.distinct_texts:
            order = list({texts[index]: index for index in reversed(order)}.values())[::-1]
        return [hypotheses[index] for index in order[: config.n_best]]
