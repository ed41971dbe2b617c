"""Search in torch: padded batches, and the choice of the search by their settings."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.operations import OneDnnProducts, StandardProducts
from tformer_cli.runtime import autocast, check_threads, free_gpu_memory, is_out_of_memory
from tformer_cli.search.beam_search import beam_search, diverse_beam_search
from tformer_cli.search.config import ANY_SEARCH, PLAIN_SEARCH
from tformer_cli.search.constrained_search import satisfying_search
from tformer_cli.search.engine import EngineUnavailableError, PromptedModel, Sentence
from tformer_cli.search.hypothesis import SourceAttention, length_divisor, longest_translation
from tformer_cli.search.models import ShortlistedModel
from tformer_cli.search.processors import StepRows, make_processors, process
from tformer_cli.search.sampling import greedy_search, sample
from tformer_cli.search.scoring import attended_pairs, score_pairs, takes_targets
from tformer_cli.search.source_batches import (
    Room,
    gpu_room,
    plan_source_batches,
    source_batch,
)
from tformer_cli.settings import unknown_setting
from tformer_cli.text.tokenizer import BOS_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.model.config import Precision
    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.engine import DecodingModel
    from tformer_cli.search.hypothesis import CrossHead, Hypothesis
    from tformer_cli.search.processors import ScoreProcessor


class TorchSearch:
    """Searches sentences with one model, those with constraints each by itself."""

    def __init__(
        self, model: DecodingModel, device: torch.device | str, precision: Precision = "float32"
    ) -> None:
        """Takes a model in evaluation mode; see `TorchEngine`."""
        self._model = model
        self._device = torch.device(device)
        self._precision = precision
        self._free_memory = free_gpu_memory(self._device)

    def _room(self, n_rows: int) -> Room:
        """Returns the room for batches of lines with this many hypotheses each."""
        shape = getattr(self._model, "config", None)
        if not self._free_memory or not isinstance(shape, ModelConfig):  # several models have none
            return Room()
        return gpu_room(shape, n_rows, self._free_memory)

    def search(
        self,
        sentences: Sequence[Sentence],
        config: DecodingConfig,
        before_batch: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        """See `PreparedSearch`."""
        check_threads()
        lists: dict[int, list[Hypothesis]] = {}
        by_length: dict[int, list[int]] = {}
        prompted = self._model if isinstance(self._model, PromptedModel) else None
        for index, sentence in enumerate(sentences):
            if sentence.constraints is not None:
                before_batch()
                lists[index] = self._search_constrained(sentence, config)
            else:
                # Prompts are continued together only if equally long; sources are padded
                length = 0 if prompted is None else len(sentence.tokens)
                by_length.setdefault(length, []).append(index)
        n_rows = config.n_candidates if config.sampling else config.beam_size
        room = self._room(n_rows)
        config = replace(config, batch_tokens=config.batch_tokens or room.tokens)
        # A step has the logits of all rows, so a wide beam leaves room for fewer sentences
        most_sentences = room.logits // (n_rows * self._model.vocab_size)
        for length, alike in sorted(by_length.items()):
            own = config if prompted is None else prompted.within(config, length)
            lengths = [len(sentences[index].tokens) + 1 for index in alike]
            for batch in plan_source_batches(lengths, config.batch_tokens, most_sentences):
                indices = [alike[place] for place in batch]
                before_batch()
                results = self._search_batch([sentences[index] for index in indices], own)
                lists.update(zip(indices, results, strict=True))
        return self._add_attention(sentences, [lists[i] for i in range(len(sentences))], config)

    def _add_attention(
        self,
        sentences: Sequence[Sentence],
        lists: list[list[Hypothesis]],
        config: DecodingConfig,
    ) -> list[list[Hypothesis]]:
        """Adds the attention of hypotheses, by a forced pass; not for ensembles."""
        if not (any(sentence.heads for sentence in sentences) and takes_targets(self._model)):
            return lists
        by_heads: dict[tuple[CrossHead, ...], list[tuple[int, int]]] = {}
        for index, (sentence, hypotheses) in enumerate(zip(sentences, lists, strict=True)):
            own = by_heads.setdefault(sentence.heads, [])
            own += ((index, rank) for rank in range(len(hypotheses)))
        by_heads.pop((), None)
        for heads, places in by_heads.items():
            # Without autocast: the weights are read, and the products of a search are not
            with self._products():
                rows = attended_pairs(
                    self._model,
                    [sentences[index].tokens for index, _ in places],
                    [lists[index][rank].token_ids for index, rank in places],
                    heads,
                    batch_tokens=config.torch_batch_tokens,
                    device=self._device,
                )
            for (index, rank), weights in zip(places, rows, strict=True):
                lists[index][rank] = replace(
                    lists[index][rank], attention=SourceAttention(heads, weights)
                )
        return lists

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        config: DecodingConfig,
        heads: tuple[CrossHead, ...] = (),
    ) -> list[Hypothesis]:
        """See `PreparedScoring`."""
        if not takes_targets(self._model):
            raise EngineUnavailableError("it scores with a single model")
        with self._computing():
            scored = score_pairs(self._model, sources, targets, config, device=self._device)
        sentences = [Sentence(tokens=tuple(source), heads=heads) for source in sources]
        hypotheses = self._add_attention(sentences, [[hypothesis] for hypothesis in scored], config)
        return [hypothesis for (hypothesis,) in hypotheses]

    def _search_batch(
        self, sentences: Sequence[Sentence], config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        """Finds the hypotheses of sentences that make a batch, in parts where memory is short."""
        try:
            with self._computing():
                return search(self._model, sentences, *self._batch(sentences), config)
        except (RuntimeError, MemoryError) as error:
            if len(sentences) == 1 or not is_out_of_memory(error):
                raise
        # Outside of the handler, whose traceback keeps tensors alive
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        middle = len(sentences) // 2
        halves = sentences[:middle], sentences[middle:]
        return [hypotheses for half in halves for hypotheses in self._search_batch(half, config)]

    def _search_constrained(self, sentence: Sentence, config: DecodingConfig) -> list[Hypothesis]:
        """Finds hypotheses under a sentence's constraints; none if there is no way."""
        if sentence.constraints is None:
            return []
        processors = make_processors(
            config,
            [len(sentence.tokens)],
            self._model.max_positions,
            self._device,
            prefixes=[sentence.prefix],
            n_given=[sentence.n_given],
        )
        batch = self._batch([sentence])
        listed = _with_candidates(self._model, [sentence])
        limit = longest_translation(
            len(sentence.tokens), config, self._model.max_positions, sentence.n_given
        )

        def start(most_rows: int, most_steps: int) -> TorchSteps:  # noqa: ARG001
            return TorchSteps(listed, *batch, most_steps, processors)

        with self._computing():
            n_forced = len(sentence.prefix)
            hypotheses = satisfying_search(start, limit, config, sentence.constraints, n_forced)
            if hypotheses and config.coverage_penalty:
                hypotheses = _penalize_coverage(
                    self._model, self._device, sentence, hypotheses, config
                )
        return hypotheses

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Computes in the precision, and every row of a float32 product by itself."""
        with autocast(self._device, self._precision), self._products():
            yield

    def _products(self) -> AbstractContextManager[object]:
        """Computes every row of a float32 product by itself.

        A model with its own products uses torch's only for attention: these small products need the
        standard setting, and changing it takes longer than one of them.
        """
        if getattr(self._model, "output_product", None) is not None:
            return StandardProducts()
        return OneDnnProducts() if self._device.type == "cpu" else nullcontext()

    def _batch(self, sentences: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
        sources = [sentence.tokens for sentence in sentences]
        eos = self._model.source_eos
        return source_batch(sources, self._model.max_positions, self._device, eos=eos)


class TorchSteps:
    """The `constraints.Steps` of a model of torch's."""

    @torch.inference_mode()
    def __init__(
        self,
        model: DecodingModel,
        source: Tensor,
        source_mask: Tensor,
        most_steps: int,
        processors: Sequence[ScoreProcessor] = (),
    ) -> None:
        """Encodes a sentence."""
        self._model = model
        self._processors = processors
        self._device = source.device
        memory = model.encode(source, source_mask)
        self._cache = model.start_cache(memory, source_mask, 1, most_steps)

    @torch.inference_mode()
    def step(
        self, parents: Sequence[int], histories: Sequence[tuple[int, ...]]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """See `Steps`."""
        if histories[0]:  # the first step has nothing before it
            self._cache.reorder(torch.tensor(parents, device=self._device), [0])
        last = torch.tensor([history[-1] if history else BOS_ID for history in histories])
        logits = self._model.decode_step(last.to(self._device), self._cache)
        own = logits.float().log_softmax(dim=-1)
        tokens = torch.tensor(histories, dtype=torch.int64, device=self._device)
        names = torch.zeros(len(histories), dtype=torch.int64, device=self._device)
        rows_so_far = StepRows(tokens.view(len(histories), -1), names, own)
        scores = process(self._processors, rows_so_far)
        return scores.cpu().numpy(), own.cpu().numpy()


def search(
    model: DecodingModel,
    sentences: Sequence[Sentence],
    source: Tensor,
    source_mask: Tensor,
    config: DecodingConfig,
) -> list[list[Hypothesis]]:
    """Translates a batch as its settings say: (B, S) ids that end with `</s>`, and their mask."""
    unknown = unknown_setting(config, ANY_SEARCH)
    if unknown is not None:
        raise ValueError(f"the search does not know the setting {unknown}")
    # With a shortlist around it a model could not be given whole translations
    whole_model, model = model, _with_candidates(model, sentences)
    prefixes = [sentence.prefix for sentence in sentences]
    is_plain = unknown_setting(config, PLAIN_SEARCH) is None
    # A beam of one finds the same with more to keep in order
    if is_plain and config.beam_size == 1 and not any(prefixes):
        return greedy_search(model, source, source_mask, config)
    # Diverse beam search treats each group as a sentence, which needs its own rules
    n_groups = 1 if config.sampling else config.diversity_groups
    processors = make_processors(
        config,
        [len(sentence.tokens) for sentence in sentences for _ in range(n_groups)],
        model.max_positions,
        source.device,
        prefixes=[prefix for prefix in prefixes for _ in range(n_groups)],
        n_given=[sentence.n_given for sentence in sentences for _ in range(n_groups)],
    )
    n_given = [sentence.n_given for sentence in sentences]
    if config.sampling:
        keys = [sentence.key for sentence in sentences]
        return sample(model, source, source_mask, config, keys, processors, n_given)
    if n_groups > 1:
        return diverse_beam_search(model, source, source_mask, config, processors, n_given)
    has_coverage = config.coverage_penalty != 0.0
    lists = beam_search(
        model,
        source,
        source_mask,
        # The penalty may put any of them first, so none may be given up early
        replace(config, n_best=config.beam_size) if has_coverage else config,
        processors=processors,
        n_prefixes=n_given,
        stops_early=not has_coverage,
    )
    if not has_coverage:
        return lists
    return [
        _penalize_coverage(whole_model, source.device, sentence, hypotheses, config)
        for sentence, hypotheses in zip(sentences, lists, strict=True)
    ]


def _with_candidates(model: DecodingModel, sentences: Sequence[Sentence]) -> DecodingModel:
    if not any(sentence.candidates for sentence in sentences):
        return model
    return ShortlistedModel(model, [sentence.candidates for sentence in sentences])


def _penalize_coverage(
    model: DecodingModel,
    device: torch.device,
    sentence: Sentence,
    hypotheses: Sequence[Hypothesis],
    config: DecodingConfig,
) -> list[Hypothesis]:
    """Adds the coverage penalty to the scores of a sentence's hypotheses and ranks them again."""
    # The attention comes from a forced pass over the finished hypotheses
    if not takes_targets(model):
        raise TypeError("the coverage penalty needs a single model")
    forced = score_pairs(
        model,
        [sentence.tokens] * len(hypotheses),
        [hypothesis.token_ids for hypothesis in hypotheses],
        config,
        device=device,
    )
    scored = [
        replace(
            hypothesis,
            # The search's own sum stays to the bit; the forced pass adds only its penalty
            score=hypothesis.score
            + scored_pair.score
            - scored_pair.log_probability / length_divisor(scored_pair.n_tokens, config),
        )
        for hypothesis, scored_pair in zip(hypotheses, forced, strict=True)
    ]
    return sorted(scored, key=lambda hypothesis: -hypothesis.score)[: config.n_searched]
