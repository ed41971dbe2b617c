"""Search engines: their interface, that of torch, and the choice. Loads torch only to search.

A translator is given engines in the order of preference. For every call an engine is asked whether
it supports settings and model (`supports`), which sentences it takes (`takes`), is prepared once
for a model (`prepare`), and searches (`search`). One that refuses gives its reason in a line; one
that turns out to be unavailable (no compiler, too little memory) is left aside from then on.

A model is whatever has the methods of `DecodingModel`: a Transformer, an ensemble, a model whose
attention is recorded, a table of probabilities in a test.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

from tformer_cli.errors import UsageError
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.hypothesis import never_interrupt
from tformer_cli.settings import dataclass
from tformer_cli.text.tokenizer import EOS_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.model.config import ModelConfig
    from tformer_cli.search.constraints import Constraints
    from tformer_cli.search.hypothesis import CrossHead, Hypothesis


class SearchedModel(Protocol):
    """A model as far as lines are prepared for it: its sizes."""

    @property
    def vocab_size(self) -> int:
        """V, tokens of the vocabulary."""

    @property
    def max_positions(self) -> int:
        """Longest sentence in tokens, specials included, that it reads or writes."""

    @property
    def source_eos(self) -> bool:
        """True if its source sentences end with `</s>`; see `ModelConfig.source_eos`."""


class DecodingCache(Protocol):
    """State of a model between two steps of B sentences with W hypotheses each."""

    @property
    def beam_size(self) -> int:
        """W, rows for each sentence."""

    def reorder(self, rows: Tensor, sentences: Sequence[int]) -> None:
        """Keeps and rearranges rows; see `model.cache.DecoderCache.reorder`."""


@runtime_checkable
class DecodingModel(SearchedModel, Protocol):
    """A model that a search can run on, step by step."""

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Computes the memory (B, S, …) of (B, S) token ids; the mask is True at tokens."""

    def start_cache(
        self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int
    ) -> DecodingCache:
        """Prepares the decoding of at most `max_length` positions, `beam_size` rows a sentence."""

    def decode_step(self, tokens: Tensor, cache: Any) -> Tensor:  # noqa: ANN401 - its own cache
        """Reads one more token of each row, (B·W); returns logits (B·W, V) of the next."""


@runtime_checkable
class StoredModel(SearchedModel, Protocol):
    """A model whose weights are arrays; a torch model is made only if an engine needs it."""

    @property
    def config(self) -> ModelConfig:
        """Its settings."""

    @property
    def in_integers(self) -> bool:
        """True if its matrices are int8, or are to be."""

    def arrays(self) -> AbstractContextManager[Mapping[str, NDArray[Any] | memoryview]]:
        """Opens its weights by their names in a model directory; int8 ones with their scales."""

    def release(self, array: NDArray[Any] | memoryview) -> None:
        """Releases the memory-mapped pages of an array."""

    def existing_model(self) -> DecodingModel | None:
        """The same model in torch, if it has been made: it may then have been changed, too."""

    def make(self) -> DecodingModel:
        """Returns the same model in torch; made once."""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence to translate, with the demands on its translation."""

    tokens: tuple[int, ...]
    """The source in token ids, without special tokens."""
    key: int = 0
    """Seed of the sampling."""
    prefix: tuple[int, ...] = ()
    """Tokens the translation begins with."""
    n_start: int = 0
    """The first tokens of `prefix` that all translations begin with, such as the name of a
    language; limits of length count them."""
    constraints: Constraints | None = None
    """Phrases it holds or does not hold; then it must be searched by itself."""
    candidates: tuple[int, ...] = ()
    """Tokens that it may consist of, ascending, 0 to the end of sentence among them; empty: all."""
    heads: tuple[CrossHead, ...] = ()
    """Heads whose weights to keep in hypotheses; see `SourceAttention`. Does not change results."""

    @property
    def n_given(self) -> int:
        """Tokens of the prefix that were asked for, which no limit of length counts."""
        return len(self.prefix) - self.n_start


@dataclass(frozen=True, eq=False)
class Shortlist:
    """For each source token the target tokens that may translate it.

    Output projection and softmax over about 1,000 instead of all tokens take a fraction of the
    time, which is much of a small model's. Source: Jean et al. 2015, "On Using Very Large Target
    Vocabulary for Neural Machine Translation", section 3.2.
    """

    first: int
    """The first ids of the target vocabulary, which belong to every sentence's list."""
    offsets: NDArray[np.int64]
    """(V + 1) where the list of each source token begins in `targets`, and the last one ends."""
    targets: NDArray[np.int32]
    """Target ids, list after list."""

    def candidates(self, tokens: Iterable[int], more: Iterable[int] = ()) -> tuple[int, ...]:
        """Returns what the translation of a sentence may consist of."""
        import numpy as np

        n_lists = len(self.offsets) - 1
        known = [token for token in {*tokens, EOS_ID} if token < n_lists]
        lists = [self.targets[self.offsets[token] : self.offsets[token + 1]] for token in known]
        # Special tokens among them: without its end a translation would never stop
        always = np.arange(max(self.first, EOS_ID + 1))
        # Ascending and each once, as `Sentence.candidates` must be
        joined = np.unique(np.concatenate([always, np.fromiter(more, np.int64), *lists]))
        return tuple(joined.tolist())


class EngineUnavailableError(Exception):
    """An engine cannot search after all; the message is the reason."""


class PreparedSearch(Protocol):
    """An engine that is ready to search with one model."""

    def search(
        self,
        sentences: Sequence[Sentence],
        config: DecodingConfig,
        before_batch: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        """Finds the hypotheses of sentences that the model can take whole."""


@runtime_checkable
class PreparedScoring(Protocol):
    """A prepared search that also scores translations that are given."""

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        config: DecodingConfig,
        heads: tuple[CrossHead, ...] = (),
    ) -> list[Hypothesis]:
        """Scores N translations of N sources, in token ids without special tokens.

        They carry the attention of `heads`, as a search that listens to these gives it.
        """


@runtime_checkable
class PreparedRecording(Protocol):
    """A prepared search that also says what the attentions of its model read and give."""

    def record(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """Reads a pair, in token ids without special tokens; scoring.h lists what it returns."""


class SearchEngine(Protocol):
    """A way to search for translations."""

    @property
    def name(self) -> str:
        """Name of the engine, a value of `--engine`."""

    def supports(self, config: DecodingConfig, model: SearchedModel) -> str | None:
        """Returns why it cannot search with a model and settings; None if it can.

        Settings and values are compared with those that it knows. Nothing is computed or compiled;
        it is asked for every search, since a model may be changed in between.
        """

    def takes(self, sentence: Sentence) -> str | None:
        """Returns why it cannot meet the demands on a sentence; None if it can."""

    def prepare(self, model: SearchedModel) -> PreparedSearch:
        """Gets ready to search with a model that it supports; this may take long."""


class Choice(NamedTuple):
    """The engine that searches, and why others do not."""

    name: str
    reasons: dict[str, str]
    """By the names of the engines that are preferred to it."""


class Searcher:
    """Searches with the first engine that can, sentence by sentence."""

    def __init__(
        self,
        model: SearchedModel,
        engines: Sequence[SearchEngine],
        before_batch: Callable[[], None] | None = None,
        scorers: Sequence[SearchEngine] = (),
    ) -> None:
        """Takes engines, the preferred ones first, and more that only score; see `search`."""
        self._model = model
        self._engines = list(engines)
        self._scorers = list(scorers)
        self._before_batch = before_batch or never_interrupt
        self._prepared: dict[str, PreparedSearch] = {}
        self._unavailable: dict[str, str] = {}

    def choice(self, config: DecodingConfig, sentence: Sentence) -> Choice:
        """Chooses the engine of a sentence, and prepares it."""
        reasons: dict[str, str] = {}
        for engine in self._engines:
            reason = engine.takes(sentence) or self._refusal(engine, config)
            if reason is None:
                return Choice(engine.name, reasons)
            reasons[engine.name] = reason
        raise self._none_left(reasons)

    def check(self, config: DecodingConfig, sentence: Sentence) -> None:
        """Checks that an engine supports settings and sentence; prepares none."""
        reasons: dict[str, str] = {}
        for engine in self._engines:
            reason = engine.takes(sentence) or engine.supports(config, self._model)
            if reason is None:
                return
            reasons[engine.name] = reason
        raise self._none_left(reasons)

    def search(
        self, sentences: Sequence[Sentence], config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        """Finds the hypotheses of each sentence; see `PreparedSearch.search`."""
        lists: dict[int, list[Hypothesis]] = {}
        reasons: dict[str, str] = {}
        for engine in self._engines:
            # What an engine does not take is left to the next ones, the others need not wait for it
            taken = []
            for index in (index for index in range(len(sentences)) if index not in lists):
                reason = engine.takes(sentences[index])
                if reason is None:
                    taken.append(index)
                else:
                    reasons[engine.name] = reason
            if not taken:
                continue
            reason = self._refusal(engine, config)
            if reason is None:
                try:
                    results = self._prepared[engine.name].search(
                        [sentences[index] for index in taken], config, self._before_batch
                    )
                except EngineUnavailableError as error:
                    reason = self._leave_aside(engine, error)
                else:
                    lists.update(zip(taken, results, strict=True))
            if reason is not None:
                reasons[engine.name] = reason
        if len(lists) < len(sentences):
            raise self._none_left(reasons)
        return [lists[index] for index in range(len(sentences))]

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        config: DecodingConfig,
        heads: tuple[CrossHead, ...] = (),
    ) -> list[Hypothesis]:
        """Scores given translations; see `PreparedScoring`.

        Only the penalties among the settings matter.
        """
        # Settings that matter only to the search must not make an engine refuse to score
        settings = DecodingConfig(
            length_penalty=config.length_penalty,
            length_normalization=config.length_normalization,
            coverage_penalty=config.coverage_penalty,
            batch_tokens=config.batch_tokens,
        )
        reasons: dict[str, str] = {}
        for engine in (*self._engines, *self._scorers):
            reason = self._refusal(engine, settings)
            prepared = self._prepared.get(engine.name)
            if reason is None and isinstance(prepared, PreparedScoring):
                try:
                    return prepared.score(sources, targets, settings, heads)
                except EngineUnavailableError as error:
                    reason = self._leave_aside(engine, error)
            reasons[engine.name] = reason or "it cannot score given targets"
        raise self._none_left(reasons)

    def record(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32] | None:
        """Records the attentions of a pair; None: no engine does. See `PreparedRecording`."""
        for engine in self._engines:
            # Whatever the settings of the search are, nothing is searched for
            prepared = (
                None if self._refusal(engine, DecodingConfig()) else self._prepared[engine.name]
            )
            if isinstance(prepared, PreparedRecording):
                try:
                    return prepared.record(source, target)
                except EngineUnavailableError as error:
                    self._leave_aside(engine, error)
        return None

    def _refusal(self, engine: SearchEngine, config: DecodingConfig) -> str | None:
        """Prepares an engine; gives the reason why it cannot search."""
        # What failed once is not compiled or packed again for every call
        if engine.name in self._unavailable:
            return self._unavailable[engine.name]
        reason = engine.supports(config, self._model)
        if reason is None and engine.name not in self._prepared:
            try:
                self._prepared[engine.name] = engine.prepare(self._model)
            except EngineUnavailableError as error:
                return self._leave_aside(engine, error)
        return reason

    def _leave_aside(self, engine: SearchEngine, error: EngineUnavailableError) -> str:
        self._prepared.pop(engine.name, None)
        self._unavailable[engine.name] = str(error)
        return str(error)

    def _none_left(self, reasons: Mapping[str, str | None]) -> UsageError:
        """Explains why the last engine, the most capable, cannot search."""
        name = self._engines[-1].name
        return UsageError.of("{engine}: {} cannot search here: {}; omit it", name, reasons[name])


@dataclass()
class PromptedCache:
    """The cache of the model and what it says after the prompts."""

    cache: DecodingCache
    """Positions of the model, prompts included."""
    logits: Tensor | None
    """(B, V) logits of the first tokens; None once the search has had them."""

    @property
    def beam_size(self) -> int:
        """W, rows for each sentence."""
        return self.cache.beam_size

    def reorder(self, rows: Tensor, sentences: Sequence[int]) -> None:
        """Keeps and rearranges rows; see `DecoderCache.reorder`."""
        self.cache.reorder(rows, sentences)


class PromptedModel:
    """A `DecodingModel` of prompts; in torch, those of a batch have the same length."""

    source_eos = False

    def __init__(
        self, model: SearchedModel, on_token: Callable[[Sequence[int]], None] | None = None
    ) -> None:
        """Takes a language model."""
        self.model = model
        """The language model."""
        self.on_token = on_token
        """The listener, called with tokens; it may change for each search."""
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions

    @property
    def is_watched(self) -> bool:
        """True while someone listens, whom tokens of a step too many would reach."""
        return self.on_token is not None

    @property
    def _in_torch(self) -> DecodingModel:
        """The language model, made if need be."""
        if isinstance(self.model, StoredModel):
            return self.model.make()
        return cast("DecodingModel", self.model)

    def within(self, config: DecodingConfig, n_prompt: int) -> DecodingConfig:
        """Settings of the search for a prompt of this length, within the positions left."""
        left = self.max_positions - n_prompt
        if left < 1:
            raise ValueError(
                f"a prompt may have at most {self.max_positions - 1} tokens, but has {n_prompt}"
            )
        # The prompt takes positions, too, and the least length must not exceed the most
        most = min(config.max_length or left, left)
        return replace(config, max_length=most, min_length=min(config.min_length, most))

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Returns the tokens of the prompts, (B, P)."""
        lengths = source_mask.sum(dim=1)
        longest = int(lengths.max())
        # A step is at one position for all rows, and would read padding like a token
        if not bool((lengths == longest).all()):
            raise ValueError("prompts that are continued together must have the same length")
        return source[:, :longest]

    def start_cache(
        self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int
    ) -> PromptedCache:
        """Reads the prompts, (B, P), one position after the other; each has one row at first."""
        n_read = memory.shape[1]
        model = self._in_torch
        nothing = model.encode(memory, source_mask[:, :n_read])
        # `max_length` counts `<s>`, which the prompt replaces
        cache = model.start_cache(nothing, source_mask, beam_size, n_read + max_length - 1)
        logits = None
        for position in range(n_read):
            logits = model.decode_step(memory[:, position], cache)
        return PromptedCache(cache, logits)

    def decode_step(self, tokens: Tensor, cache: PromptedCache) -> Tensor:
        """Reads one more token of each row; the first, `<s>`, represents the prompt."""
        # Once: the prompt replaces the first step's `<s>`, which is not read
        if cache.logits is not None:
            logits, cache.logits = cache.logits, None
            return logits
        if self.on_token is not None:
            self.on_token(tokens.tolist())
        return self._in_torch.decode_step(tokens, cache.cache)
