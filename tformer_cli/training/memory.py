"""Batches that do not fit in memory: computed in parts, with the gradient of the whole."""

from collections.abc import Sequence
from dataclasses import fields, replace

import torch

from tformer_cli.data.batching import Batch
from tformer_cli.errors import TformerError
from tformer_cli.model.runtime import Precision, is_out_of_memory
from tformer_cli.model.transformer import Transformer
from tformer_cli.training.gradients import ALONE, BackwardPasses, add_gradients
from tformer_cli.training.window import Window


class GradientsInMemory:
    """Adds gradients as `add_gradients` does, and halves batches that do not fit.

    Out of memory, the gradients of the step are dropped and its largest batch is halved by rows,
    until all parts fit. The loss is a mean over the tokens of all parts together, so the gradient
    is that of the unsplit batches. Batches as large as one that has failed are split at once.
    """

    def __init__(self, passes: BackwardPasses = ALONE) -> None:
        """Takes how the processes that train together make their backward passes."""
        self._passes = passes
        self.smallest_failed = 0
        """Positions of the smallest batch that did not fit; 0: all did."""

    def add(
        self,
        model: Transformer,
        batches: Sequence[Batch],
        window: Window,
        *,
        label_smoothing: float,
        precision: Precision,
        n_target_tokens: int | None = None,
        r_drop: float = 0.0,
    ) -> int:
        """Adds the gradient of one optimizer step; there must be none yet.

        Args:
            model: the model, on its device.
            batches: of the step.
            window: takes the sums.
            label_smoothing: ε.
            precision: of the products.
            n_target_tokens: target tokens of the whole step, see `add_gradients`.
            r_drop: R-Drop's α.

        Returns:
            In how many parts it was computed.

        Raises:
            TformerError: if a single sentence pair does not fit.
        """
        parts = self._fitting(batches)
        while True:
            sums = replace(window)
            try:
                add_gradients(
                    model,
                    parts,
                    sums,
                    label_smoothing=label_smoothing,
                    precision=precision,
                    n_target_tokens=n_target_tokens,
                    r_drop=r_drop,
                    passes=self._passes,
                )
                break
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            # outside of the handler, whose traceback keeps tensors alive
            self._passes.start_again()
            model.zero_grad(set_to_none=True)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            parts = self._with_largest_halved(parts)
        for item in fields(Window):
            setattr(window, item.name, getattr(sums, item.name))
        return len(parts)

    def _with_largest_halved(self, parts: Sequence[Batch]) -> list[Batch]:
        largest = max(parts, key=lambda part: (part.n_sentences > 1, part.n_cells))
        if largest.n_sentences == 1:
            raise TformerError(
                f"data.max_length: a sentence pair of {largest.n_cells} positions does not "
                "fit in memory; lower it or the size of the model"
            )
        self.smallest_failed = min(self.smallest_failed or largest.n_cells, largest.n_cells)
        return [half for part in parts for half in (halves(part) if part is largest else [part])]

    def _fitting(self, batches: Sequence[Batch]) -> list[Batch]:
        parts = list(batches)
        while self.smallest_failed and any(self._is_too_large(part) for part in parts):
            parts = [
                p for part in parts for p in (halves(part) if self._is_too_large(part) else [part])
            ]
        return parts

    def _is_too_large(self, batch: Batch) -> bool:
        return batch.n_sentences > 1 and batch.n_cells >= self.smallest_failed


def halves(batch: Batch) -> list[Batch]:
    """Cuts a batch of at least two pairs in two."""
    middle = batch.n_sentences // 2
    return [
        Batch(**{item.name: getattr(batch, item.name)[rows] for item in fields(Batch)})
        for rows in (slice(None, middle), slice(middle, None))
    ]
