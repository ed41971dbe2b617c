"""Searching many sentences with the compiled kernels, on as many threads as torch would use.

The kernels translate a batch in one call and on one thread; batches run beside each other. In the
kernels a sentence's numbers depend on the sentence alone, so neither the batches nor the threads
decide any bit of a translation.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from tformer_cli.allow_list import unknown_setting
from tformer_cli.decoding.config import PLAIN_SEARCH
from tformer_cli.decoding.hypothesis import Hypothesis
from tformer_cli.decoding.length_penalty import length_divisor
from tformer_cli.decoding.limits import longest_translation
from tformer_cli.decoding.source_batches import LARGEST_LOGITS
from tformer_cli.fast.native.library import Refused, load_library
from tformer_cli.fast.native.torch_weights import (
    interference,
    native_model,
    unsupported,
    versions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.fast.native.search import NativeModel
    from tformer_cli.model.transformer import Transformer

MOST_UNHEARD = 2000
"""So many tokens of one sentence, all its hypotheses together, are found sooner than anybody could
stop it: within some tenths of a second by a large model."""
SECONDS_BETWEEN_LOOKS = 0.2
"""While threads compute, so often is asked whether to continue."""


class NativeSearch:
    """Greedy and beam search of one model by the kernels."""

    def __init__(self, model: Transformer, tell: Callable[[str], None] | None = None) -> None:
        """Remembers a model; what it has packed is packed again when the weights have changed.

        Args:
            model: in evaluation mode, or what a search takes for one.
            tell: is told, in a line, that there are no kernels.
        """
        self._model = model
        self._tell = tell
        self._native: NativeModel | None = None
        self._modules: list[nn.Module] = []  # of the model, once it has been packed
        self._versions: list[tuple[int, int]] = []  # of the weights that were packed

    def with_model(self, model: Transformer) -> NativeSearch:
        """Makes the same for another model."""
        return NativeSearch(model, self._tell)

    def refusal(self, config: DecodingConfig) -> str | None:
        """Gives the reason why this cannot search as the settings say; None if it can.

        What is asked of a single sentence (prefix, constraints) is not looked at, and nothing is
        computed; but if everything else is as it must be, the kernels are loaded.
        """
        unknown = unknown_setting(config, PLAIN_SEARCH)
        if unknown is not None:
            return f"the settings need more than plain beam search ({unknown})"
        if torch.is_autocast_enabled("cpu"):
            return "another precision is set for torch"
        if self._native is not None and versions(self._modules) == self._versions:
            return interference(self._modules)
        self._native = None  # its memory is free before other weights are packed
        reason = unsupported(self._model)
        if reason is None:
            try:
                self._native = native_model(load_library(self._tell), self._model)
            except Refused as refusal:
                return str(refusal)
            except MemoryError as error:
                return str(error)
            self._modules = list(self._model.modules())
            self._versions = versions(self._modules)
        return reason

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        before_batch: Callable[[], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Finds the hypotheses of each sentence, best first, as `beam_search` finds them.

        Args:
            sources: token ids without special tokens.
            config: settings that `refusal` did not refuse.
            before_batch: called before each batch and now and then in between; what it raises ends
                the search.
        """
        native = self._native
        if native is None:
            raise RuntimeError("refusal() has to be asked first")
        n_workers = torch.get_num_threads()
        most = LARGEST_LOGITS // (config.beam_size * self._model.vocab_size * n_workers)
        batches = plan_native_batches(
            [len(source) + 1 for source in sources], config.batch_tokens, max(1, most), n_workers
        )
        longest = self._model.config.max_positions
        limits = [longest_translation(len(source), config, longest) for source in sources]
        divisors = _divisors(config, longest)
        stop = ctypes.c_int(0)

        def find(batch: Sequence[int]) -> list[list[Hypothesis]]:
            found = native.search(
                [sources[index] for index in batch],
                [limits[index] for index in batch],
                beam_size=config.beam_size,
                n_searched=config.n_searched,
                divisors=divisors,
                stop=stop,
            )
            return [[Hypothesis(*one) for one in hypotheses] for hypotheses in found]

        look = before_batch or _go_on
        look()
        if len(sources) == 1 and limits[0] * config.beam_size <= MOST_UNHEARD:
            return find([0])
        results = dict(_side_by_side(find, batches, n_workers, stop, look))
        return [results[index] for index in range(len(sources))]


@lru_cache(maxsize=8)
def _divisors(config: DecodingConfig, longest: int) -> NDArray[np.float64]:
    """Divisors of log-probabilities: for each length, the end of sentence counted."""
    return np.array([length_divisor(n, config) for n in range(longest + 2)])


def plan_native_batches(
    lengths: Sequence[int], batch_tokens: int, most_sentences: int, n_workers: int
) -> list[list[int]]:
    """Divides sentences among batches of about equal work, the longest sentences first.

    Where there are sentences enough, the number of batches is a multiple of that of the workers,
    so that no worker waits long for the last one.

    Args:
        lengths: tokens of each sentence.
        batch_tokens: tokens of a batch; one sentence alone may have more.
        most_sentences: sentences of a batch.
        n_workers: batches that are searched beside each other.

    Returns:
        Indices into `lengths`; each appears once.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    total = sum(lengths)
    needed = max(-(-total // batch_tokens), -(-len(lengths) // most_sentences))
    n_batches = min(-(-needed // n_workers) * n_workers, len(lengths))
    batches: list[list[int]] = []
    before, number, n_tokens = 0, -1, 0
    for index in order:
        # the batch in which the middle of this sentence lies, if all are equally long
        place = (2 * before + lengths[index]) * n_batches // (2 * total)
        if (
            place > number
            or n_tokens + lengths[index] > batch_tokens
            or len(batches[-1]) == most_sentences
        ):
            batches.append([])
            number, n_tokens = place, 0
        batches[-1].append(index)
        n_tokens += lengths[index]
        before += lengths[index]
    return batches


def _side_by_side(
    find: Callable[[Sequence[int]], list[list[Hypothesis]]],
    batches: Sequence[Sequence[int]],
    n_workers: int,
    stop: ctypes.c_int,
    look: Callable[[], None],
) -> list[tuple[int, list[Hypothesis]]]:
    """Returns what is found for each index of each batch; sets `stop` if that is ended early.

    A kernel hears no signal. So the threads compute, and this one waits and looks now and then.
    """
    results: list[tuple[int, list[Hypothesis]]] = []
    pool = ThreadPoolExecutor(min(n_workers, len(batches)))
    try:
        futures = [pool.submit(find, batch) for batch in batches]
        for batch, future in zip(batches, futures, strict=True):
            while not wait([future], SECONDS_BETWEEN_LOOKS).done:
                look()
            look()
            results += zip(batch, future.result(), strict=True)
    except BaseException:
        stop.value = 1
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def _go_on() -> None:
    """Ends nothing."""
