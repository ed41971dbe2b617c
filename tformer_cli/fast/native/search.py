"""Many sentences in one call of the kernels: encoded, translated or continued, or scored."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from functools import partial
from itertools import accumulate, chain, pairwise
from operator import lt, mul, sub
from typing import TYPE_CHECKING, Any, NamedTuple

from tformer_cli.fast.native.structs import Answer, EncodeRequest, Request, ScoreRequest, TellToken
from tformer_cli.fast.native.weights import PackedModel, address_of
from tformer_cli.search.hypothesis import Hypothesis, SourceAttention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.fast.native.weights import Array
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.search.hypothesis import CrossHead

EOS_ID = 3
"""End of sentence: the kernels and the tokenizer agree on it."""
MOST_ROWS = 320
"""Hypotheses decoded at a time, whatever the number of sentences: enough for the products."""
MOST_TOKENS = 1 << 62
"""Source tokens decoded at a time: however many there are."""
_NO_MEMORY, _STOPPED = 1, 2
_SPECIAL = tuple(range(EOS_ID + 1))
_MOST_TOP_K = 1 << 31
"""More tokens than any vocabulary has."""


class Rules(NamedTuple):
    """Required and banned phrases of translations; see `tformer_cli.search.processors`."""

    prefixes: Sequence[Sequence[int]] = ()
    """For each sentence the tokens that its translation begins with; empty: for none."""
    least_lengths: Sequence[int] = ()
    """For each sentence the tokens before which its translation does not end; empty: for none."""
    no_repeat_ngram: int = 0
    """Number of tokens in a row that a translation does not hold twice; 0: it may hold any."""


NO_RULES = Rules()


class Drawing(NamedTuple):
    """Sampling settings; see `tformer_cli.search.sampling`."""

    keys: Sequence[int]
    """For each sentence the number that decides, of 64 bits with a sign."""
    temperature: float
    """Log-probabilities are divided by it."""
    top_k: int
    """Most tokens that are drawn from; 0: all."""
    top_p: float
    """Probability that those tokens have together at least."""


class Stopped(Exception):  # noqa: N818 - nothing is wrong
    """The search was told to stop."""


def _run_alone(search: Callable[[], None]) -> None:
    search()


class NativeModel:
    """A model that searches by the kernels; several threads may use it at once.

    The sources of a language model are prompts, of at least one token: `<s>`, or what its texts
    begin with.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        config: ModelConfig,
        vocab_size: int,
        weights: Mapping[str, Array],
        release: Callable[[Array], None] | None = None,
    ) -> None:
        """Packs the model's weights, which must not change from then on; see `PackedModel`."""
        self._library = library
        self._model = PackedModel(library, config, vocab_size, weights, release)
        self._config = config
        self._search, self._score = library.tformer_search, library.tformer_score
        self._encode = library.tformer_encode
        self._search.argtypes = [ctypes.c_void_p] * 3
        self._score.argtypes = self._encode.argtypes = [ctypes.c_void_p] * 2
        for function in (self._search, self._score, self._encode):
            function.restype = ctypes.c_int32
        library.tformer_begin_team.argtypes = [ctypes.c_int64]
        library.tformer_begin_team.restype = library.tformer_end_team.restype = None

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        *,
        beam_size: int,
        n_searched: int,
        divisors: Iterable[float],
        stops_early: bool = True,
        stop: ctypes.c_int | None = None,
        most_rows: int = MOST_ROWS,
        most_tokens: int = MOST_TOKENS,
        run: Callable[[Callable[[], None]], object] = _run_alone,
        candidates: Sequence[Sequence[int]] | None = None,
        rules: Rules = NO_RULES,
        drawing: Drawing | None = None,
        tell: Callable[[int], None] | None = None,
        heads: Sequence[CrossHead] = (),
        n_threads: int = 1,
    ) -> list[list[Hypothesis]]:
        """Translates or continues sentences; no result depends on the others, or on threads.

        `run` calls what it is given once, or on several threads: each then takes the next
        sentences that nobody has, with up to `most_rows` and `most_tokens` at a time.
        """
        divided = array("d", divisors)
        self._check(sources, limits, beam_size, n_searched, len(divided))
        tokens, starts = self._join_sources(sources)
        listed, listed_starts = self._join_candidates(candidates, len(sources))
        if drawing is not None and n_searched != beam_size:
            raise ValueError("drawing keeps all hypotheses: n_searched must equal beam_size")
        ruled = _PackedRules(rules, len(sources), self._model.vocab_size)
        drawn = _PackedDrawing(drawing, len(sources))
        answer = _Room(limits, n_searched, starts, tuple(heads))
        mask = self._mask(heads)
        stop = ctypes.c_int(0) if stop is None else stop
        listener = _Told(tell, stop)
        begun = ctypes.c_int64(0)
        request = Request(
            len(sources),
            address_of(tokens),
            address_of(starts),
            address_of(answer.limits),
            address_of(divided),
            _pointer(listed),
            _pointer(listed_starts),
            *ruled.fields,
            beam_size,
            n_searched,
            most_rows,
            most_tokens,
            ctypes.addressof(begun),
            stops_early,
            *drawn.fields,
            listener.function,
            ctypes.addressof(stop),
            _pointer(mask),
        )
        run(partial(self._take_sentences, request, answer, listener, n_threads))
        return [answer.read(index) for index in range(len(sources))]

    def _take_sentences(
        self, request: Request, answer: _Room, listener: _Told, n_threads: int
    ) -> None:
        """Searches for sentences of a request as long as nobody else has taken the last one."""
        answers = Answer(*map(address_of, answer.parts))
        status = self._call(self._search, n_threads, ctypes.byref(request), ctypes.byref(answers))
        # First: it is why the kernels were stopped
        listener.raise_what_was_raised()
        _check_status(status, "search for")

    def record(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """Reads a given translation; returns what attentions read and gave, as in scoring.h."""
        if self._model.is_decoder_only or self._model.is_encoder_only:
            raise ValueError("only a model with encoder and decoder is recorded")
        config, n_source = self._config, len(self._join_sources([source])[0])
        size = config.n_heads // (config.n_key_heads or config.n_heads)
        encoder, decoder, cross = map(sum, config.layer_heads)
        # Queries and contexts, keys and values; one head too few, and the kernels leave the array
        of_source = 2 * encoder + 2 * (encoder + cross) // size
        of_target = 2 * (decoder + cross) + 2 * decoder // size
        n_floats = (n_source * of_source + (len(target) + 1) * of_target) * config.head_width
        import numpy as np

        recorded = np.empty(n_floats, np.float32)
        self.score([source], [target], recorded=recorded)
        return recorded

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        heads: Sequence[CrossHead] = (),
        *,
        stop: ctypes.c_int | None = None,
        recorded: NDArray[np.float32] | None = None,
        n_threads: int = 1,
    ) -> tuple[list[list[float]], list[NDArray[np.float32]]]:
        """Reads given translations; each pair's numbers are independent of the others.

        Gives log p of their tokens, or into `recorded` what `record` says, and the mean of heads.
        """
        if len(targets) != len(sources):
            raise ValueError(f"there are {len(sources)} sources, but {len(targets)} targets")
        tokens, starts = self._join_sources(sources)
        if self._model.is_decoder_only:
            self._check_texts(sources, targets)
            wanted, target_starts = _flat(targets)
        else:
            self._check_tokens(targets, self._model.vocab_size)
            wanted, target_starts = _join_sentences(targets)
        steps = _zeros("f", len(wanted))
        stop = ctypes.c_int(0) if stop is None else stop
        mask = self._mask(heads)
        widths = _lengths(starts)
        ends = list(accumulate(map(mul, widths, _lengths(target_starts)))) if heads else []
        weights = _room_for(ends[-1] if ends else 0)
        request = ScoreRequest(
            len(sources),
            *map(address_of, (tokens, starts, wanted, target_starts)),
            ctypes.addressof(stop),
            _pointer(steps if recorded is None else None),
            _pointer(mask),
            address_of(weights),
            _pointer(recorded),
        )
        _check_status(self._call(self._score, n_threads, ctypes.byref(request)), "score")
        places = pairwise((0, *ends))
        return (
            [steps[start:end].tolist() for start, end in pairwise(target_starts)],
            [
                _mean(weights[start:end], width, heads)
                for (start, end), width in zip(places, widths, strict=False)
            ],
        )

    def encode(
        self,
        texts: Sequence[Sequence[int]],
        *,
        stop: ctypes.c_int | None = None,
        n_threads: int = 1,
    ) -> list[NDArray[np.float32]]:
        """Computes hidden states (S, D) of texts, those of an end of sentence that was added too.

        Each text's numbers are independent of the others.
        """
        if self._model.is_decoder_only:
            raise ValueError("a language model has no encoder")
        import numpy as np

        tokens, starts = self._join_sources(texts)
        hidden = np.empty((len(tokens), self._model.d_model), np.float32)
        stop = ctypes.c_int(0) if stop is None else stop
        request = EncodeRequest(
            len(texts),
            *map(address_of, (tokens, starts)),
            ctypes.addressof(stop),
            address_of(hidden),
        )
        _check_status(self._call(self._encode, n_threads, ctypes.byref(request)), "encode")
        return [hidden[start:end] for start, end in pairwise(starts)]

    def start(self, source: Sequence[int], *, most_rows: int, most_steps: int) -> NativeSession:
        """Encodes a sentence, to be decoded step by step; not by a model without either stack."""
        if not (1 <= most_rows <= MOST_SLOTS and 1 <= most_steps <= self._model.max_positions):
            raise ValueError(f"{most_rows} hypotheses of {most_steps} tokens are out of range")
        if self._model.is_decoder_only or self._model.is_encoder_only:
            raise ValueError("only a model with encoder and decoder is decoded step by step")
        self._check_tokens([source], self._model.source_vocab_size)
        return NativeSession(self._library, self._model, source, most_rows, most_steps)

    def _call(self, function: Any, n_threads: int, *arguments: object) -> int:  # noqa: ANN401
        """Calls a function of the kernels, whose products some threads share."""
        try:
            self._library.tformer_begin_team(n_threads)
            status: int = function(self._model.pointer, *arguments)
        finally:
            self._library.tformer_end_team()
        return status

    def _mask(self, heads: Sequence[CrossHead]) -> bytearray | None:
        """Mask of heads among those of all layers; None: no attention is recorded."""
        if not heads:
            return None
        layers = [bytearray(n) for n in self._config.layer_heads.cross]
        for layer, head in heads:
            layers[layer][head] = 1
        return bytearray().join(layers)

    def _check(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        beam_size: int,
        n_searched: int,
        n_divisors: int,
    ) -> None:
        """Refuses what would let the kernels leave their arrays."""
        if not 1 <= n_searched <= beam_size <= MOST_SLOTS:
            raise ValueError(
                f"1 ≤ n_searched ≤ beam_size ≤ {MOST_SLOTS} must hold, "
                f"but they are {n_searched} and {beam_size}"
            )
        if len(limits) != len(sources):
            raise ValueError(f"there are {len(sources)} sources, but {len(limits)} limits")
        if self._model.is_encoder_only:
            raise ValueError("an encoder writes nothing")
        for source, limit in zip(sources, limits, strict=True):
            n_read = len(source) if self._model.is_decoder_only else 1
            longest = self._model.max_positions - n_read
            if not 0 <= limit <= longest:
                raise ValueError(f"limits must be 0 to {longest}, but one is {limit}")
        # A divisor is read for each length up to the limit and its end
        if limits and max(limits) + 2 > n_divisors:
            raise ValueError(f"there are {n_divisors} divisors for a limit of {max(limits)}")

    def _join_candidates(
        self, candidates: Sequence[Sequence[int]] | None, n_sentences: int
    ) -> tuple[array[int], array[int]] | tuple[None, None]:
        """Joins the candidates of all sentences; returns also where those of each begin."""
        if candidates is None or not any(map(len, candidates)):
            return None, None
        if len(candidates) != n_sentences:
            raise ValueError(f"there are {n_sentences} sources, but {len(candidates)} candidates")
        for part in candidates:
            is_valid = (*part[: EOS_ID + 1],) == _SPECIAL and all(map(lt, part, part[1:]))
            if len(part) and not (is_valid and part[-1] < self._model.vocab_size):
                raise ValueError(
                    f"candidates must be 0 to {EOS_ID} and then ascending ids below "
                    f"{self._model.vocab_size}"
                )
        return _flat(candidates)

    def _join_sources(self, sources: Sequence[Sequence[int]]) -> tuple[array[int], array[int]]:
        """Joins sources, or prompts as they are; returns also where each begins."""
        if not self._model.is_decoder_only:
            self._check_tokens(sources, self._model.source_vocab_size)
            return _join_sentences(sources, eos=self._model.source_eos)
        self._check_texts(sources, [()] * len(sources))
        return _flat(sources)

    def _check_texts(
        self, beginnings: Sequence[Sequence[int]], rests: Sequence[Sequence[int]]
    ) -> None:
        """Checks the input of a language model: all tokens of a text but the last of its rest."""
        for beginning, rest in zip(beginnings, rests, strict=True):
            text = (*beginning, *rest)
            if not beginning or len(text) - bool(rest) > self._model.max_positions:
                raise ValueError(
                    f"a text must have 1 to {self._model.max_positions} tokens, but has "
                    f"{len(beginning)} and then {len(rest)}"
                )
            if not 0 <= min(text) <= max(text) < self._model.vocab_size:
                raise ValueError(f"token ids must be 0 to {self._model.vocab_size - 1}")

    def _check_tokens(self, sentences: Sequence[Sequence[int]], vocab_size: int) -> None:
        n_positions = self._model.max_positions
        for sentence in sentences:
            if len(sentence) + 1 > n_positions:
                raise ValueError(
                    f"a sentence may have at most {n_positions} tokens, but has {len(sentence) + 1}"
                )
            if sentence and not 0 <= min(sentence) <= max(sentence) < vocab_size:
                raise ValueError(f"token ids must be 0 to {vocab_size - 1}")


class NativeSession:
    """The decoding of one sentence, a position at a time; one thread uses it."""

    def __init__(
        self,
        library: ctypes.CDLL,
        model: PackedModel,
        source: Sequence[int],
        most_rows: int,
        most_steps: int,
    ) -> None:
        self._model, self._most_rows, self._n_left = model, most_rows, most_steps
        self._n_before = 0  # rows of the step before
        self._step = library.tformer_step
        self._step.restype = ctypes.c_int32
        self._step.argtypes = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3]
        start, end = library.tformer_start_session, library.tformer_end_session
        start.restype, end.restype = ctypes.c_void_p, None
        start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3]
        end.argtypes = [ctypes.c_void_p]
        tokens, _ = _join_sentences([source], eos=model.source_eos)
        self._pointer = start(model.pointer, address_of(tokens), len(tokens), most_rows, most_steps)
        if not self._pointer:
            raise MemoryError("there is not enough memory to search for translations")
        # Frees the kernels' memory with this object, whatever ends the search
        weakref.finalize(self, end, self._pointer)

    def step(self, parents: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        """Reads one more token of each hypothesis."""
        if not 1 <= len(tokens) == len(parents) <= self._most_rows or self._n_left == 0:
            raise ValueError(f"there are {len(parents)} and {len(tokens)} rows, or too many steps")
        if self._n_before and not 0 <= min(parents) <= max(parents) < self._n_before:
            raise ValueError(f"parents must be 0 to {self._n_before - 1}")
        vocab_size = self._model.vocab_size
        if not 0 <= min(tokens) <= max(tokens) < vocab_size:
            raise ValueError(f"token ids must be 0 to {vocab_size - 1}")
        import numpy as np

        result = np.empty((len(tokens), vocab_size), np.float32)
        arrays = array("q", parents), array("i", tokens), result
        status = self._step(self._pointer, len(tokens), *map(address_of, arrays))
        _check_status(status, "search for")
        self._n_before, self._n_left = len(tokens), self._n_left - 1
        return result


MOST_SLOTS = 1 << 16
"""Largest beam: far beyond any use, and no product of sizes can overflow."""


def _check_status(status: int, work: str) -> None:
    """Raises the error that a kernel reports."""
    if status == _STOPPED:
        raise Stopped
    if status == _NO_MEMORY:
        raise MemoryError(f"there is not enough memory to {work} translations")


def _join_sentences(
    sentences: Sequence[Sequence[int]], *, eos: bool = True
) -> tuple[array[int], array[int]]:
    """Joins sentences, with or without an end of sentence; returns also where each begins.

    An empty one has its end in any case: attention needs a token.
    """
    return _flat(
        [(*sentence, EOS_ID) if eos or not sentence else sentence for sentence in sentences]
    )


def _flat(sequences: Sequence[Sequence[int]]) -> tuple[array[int], array[int]]:
    """Joins sequences; returns also where each begins, and where the last one stops."""
    starts = accumulate(map(len, sequences), initial=0)
    return array("i", chain.from_iterable(sequences)), array("q", starts)


def _lengths(starts: array[int]) -> list[int]:
    """The lengths of sequences that `_flat` has joined."""
    return list(map(sub, starts[1:], starts))


def _pointer(memory: Array | array[Any] | bytearray | None) -> int | None:
    return None if memory is None else address_of(memory)


def _zeros(kind: str, n: int) -> array[Any]:
    return array(kind, (0,)) * n


def _room_for(n_weights: int) -> NDArray[np.float32] | array[float]:
    """Room for weights of attention, which need numpy: what is never touched is no memory."""
    if not n_weights:
        return array("f")
    import numpy as np

    return np.empty(n_weights, np.float32)


def _mean(
    weights: NDArray[np.float32] | array[float], width: int, heads: Sequence[CrossHead]
) -> NDArray[np.float32]:
    """Divides the sums (rows · S) of the weights of heads by their number: (rows, S)."""
    import numpy as np

    # A copy, so that a kept result does not hold the arrays of all
    rows = np.divide(weights, np.float32(len(heads)), dtype=np.float32)
    return rows.reshape(-1, width)


class _PackedRules:
    """Rules in the arrays of search.h, which live as long as this."""

    def __init__(self, rules: Rules, n_sentences: int, vocab_size: int) -> None:
        """Refuses what would let the kernels leave their arrays."""
        for rows in (rules.prefixes, rules.least_lengths):
            if rows and len(rows) != n_sentences:
                raise ValueError(f"there are {n_sentences} sources, but rules for {len(rows)}")
        for tokens in rules.prefixes:
            if tokens and not 0 <= min(tokens) <= max(tokens) < vocab_size:
                raise ValueError(f"token ids of rules must be 0 to {vocab_size - 1}")
        if min((rules.no_repeat_ngram, *rules.least_lengths)) < 0:
            raise ValueError("rules about lengths must be at least 0")
        self._prefixes = _flat(rules.prefixes) if any(rules.prefixes) else ()
        self._least = array("q", rules.least_lengths) if any(rules.least_lengths) else None
        self.fields = (
            *(map(address_of, self._prefixes) if self._prefixes else (None, None)),
            _pointer(self._least),
            rules.no_repeat_ngram,
        )
        """The same as in `Request`."""


class _PackedDrawing:
    """The sampling settings as arrays of search.h, which live as long as this."""

    def __init__(self, drawing: Drawing | None, n_sentences: int) -> None:
        self.fields: tuple[int | float | None, ...] = (None, 1.0, 0, 1.0)
        """The same as in `Request`."""
        if drawing is None:
            return
        if len(drawing.keys) != n_sentences:
            raise ValueError(f"there are {n_sentences} sources, but {len(drawing.keys)} keys")
        if not (drawing.temperature > 0.0 and drawing.top_k >= 0 and 0.0 < drawing.top_p <= 1.0):
            raise ValueError(f"{drawing} is out of range")
        self._keys = array("q", drawing.keys)
        self.fields = (
            address_of(self._keys),
            drawing.temperature,
            # More would not fit the kernels' number, and means all anyway
            min(drawing.top_k, _MOST_TOP_K),
            drawing.top_p,
        )


class _Told:
    """The callback of the kernels for each token, and its exception, if any."""

    def __init__(self, tell: Callable[[int], None] | None, stop: ctypes.c_int) -> None:
        self._raised: BaseException | None = None

        def call(token: int) -> None:
            if tell is None or self._raised is not None:
                return
            try:
                tell(token)
            except BaseException as error:  # noqa: BLE001 - nothing may pass through C
                # Kept until the kernel returns: a callback cannot raise through C
                self._raised = error
                stop.value = 1

        self.function = TellToken() if tell is None else TellToken(call)
        """The same as in `Request`."""

    def raise_what_was_raised(self) -> None:
        """Raises what ended the search."""
        if self._raised is not None:
            raise self._raised


class _Room:
    """Arrays for the results; each sentence has room for its longest translations."""

    def __init__(
        self,
        limits: Sequence[int],
        n_searched: int,
        starts: array[int],
        heads: tuple[CrossHead, ...],
    ) -> None:
        """Allocates them; if heads are recorded, also for the source positions of each sentence."""
        n_hypotheses, self._n_searched = len(limits) * n_searched, n_searched
        self.limits = array("q", limits)
        # The end of sentence has a step, too
        self._room = [limit + 1 for limit in limits]
        sizes = [room * n_searched for room in self._room]
        self._places = array("q", accumulate(sizes, initial=0))
        self._n_found = _zeros("q", len(limits))
        self._n_tokens = _zeros("q", n_hypotheses)
        self._log_probability, self._score = (_zeros("d", n_hypotheses) for _ in range(2))
        self._is_finished = _zeros("i", n_hypotheses)
        self._tokens, self._steps = (_zeros(kind, self._places[-1]) for kind in "if")
        self._widths, self._heads = _lengths(starts), heads
        sizes = list(map(mul, sizes, self._widths)) if heads else []
        self._weight_places = array("q", accumulate(sizes, initial=0))
        # Most of it is never touched: limits are far away
        self._weights = _room_for(self._weight_places[-1])
        of_hypotheses = (self._n_tokens, self._log_probability, self._score, self._is_finished)
        of_tokens = (self._places, self._tokens, self._steps, self._weight_places, self._weights)
        # In the order of search.h
        self.parts = (self._n_found, *of_hypotheses, *of_tokens)

    def read(self, sentence: int) -> list[Hypothesis]:
        """Returns the hypotheses of a sentence, best first."""
        hypotheses = []
        for rank in range(self._n_found[sentence]):
            number = sentence * self._n_searched + rank
            start = self._places[sentence] + rank * self._room[sentence]
            stop = start + self._n_tokens[number]
            hypotheses.append(
                Hypothesis(
                    tuple(self._tokens[start:stop]),
                    self._log_probability[number],
                    self._score[number],
                    tuple(self._steps[start : stop + 1]),
                    bool(self._is_finished[number]),
                    self._attention(sentence, rank, self._n_tokens[number] + 1),
                )
            )
        return hypotheses

    def _attention(self, sentence: int, rank: int, n_rows: int) -> SourceAttention | None:
        if not self._heads:
            return None
        width = self._widths[sentence]
        start = self._weight_places[sentence] + rank * self._room[sentence] * width
        rows = self._weights[start : start + n_rows * width]
        return SourceAttention(self._heads, _mean(rows, width, self._heads))
