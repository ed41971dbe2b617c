"""Continuous batching: as soon as a sentence is done, the next one takes its place.

A padded batch lasts as long as its longest translation, and near its end a GPU computes a few rows
in the time of many. Here the places are filled again while the search continues (iteration-level
scheduling; Yu et al. 2022, "Orca", section 3). Steps do not wait for the device: whether a place is
done is read one step late, and what was found is fetched while the next step is computed.

Sentences of about one length share places, so that their sources are padded to one width. In
float32 everything is computed in shapes that follow from that width alone, whatever is translated
beside it.

It is experimental: that it finds what the padded search finds, and that no step waits, is tested on
a CPU; whether it is faster on a GPU has not been measured.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from tformer_cli.allow_list import ANY, unknown_setting
from tformer_cli.data.tokenizer import EOS_ID, PAD_ID
from tformer_cli.decoding.config import PLAIN_SEARCH
from tformer_cli.decoding.engine import EngineUnavailableError, demand_of
from tformer_cli.decoding.hypothesis import length_divisor, longest_source, longest_translation
from tformer_cli.decoding.source_batches import LARGEST_LOGITS
from tformer_cli.fast.continuous.beam_places import (
    BeamPlaces,
    divisor_table,
    hypotheses,
    search_step,
)
from tformer_cli.fast.continuous.fixed_cache import FixedCache
from tformer_cli.fast.native.torch_weights import interference
from tformer_cli.model.config import PLAIN_TRANSLATION
from tformer_cli.model.feed_forward import ACTIVATIONS
from tformer_cli.model.operations import Linear, StandardProducts
from tformer_cli.model.transformer import Transformer
from tformer_cli.runtime import autocast, is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from torch import Tensor

    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.decoding.engine import SearchedModel, Sentence
    from tformer_cli.decoding.hypothesis import Hypothesis
    from tformer_cli.model.config import Precision

NARROWEST_SOURCE = 16
"""Sources are padded to this times a power of two."""
EXACT_TOKENS = 2048
"""Source tokens of a batch in float32, whatever there is to translate."""
MOST_BATCHES = 4
"""Widths whose places are kept from one search to the next."""
KNOWN_MODELS: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_TRANSLATION,
        **dict.fromkeys(
            ("d_model", "n_heads", "d_head", "d_ff", "dropout",
             "attention_dropout", "activation_dropout", "norm_epsilon", "max_positions",
             "rotary_base", "relative_buckets", "relative_distance",
             "encoder_heads", "decoder_heads", "cross_heads", "bias_heads"),
            ANY,
        ),
        "norm": ("post", "pre"),
        "n_key_heads": ANY,
        "projections": (False, True),
        "norm_kind": ("layer", "rms"),
        "gated": (False, True),
        "activation": ACTIVATIONS,
        "positions": ("sinusoidal", "learned", "rotary", "relative", "alibi", "none", "table"),
        "similarity": ("scaled", "dot"),
        "tied_embeddings": ("all", "decoder", "inputs", "none"),
        "bias": (False, True),
        "output_bias": (False, True),
        "final_norm": ("pre-norm", "always"),
        "embedding_norm": (False, True),
        "scale_embeddings": (False, True),
        "source_vocab_size": ANY,
        "source_eos": (True,),
    }
)  # fmt: skip
"""Settings of models whose decoder steps are known to work on `FixedCache`."""
REFILLED_SHARE = 8
"""Places are filled again when one in this many is free: encoding one by one would waste the
GPU."""


@dataclass(frozen=True)
class ContinuousEngine:
    """Greedy and beam search on a device that computes asynchronously."""

    device: torch.device
    """Where the model is."""
    precision: Precision = "float32"
    """"bfloat16" computes the products in it."""
    name: ClassVar[str] = "continuous"

    def supports(self, config: DecodingConfig, model: SearchedModel) -> str | None:
        """See `SearchEngine`."""
        unknown = unknown_setting(config, PLAIN_SEARCH)
        if unknown is not None:
            return f"the settings need more than plain beam search ({unknown})"
        if not isinstance(model, Transformer):
            return "the model is not a single Transformer"
        unknown = unknown_setting(model.config, KNOWN_MODELS)
        if unknown is not None:
            return f"its cache was not tested with {unknown}"
        return interference(list(model.modules()))

    def takes(self, sentence: Sentence) -> str | None:
        """See `SearchEngine`."""
        return demand_of(sentence)

    def prepare(self, model: SearchedModel) -> ContinuousSearch:
        """See `SearchEngine`; the memory for places is taken by the first search."""
        if not isinstance(model, Transformer):
            raise EngineUnavailableError("the model is not a single Transformer")
        return ContinuousSearch(model, self.device, self.precision)


class ContinuousSearch:
    """Places of one model for sentences of each width."""

    def __init__(
        self,
        model: Transformer,
        device: torch.device,
        precision: Precision = "float32",
    ) -> None:
        """Remembers a model in evaluation mode; see `ContinuousEngine`."""
        self._model = model
        self._device = device
        self._precision = precision
        self._batches: dict[int, _RunningBatch] = {}
        self._made_for: object = None

    def search(
        self,
        sentences: Sequence[Sentence],
        config: DecodingConfig,
        before_batch: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        """See `PreparedSearch`; `before_batch` is called before sentences are encoded."""
        sources = [sentence.tokens for sentence in sentences]
        try:
            return self._search(sources, config, before_batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # outside of the handler, whose traceback keeps tensors alive
        self._batches.clear()
        raise EngineUnavailableError("there is too little memory for the longest translations")

    @torch.inference_mode()
    def _search(
        self,
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        before_batch: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        self._forget_what_has_changed(config)
        by_width: dict[int, list[int]] = {}
        for index in sorted(range(len(sources)), key=lambda index: -len(sources[index])):
            by_width.setdefault(self._width(len(sources[index]) + 1), []).append(index)
        results: dict[int, list[Hypothesis]] = {}
        with self._computing():
            for width, indices in by_width.items():
                batch = self._batch_of(width, len(indices), config)
                queue = deque((index, sources[index]) for index in indices)
                batch.search(queue, results, before_batch)
        return [results[index] for index in range(len(sources))]

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Computes on the model's own device, in the precision."""
        is_on_cpu = self._device.type == "cpu"
        with (
            torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext(),
            nullcontext() if is_on_cpu else StandardProducts(),  # once, not in every attention
            autocast(self._device, self._precision),
        ):
            yield

    def _forget_what_has_changed(self, config: DecodingConfig) -> None:
        """Gives up places that were made for other settings or other types of numbers.

        Products decide the type of keys and values; they are kept alive here, known by identity.
        """
        modules = [module for module in self._model.modules() if isinstance(module, Linear)]
        products = [module.product for module in modules] + [self._model.output_product]
        types = [weight.dtype for weight in self._model.parameters()]
        made_for = config, types, products
        if made_for != self._made_for:
            self._batches.clear()
            self._made_for = made_for

    def _width(self, n_tokens: int) -> int:
        """Padded length of a source of this many tokens, end of sentence counted."""
        width = max(NARROWEST_SOURCE, _power_of_two(n_tokens))
        return min(width, self._model.max_positions)

    def _batch_of(self, width: int, n_sentences: int, config: DecodingConfig) -> _RunningBatch:
        """The places for sources of a width, as many as there can be use for."""
        most = LARGEST_LOGITS // (config.beam_size * self._model.vocab_size)
        if self._precision == "float32":
            n_places = max(1, min(EXACT_TOKENS // width, most))
        else:
            n_places = max(
                1, min(config.torch_batch_tokens // width, most, _power_of_two(n_sentences))
            )
        batch = self._batches.pop(width, None)
        if batch is None or batch.n_places < n_places:
            batch = None  # its memory is free before more is taken
            while len(self._batches) >= MOST_BATCHES:
                del self._batches[next(iter(self._batches))]
            batch = self._new_batch(config, width, n_places)
        self._batches[width] = batch  # the last one used
        return batch

    def _new_batch(self, config: DecodingConfig, width: int, n_places: int) -> _RunningBatch:
        """Takes the memory of a batch; where that is too much, gives up the others."""
        while True:
            try:
                return _RunningBatch(self._model, config, width, n_places)
            except RuntimeError as error:
                if not (is_out_of_memory(error) and self._batches):
                    raise
            # outside of the handler, whose traceback keeps tensors alive
            self._batches.clear()
            if self._device.type == "cuda":
                torch.cuda.empty_cache()


@dataclass
class _Occupant:
    """A sentence in a place."""

    index: int
    since: int
    """The step before which it came."""


@dataclass
class _Schedule:
    """Occupants of the places while sentences are searched."""

    occupants: list[_Occupant | None]
    done: list[int] = field(default_factory=list)
    """Places whose sentences are found and not yet taken out."""
    fetched: list[tuple[list[int], list[_AsyncCopy]]] = field(default_factory=list)
    """Sentences taken out and their hypotheses, on the way to the host."""
    n_steps: int = 0

    @property
    def n_searched(self) -> int:
        """Places where a sentence is still searched."""
        return sum(occupant is not None for occupant in self.occupants) - len(self.done)


class _RunningBatch:
    """The places for sources of one width."""

    def __init__(
        self, model: Transformer, config: DecodingConfig, width: int, n_places: int
    ) -> None:
        """Takes the memory.

        Args:
            model: the model.
            config: how to search.
            width: S, tokens that sources are padded to.
            n_places: P.
        """
        self._model = model
        self._config = config
        self._width = width
        self.n_places = n_places
        self._device = next(model.parameters()).device
        self._most_refilled = max(1, n_places // REFILLED_SHARE)
        max_positions = model.max_positions
        longest_line = min(width - 1, longest_source(max_positions))
        longest = longest_translation(longest_line, config, max_positions)
        self._divisors = divisor_table(longest, config, self._device)
        self._places = BeamPlaces.empty(n_places, config.beam_size, longest, self._device)
        memory, _ = self._encoded([(0, ())])
        self._cache = FixedCache.empty(model, n_places, config.beam_size, longest + 1, memory)

    def search(
        self,
        queue: deque[tuple[int, Sequence[int]]],
        results: dict[int, list[Hypothesis]],
        before_batch: Callable[[], None],
    ) -> None:
        """Searches sentences, each with its index; empties the queue."""
        self._places.is_active.zero_()  # of a search that was ended
        schedule = _Schedule([None] * self.n_places)
        seen: _AsyncCopy | None = None
        while queue or schedule.n_searched:
            n_free = schedule.occupants.count(None) + len(schedule.done)
            is_worth_it = n_free >= min(len(queue), self._most_refilled)
            if queue and (is_worth_it or n_free == self.n_places):
                before_batch()
                self._take_out(schedule)
                self._fill(schedule, queue)
            n_searched = self._config.n_searched
            search_step(self._model, self._places, self._cache, self._divisors, n_searched)
            schedule.n_steps += 1
            now = _AsyncCopy(self._places.is_active, schedule.n_steps)
            # while the device computes this step, the host works on the one before
            self._deliver(schedule, results)
            if seen is not None:
                self._note_done(schedule, seen)
            seen = now
        self._take_out(schedule)
        self._deliver(schedule, results)

    def _fill(self, schedule: _Schedule, queue: deque[tuple[int, Sequence[int]]]) -> None:
        """Puts the next sentences in free places."""
        free = [place for place, one in enumerate(schedule.occupants) if one is None]
        while free and queue:
            group = [
                queue.popleft() for _ in range(min(len(queue), len(free), self._most_refilled))
            ]
            places, free = free[: len(group)], free[len(group) :]
            max_positions = self._model.max_positions
            limits = [
                longest_translation(len(source), self._config, max_positions) for _, source in group
            ]
            divisors = [length_divisor(limit + 1, self._config) for limit in limits]
            where = self._to_device(torch.tensor(places))
            memory, source_mask = self._encoded(group)
            self._cache.put(self._model, where, memory, source_mask)
            self._places.put(
                where,
                self._to_device(torch.tensor(limits)),
                self._to_device(torch.tensor(divisors, dtype=torch.float64)),
            )
            for place, (index, _) in zip(places, group, strict=True):
                schedule.occupants[place] = _Occupant(index, schedule.n_steps)

    def _encoded(self, group: Sequence[tuple[int, Sequence[int]]]) -> tuple[Tensor, Tensor]:
        """Encodes sentences, always as many rows at once: (R, S, D) and (R, S)."""
        n_empty = self._most_refilled - len(group)
        sources = [source for _, source in group] + [()] * n_empty
        rows = [
            [*source, EOS_ID, *[PAD_ID] * (self._width - len(source) - 1)] for source in sources
        ]
        lengths = torch.tensor([len(source) + 1 for source in sources])
        mask = self._to_device(torch.arange(self._width) < lengths.unsqueeze(1))
        return self._model.encode(self._to_device(torch.tensor(rows)), mask), mask

    def _note_done(self, schedule: _Schedule, seen: _AsyncCopy) -> None:
        """Notes which places are done, by what they were after a step."""
        is_active = seen.arrived().tolist()
        for place, occupant in enumerate(schedule.occupants):
            if (
                occupant is not None
                and not is_active[place]
                and occupant.since < seen.n_steps
                and place not in schedule.done
            ):
                schedule.done.append(place)

    def _take_out(self, schedule: _Schedule) -> None:
        """Sends for what was found; the places are free then."""
        if not schedule.done:
            return
        found = self._places.found(self._to_device(torch.tensor(schedule.done)))
        occupants = [schedule.occupants[place] for place in schedule.done]
        indices = [occupant.index for occupant in occupants if occupant is not None]
        copies = [_AsyncCopy(tensor, schedule.n_steps) for tensor in found]
        schedule.fetched.append((indices, copies))
        for place in schedule.done:
            schedule.occupants[place] = None
        schedule.done.clear()

    def _deliver(self, schedule: _Schedule, results: dict[int, list[Hypothesis]]) -> None:
        """Waits for what was sent for and puts it among the results."""
        for indices, copies in schedule.fetched:
            found = [copy.arrived() for copy in copies]
            best = hypotheses(found, self._config.n_searched)
            results.update(zip(indices, best, strict=True))
        schedule.fetched.clear()

    def _to_device(self, tensor: Tensor) -> Tensor:
        """Sends a tensor to the device without waiting for it."""
        if self._device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self._device, non_blocking=True)


class _AsyncCopy:
    """A tensor that is brought to the host while the device computes on."""

    def __init__(self, tensor: Tensor, n_steps: int) -> None:
        """Sends for it as it is after this many steps."""
        self.n_steps = n_steps
        self._event: torch.cuda.Event | None = None
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        self._host.copy_(tensor, non_blocking=tensor.is_cuda)
        if tensor.is_cuda:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def arrived(self) -> Tensor:
        """Waits for it."""
        if self._event is not None:
            self._event.synchronize()
        return self._host


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, number - 1).bit_length()
