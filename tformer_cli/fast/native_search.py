"""Searching many sentences with the compiled kernels, on as many threads as torch would use.

Several searches of the kernels share all sentences, each on its own thread: when some have ended,
it takes the next ones. In the kernels a sentence's numbers depend only on the sentence, so neither
its neighbors nor the threads decide any bit of a translation. Prompts of language models are
sentences that are continued.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from dataclasses import replace
from functools import lru_cache
from threading import current_thread, main_thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar
from weakref import ReferenceType, ref

from tformer_cli.fast.native.library import KernelsUnavailable, load_library
from tformer_cli.fast.native.search import Drawing, NativeModel, Rules
from tformer_cli.fast.native.weights import unsupported_shape
from tformer_cli.runtime import available_threads
from tformer_cli.search.config import KERNEL_SEARCH
from tformer_cli.search.engine import EngineUnavailableError, PromptedModel, StoredModel
from tformer_cli.search.hypothesis import (
    Hypothesis,
    SourceAttention,
    length_divisor,
    longest_translation,
    never_interrupt,
    scored_hypothesis,
    shortest_translation,
)
from tformer_cli.settings import ANY, unknown_setting
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.fast.native.search import NativeSession
    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.engine import SearchedModel, Sentence
    from tformer_cli.search.hypothesis import CrossHead

Result = TypeVar("Result")
SHORT_SEARCH = 2000
"""Tokens of one sentence, all its hypotheses together, that need no thread which could be stopped:
a large model finds them within some tenths of a second."""
KNOWN_DEMANDS: Mapping[str, Container[Any]] = MappingProxyType(
    dict.fromkeys(("tokens", "key", "prefix", "n_start", "constraints", "candidates", "heads"), ANY)
)
"""Demands on a sentence that they know."""
CACHE_BYTES = 32 << 20
"""Bytes of matrices that a processor's last cache holds."""
TOKENS_IN_CACHE, TOKENS_BEYOND_CACHE = 256, 1024
"""Tokens of a batch where settings leave the choice: see `fitting_tokens`."""
LEAST_TOKENS = 64
"""Source tokens decoded at a time by weights in integers, however many rows a sentence has."""
LEAST_SHARED, MOST_SHARING = 1 << 21, 8
"""Weights of a model whose products are shared, and threads: of more, each has too few columns."""
LEAST_ROWS, LEAST_ROWS_IN_INTEGERS = 8, 2
"""Rows of a step for which a model beyond the cache is read: with fewer the memory is the limit."""
MOST_SENTENCES, MOST_ROOM = 4096, 1 << 23
"""Sentences of a search, and numbers of their results, which have room from the start: 32 MB."""
POLL_SECONDS = 0.2
"""Time between two calls of `before_batch` while threads compute."""


class CompiledEngine:
    """Greedy and beam search by the kernels; keeps no model alive."""

    name: ClassVar[str] = "compiled"

    def __init__(
        self,
        precision: Precision = "float32",
        tell: Callable[[str], None] | None = None,
        n_threads: int = 0,
    ) -> None:
        self._precision = precision
        self._tell = tell
        self._n_threads = n_threads
        self._latest: ReferenceType[CompiledSearch] | None = None

    def supports(self, config: DecodingConfig, model: SearchedModel) -> str | None:
        """See `SearchEngine`."""
        is_prompted = isinstance(model, PromptedModel)
        unknown = unknown_setting(config, KERNEL_SEARCH)
        if unknown is not None:
            return f"the settings need more than plain beam search ({unknown})"
        if self._precision != "float32":
            return f"the model computes in {self._precision}"
        model = _whole(model)
        if isinstance(model, StoredModel) and model.existing_model() is None:
            return _not_searched(model.config, is_prompted=is_prompted) or unsupported_shape(
                model.config, model.vocab_size, in_integers=model.in_integers
            )
        # Every search asks, and a model that was packed before needs a fraction of the checks
        latest = None if self._latest is None else self._latest()
        if latest is not None and latest.is_packed_from(model):
            return latest.unsupported_state()
        from tformer_cli.fast.native.torch_weights import unsupported_reason

        in_torch = _in_torch(model)
        return unsupported_reason(in_torch) or _not_searched(
            in_torch.config, is_prompted=is_prompted
        )

    def takes(self, sentence: Sentence) -> str | None:
        """See `SearchEngine`."""
        return unknown_setting(sentence, KNOWN_DEMANDS)

    def prepare(self, model: SearchedModel) -> CompiledSearch:
        """See `SearchEngine`; loads the kernels and packs the weights."""
        search = CompiledSearch(model, self._tell, self._n_threads)
        # A weak reference, since the engine must keep no model alive
        self._latest = ref(search)
        return search


class CompiledSearch:
    """A model's packed weights, which are packed again when the model's own have changed."""

    def __init__(
        self, model: SearchedModel, tell: Callable[[str], None] | None, n_threads: int
    ) -> None:
        """Packs a model; see `CompiledEngine`."""
        self._prompted = model if isinstance(model, PromptedModel) else None
        self._model: Any = _whole(model)
        self._tell = tell
        self._n_threads = n_threads
        self._size = ModelSize.of(self._model)
        self._pack()

    def is_packed_from(self, model: SearchedModel) -> bool:
        """Returns whether these are the present weights of a model."""
        if _whole(model) is not self._model:
            return False
        in_torch = _in_torch(model)
        # A stored model that was made in torch since may have been changed there
        if in_torch is None or self._torch_model is not in_torch:
            return in_torch is self._torch_model
        from tformer_cli.fast.native.torch_weights import versions

        return versions(self._modules) == self._versions

    def unsupported_state(self) -> str | None:
        """Describes a setting of the model that the kernels would ignore; None if there is none."""
        from tformer_cli.fast.native.torch_weights import unsupported_state

        return unsupported_state(self._modules)

    def _pack(self) -> None:
        self._torch_model = _in_torch(self._model)
        try:
            library = load_library(self._tell)
            # Straight from the stored arrays, so that torch need not be loaded
            if self._torch_model is None:
                with self._model.arrays() as arrays:
                    self._native = NativeModel(
                        library,
                        self._model.config,
                        self._model.vocab_size,
                        arrays,
                        self._model.release,
                    )
                return
            from tformer_cli.fast.native.torch_weights import native_model, versions

            self._native = native_model(library, self._torch_model)
        except (KernelsUnavailable, MemoryError) as error:
            raise EngineUnavailableError(str(error)) from None
        self._modules = list(self._torch_model.modules())
        self._versions = versions(self._modules)

    def _present(self) -> NativeModel:
        """Returns the packed weights of the model as it is now."""
        if not self.is_packed_from(self._model):
            del self._native  # its memory is free before other weights are packed
            self._pack()
        return self._native

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        config: DecodingConfig,
        heads: tuple[CrossHead, ...] = (),
    ) -> list[Hypothesis]:
        """See `PreparedScoring`."""
        native = self._present()
        n_workers = self._n_threads or available_threads()
        # One more on either side for an end of sentence, which is read or predicted
        lengths = [
            len(source) + len(target) + 2 for source, target in zip(sources, targets, strict=True)
        ]
        budget = config.batch_tokens or self._size.fitting_tokens
        batches = plan_native_batches(lengths, budget, n_workers)
        n_threads = self._size.threads_of_each(len(batches), n_workers)
        stop = ctypes.c_int(0)

        def score(batch: Sequence[int]) -> list[Hypothesis]:
            own, theirs = ([side[index] for index in batch] for side in (sources, targets))
            steps, weights = native.score(own, theirs, heads, stop=stop, n_threads=n_threads)
            scored = [
                scored_hypothesis(target, values, config)
                for target, values in zip(theirs, steps, strict=True)
            ]
            if not heads:
                return scored
            pairs = zip(scored, weights, strict=True)
            return [
                replace(hypothesis, attention=SourceAttention(heads, rows))
                for hypothesis, rows in pairs
            ]

        hypotheses = side_by_side(score, batches, n_workers, stop, lambda: None)
        return [hypotheses[index] for index in range(len(sources))]

    def record(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """See `PreparedRecording`."""
        return self._present().record(source, target)

    def search(
        self,
        sentences: Sequence[Sentence],
        config: DecodingConfig,
        before_batch: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        """See `PreparedSearch`."""
        native = self._present()
        n_workers = self._n_threads or available_threads()
        results: dict[int, list[Hypothesis]] = {}
        by_heads: dict[tuple[CrossHead, ...], list[int]] = {}
        for index, sentence in enumerate(sentences):
            if sentence.constraints is None:
                by_heads.setdefault(sentence.heads, []).append(index)
        for free in by_heads.values():
            chosen = [sentences[index] for index in free]
            lists = self._plain(native, chosen, config, n_workers, before_batch)
            results |= zip(free, lists, strict=True)

        def satisfy(batch: Sequence[int]) -> list[list[Hypothesis]]:
            return [self._satisfying(native, sentences[index], config) for index in batch]

        # Each by itself: one thread decodes a sentence with constraints step by step
        bound = [[index] for index in range(len(sentences)) if index not in results]
        results |= side_by_side(satisfy, bound, n_workers, ctypes.c_int(0), before_batch)
        return [results[index] for index in range(len(sentences))]

    def _plain(
        self,
        native: NativeModel,
        sentences: Sequence[Sentence],
        config: DecodingConfig,
        n_workers: int,
        before_batch: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        """Finds the hypotheses of sentences, whatever their constraints."""
        limits = [self._longest(sentence, config) for sentence in sentences]
        # The work is the continuation of a prompt, and its memory is as long
        lengths = [
            len(sentence.tokens) + (1 if self._prompted is None else limit)
            for sentence, limit in zip(sentences, limits, strict=True)
        ]
        # The longest first, so that no worker is left with one at the end
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        hypotheses: dict[int, list[Hypothesis]] = {}
        rooms = [
            config.n_candidates * (limit + 1) * (3 + len(sentence.heads and sentence.tokens))
            for sentence, limit in zip(sentences, limits, strict=True)
        ]
        for batch in portions(order, rooms):
            found = self._share(
                native,
                [sentences[index] for index in batch],
                [limits[index] for index in batch],
                [lengths[index] for index in batch],
                config,
                n_workers,
                before_batch,
            )
            hypotheses |= zip(batch, found, strict=True)
        return [hypotheses[index] for index in range(len(sentences))]

    def _share(
        self,
        native: NativeModel,
        sentences: Sequence[Sentence],
        limits: Sequence[int],
        lengths: Sequence[int],
        config: DecodingConfig,
        n_workers: int,
        before_batch: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        """Finds the hypotheses of sentences, which several searches share."""
        budget = config.batch_tokens or self._size.searched_tokens(config.n_candidates)
        most = self._size.most_batches(len(sentences) * config.n_candidates)
        n_searches = plan_searches(lengths, budget, n_workers, most)
        stop = ctypes.c_int(0)
        is_alone = self._prompted is None and len(sentences) == 1
        is_short = is_alone and limits[0] * config.n_candidates <= SHORT_SEARCH

        def run(search: Callable[[], None]) -> None:
            def take(_: Sequence[int]) -> list[None]:
                search()
                return [None]

            parts = [[number] for number in range(n_searches)]
            side_by_side(take, parts, n_workers, stop, before_batch, is_short=is_short)

        before_batch()
        return native.search(
            [sentence.tokens for sentence in sentences],
            limits,
            beam_size=config.n_candidates,
            n_searched=config.n_candidates if config.sampling else config.n_searched,
            divisors=_divisors(config, self._model.max_positions),
            stop=stop,
            most_tokens=fair_tokens(lengths, budget, n_searches),
            run=run,
            candidates=[sentence.candidates for sentence in sentences],
            rules=_rules(sentences, config, self._model.max_positions),
            drawing=_drawing(sentences, config) if config.sampling else None,
            tell=self._teller(),
            heads=sentences[0].heads,
            n_threads=self._size.threads_of_each(n_searches, n_workers),
        )

    def _longest(self, sentence: Sentence, config: DecodingConfig) -> int:
        """Most tokens of a translation, or of the continuation of a prompt."""
        n_source = len(sentence.tokens)
        if self._prompted is not None:
            config = self._prompted.within(config, n_source)
        return longest_translation(n_source, config, self._model.max_positions, sentence.n_given)

    def _teller(self) -> Callable[[int], None] | None:
        """The listener of each token that follows a prompt."""
        on_token = None if self._prompted is None else self._prompted.on_token
        return None if on_token is None else lambda token: on_token([token])

    def _satisfying(
        self, native: NativeModel, sentence: Sentence, config: DecodingConfig
    ) -> list[Hypothesis]:
        """Finds hypotheses under a sentence's constraints; none if there is no way."""
        if sentence.constraints is None:
            return []
        limit = self._longest(sentence, config)

        def start(most_rows: int, most_steps: int) -> _CompiledSteps:
            return _CompiledSteps(
                native.start(sentence.tokens, most_rows=most_rows, most_steps=most_steps),
                sentence,
                _rules([sentence], config, self._model.max_positions),
            )

        # Few sentences have constraints
        from tformer_cli.search.constrained_search import satisfying_search

        n_forced = len(sentence.prefix)
        # The same search as torch's, so both engines keep to the same demands
        hypotheses = satisfying_search(start, limit, config, sentence.constraints, n_forced)
        if not (hypotheses and sentence.heads):
            return hypotheses
        # A forced pass of a few hypotheses costs little, and their search keeps no entries
        targets = [hypothesis.token_ids for hypothesis in hypotheses]
        _, weights = native.score([sentence.tokens] * len(hypotheses), targets, sentence.heads)
        return [
            replace(hypothesis, attention=SourceAttention(sentence.heads, rows))
            for hypothesis, rows in zip(hypotheses, weights, strict=True)
        ]


class _CompiledSteps:
    """The `constraints.Steps` of the kernels."""

    def __init__(self, session: NativeSession, sentence: Sentence, rules: Rules) -> None:
        self._session = session
        self._sentence = sentence
        self._rules = rules

    def step(
        self, parents: Sequence[int], histories: Sequence[tuple[int, ...]]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """See `Steps`."""
        last = [history[-1] if history else BOS_ID for history in histories]
        own = self._session.step(parents, last)
        if self._sentence.candidates:
            # Before any rule: probabilities are relative to the shortlist
            own = _among(own, self._sentence.candidates)
        # Rules write in place, and the model's own are still reported
        scores = own.copy()
        for row, history in zip(scores, histories, strict=True):
            self._rule(row, history)
        scores[:, :EOS_ID] = -math.inf  # padding, unknown token and beginning of sentence
        is_stuck = (scores == -math.inf).all(axis=1)
        # Where rules leave no token it may end: a sentence always has a translation
        scores[is_stuck, EOS_ID] = own[is_stuck, EOS_ID]
        return scores, own

    def _rule(self, scores: NDArray[np.float32], history: tuple[int, ...]) -> None:
        """Forbids next tokens (V) of a hypothesis, as rules.c does."""
        if len(history) < len(self._sentence.prefix):
            forced = self._sentence.prefix[len(history)]
            own = scores[forced]
            scores[:] = -math.inf
            # The model's own, whatever other rules say of a prefix
            scores[forced] = own
            return
        n = self._rules.no_repeat_ngram
        ngrams = [history[end - n : end] for end in range(n, len(history) + 1)] if n else []
        for *before, last in ngrams:
            if history[len(history) - len(before) :] == tuple(before):
                scores[last] = -math.inf
        if len(history) < max(self._rules.least_lengths, default=0):
            scores[EOS_ID] = -math.inf


def _rules(sentences: Sequence[Sentence], config: DecodingConfig, longest: int) -> Rules:
    """Demands on the translations of sentences besides their constraints."""
    return Rules(
        prefixes=[sentence.prefix for sentence in sentences],
        # numbers beyond the longest translation may be too large for the kernels
        least_lengths=[
            min(shortest_translation(len(sentence.tokens), config, sentence.n_given), longest)
            for sentence in sentences
        ],
        no_repeat_ngram=min(config.no_repeat_ngram, longest),
    )


def _drawing(sentences: Sequence[Sentence], config: DecodingConfig) -> Drawing:
    """The sampling settings of each sentence."""
    return Drawing(
        keys=[sentence.key for sentence in sentences],
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
    )


def _among(values: NDArray[np.float32], tokens: Sequence[int]) -> NDArray[np.float32]:
    """Turns log-probabilities (rows, V) into those among some tokens; -inf: the others."""
    import numpy as np

    listed = values[:, tokens]
    # Log-probabilities are at most 0, so no exponential overflows
    listed -= np.log(np.exp(listed).sum(axis=1, keepdims=True))
    result = np.full_like(values, -np.inf)
    result[:, tokens] = listed
    return result


@lru_cache(maxsize=8)
def _divisors(config: DecodingConfig, longest: int) -> array[float]:
    """Divisors of log-probabilities: for each length, the end of sentence counted."""
    # Two more: no tokens at all, and the end of sentence after the longest
    return array("d", (length_divisor(n, config) for n in range(longest + 2)))


class ModelSize(NamedTuple):
    """How large a model is, which decides how its work is divided."""

    n_weights: int
    in_integers: bool

    @classmethod
    def of(cls, model: Any) -> ModelSize:  # noqa: ANN401 - stored, or of torch's
        config = model.config  # a gated layer has a third matrix, a decoder layer attends twice
        square, feed = config.d_model**2, (3 if config.gated else 2) * config.d_model * config.d_ff
        n_weights = config.n_encoder_layers * (4 * square + feed)
        n_weights += config.n_decoder_layers * (8 * square + feed)
        return cls(n_weights, getattr(model, "in_integers", False))

    @property
    def fits(self) -> bool:
        """All layers together fit in a processor's last cache."""
        return self.n_weights * (1 if self.in_integers else 4) <= CACHE_BYTES

    @property
    def fitting_tokens(self) -> int:
        """How many tokens a batch has.

        What a layer computes of 256 tokens stays in a processor's nearest cache. But the matrices
        of all layers are read for every batch: from memory, where they do not fit in the last
        cache, and then more tokens have to share the time that takes.
        """
        return TOKENS_IN_CACHE if self.fits else TOKENS_BEYOND_CACHE

    def searched_tokens(self, n_rows: int) -> int:
        """How many source tokens are decoded at a time, by the rows of each sentence.

        A step reads all weights: where sentences have few rows in it, more share that time. But
        weights in integers that fit in the cache are read soon, and what sentences attend to is
        the first to leave it.
        """
        if self.in_integers and self.fits:
            return max(LEAST_TOKENS, TOKENS_IN_CACHE // n_rows)
        return self.fitting_tokens * max(1, 4 // n_rows)

    def most_batches(self, n_rows: int) -> int:
        """Batches among which the rows of a step are divided: memory is read for each of them."""
        least = LEAST_ROWS_IN_INTEGERS if self.in_integers else LEAST_ROWS
        return n_rows if self.fits else max(1, n_rows // least)

    def threads_of_each(self, n_batches: int, n_workers: int) -> int:
        """Threads that share the products of a batch, where there are fewer batches than those."""
        most = MOST_SHARING if self.n_weights >= LEAST_SHARED else 1
        return min(most, n_workers // max(1, n_batches) or 1)


def plan_searches(lengths: Sequence[int], budget: int, n_workers: int, most: int) -> int:
    """How many searches share sentences: more than `most` only where they exceed its budget."""
    needed = -(-sum(lengths) // budget)  # rounded up
    return min(max(needed, most), n_workers, len(lengths))


def fair_tokens(lengths: Sequence[int], budget: int, n_searches: int) -> int:
    """Tokens of a search at a time: the budget, or its share of all and half a sentence more."""
    return min(budget, (sum(lengths) // n_searches) + (max(lengths) + 1) // 2)


def portions(order: Sequence[int], rooms: Sequence[int]) -> Iterator[list[int]]:
    """Divides sentences, taken in an order, among searches by the room that their results need."""
    portion: list[int] = []
    n_left = MOST_ROOM
    for index in order:
        if portion and (len(portion) == MOST_SENTENCES or rooms[index] > n_left):
            yield portion
            portion, n_left = [], MOST_ROOM
        portion.append(index)
        n_left -= rooms[index]
    if portion:
        yield portion


def plan_native_batches(
    lengths: Sequence[int], batch_tokens: int, n_workers: int
) -> list[list[int]]:
    """Divides sentences among batches of about equal work, the longest sentences first."""
    # Where there are sentences enough, the number of batches is a multiple of that of the workers,
    # so that no worker waits long for the last one
    n_left = sum(lengths)
    needed = -(-n_left // batch_tokens)  # rounded up: none exceeds the budget on average
    whole = -(-needed // n_workers) * n_workers
    n_batches = min(whole, len(lengths))
    batches: list[list[int]] = []
    share, n_tokens = 0.0, 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        length = lengths[index]
        # A sentence joins the batch in whose share its middle lies, provided that it fits
        if not batches or n_tokens + length / 2 > share or n_tokens + length > batch_tokens:
            # A share of the rest: full batches would leave a tiny one, which reads all weights
            share = n_left / max(1, n_batches - len(batches))
            batches.append([])
            n_tokens = 0
        batches[-1].append(index)
        n_tokens += length
        n_left -= length
    return batches


def side_by_side(
    find: Callable[[Sequence[int]], list[Result]],
    batches: Sequence[Sequence[int]],
    n_workers: int,
    stop: ctypes.c_int,
    before_batch: Callable[[], None],
    *,
    is_short: bool = False,
) -> dict[int, Result]:
    """Returns what is found for each index of each batch; sets `stop` if that is ended early."""
    n_workers = min(n_workers, len(batches))
    # Python's signals go to the main thread: any other one may as well compute itself, and spare
    # a service the start of a thread for each batch; what is short soon ends in any case
    is_free = before_batch is never_interrupt and current_thread() is not main_thread()
    if not batches or (n_workers == 1 and (is_free or (is_short and len(batches) == 1))):
        return {
            index: result
            for batch in batches
            for index, result in zip(batch, find(batch), strict=True)
        }
    # A kernel receives no signal. So other threads compute, and this one waits, interruptible
    from concurrent.futures import ThreadPoolExecutor, wait  # a line by itself does without

    results: dict[int, Result] = {}
    pool = ThreadPoolExecutor(n_workers)
    try:
        futures = [pool.submit(find, batch) for batch in batches]
        for batch, future in zip(batches, futures, strict=True):
            while not wait([future], POLL_SECONDS).done:
                before_batch()
            before_batch()
            results |= zip(batch, future.result(), strict=True)
    # Ctrl-C, too: kernels look at `stop`, and would compute on otherwise
    except BaseException:
        stop.value = 1
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def _whole(model: SearchedModel) -> SearchedModel:
    """The model that is packed: what continues prompts is a language model."""
    return model.model if isinstance(model, PromptedModel) else model


def _not_searched(config: ModelConfig, *, is_prompted: bool) -> str | None:
    """Gives the reason why a model is not searched with so; None if it is."""
    if config.is_encoder_only:
        return "an encoder writes nothing"
    # A prompt is read by the decoder, a source by an encoder
    if config.is_decoder_only != is_prompted:
        return "only language models continue prompts"
    return None


def _in_torch(model: Any) -> Any:  # noqa: ANN401 - a module, or what has none yet
    """The model of torch's that a model is, or that has been made of it; None: none yet."""
    return model.existing_model() if isinstance(model, StoredModel) else model
