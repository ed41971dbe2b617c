"""Encoders over many texts by the compiled kernels, on as many threads as torch would use.

A text's numbers do not depend on the other texts of a batch or on other threads.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, TypeVar

from tformer_cli.fast.native.library import KernelsUnavailable, load_library
from tformer_cli.fast.native.search import NativeModel
from tformer_cli.fast.native.weights import unsupported_shape
from tformer_cli.fast.native_search import (
    ModelSize,
    plan_native_batches,
    side_by_side,
)
from tformer_cli.runtime import available_threads
from tformer_cli.search.hypothesis import never_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.search.engine import StoredModel

Result = TypeVar("Result")
SHORT_TOKENS = 256
"""Tokens that need no thread which could be stopped: it costs a line a tenth of its time."""


class CompiledEncoder:
    """The packed encoder of a model; several threads may use it at once."""

    def __init__(self, native: NativeModel, size: ModelSize, n_threads: int = 0) -> None:
        self._native = native
        self._size = size
        self._n_threads = n_threads

    def each(
        self,
        texts: Sequence[Sequence[int]],
        compute: Callable[[int, NDArray[np.float32]], Result],
        before_batch: Callable[[], None] = never_interrupt,
    ) -> list[Result]:
        """Computes something of the number and the states (S, D) of every text, in threads."""
        n_workers = self._n_threads or available_threads()
        # One more for the end of sentence, which most models read after a text
        lengths = [len(text) + 1 for text in texts]
        batches = plan_native_batches(lengths, self._size.fitting_tokens, n_workers)
        n_threads = self._size.threads_of_each(len(batches), n_workers)
        stop = ctypes.c_int(0)

        def encode(batch: Sequence[int]) -> list[Result]:
            batch_texts = [texts[number] for number in batch]
            hidden = self._native.encode(batch_texts, stop=stop, n_threads=n_threads)
            return [compute(number, states) for number, states in zip(batch, hidden, strict=True)]

        is_short = sum(lengths) <= SHORT_TOKENS
        results = side_by_side(encode, batches, n_workers, stop, before_batch, is_short=is_short)
        return [results[number] for number in range(len(texts))]


def compiled_encoder(
    model: StoredModel, tell: Callable[[str], None] | None = None, n_threads: int = 0
) -> CompiledEncoder | str:
    """Packs the encoder of a stored model."""
    reason = unsupported_shape(model.config, model.vocab_size, in_integers=model.in_integers)
    if reason is not None:
        return reason
    try:
        library = load_library(tell)
        with model.arrays() as arrays:
            native = NativeModel(library, model.config, model.vocab_size, arrays, model.release)
    # A reason, not an error: whoever asked can still compute in torch
    except (KernelsUnavailable, MemoryError) as error:
        return str(error)
    return CompiledEncoder(native, ModelSize.of(model), n_threads)
