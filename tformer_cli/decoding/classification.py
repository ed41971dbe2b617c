"""Probabilities of labels: in padded batches, and for each text whatever the others are."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from tformer_cli.decoding.source_batches import image_batch, plan_source_batches, source_batch
from tformer_cli.model.operations import OneDnnProducts
from tformer_cli.runtime import autocast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tformer_cli.model.classifier import Classifier
    from tformer_cli.model.config import Precision

TOKENS_PER_BATCH = 4096
_MOST_TEXTS = 1024


def label_probabilities(
    model: Classifier,
    texts: Sequence[Sequence[int]],
    precision: Precision = "float32",
    batch_tokens: int = TOKENS_PER_BATCH,
    before_batch: Callable[[], None] | None = None,
) -> list[list[float]]:
    """Computes the probability of every label for every text or image.

    Args:
        model: in evaluation mode.
        texts: N lists of token ids, without special tokens, none too long for the model; of images
            the ids of their pixels.
        precision: of the products; in float32 a text gets the same bits in any batch on a CPU.
        batch_tokens: padded tokens of a batch.
        before_batch: called before each batch.

    Returns:
        (N, L) probabilities that sum to 1.
    """
    device = next(model.parameters()).device
    found: list[list[float]] = [[] for _ in texts]
    config = model.config
    lengths = [len(ids) // config.ids_per_token + 1 for ids in texts]
    products = OneDnnProducts() if device.type == "cpu" else nullcontext()
    with torch.inference_mode(), autocast(device, precision), products:
        for indices in plan_source_batches(lengths, batch_tokens, _MOST_TEXTS):
            if before_batch is not None:
                before_batch()
            chosen = [texts[i] for i in indices]
            if config.reads_images:
                batch = image_batch(chosen, config.ids_per_token, device)
            else:
                batch = source_batch(chosen, model.max_positions, device, eos=model.source_eos)
            rows = torch.softmax(model(*batch).double(), dim=1).tolist()
            for index, row in zip(indices, rows, strict=True):
                found[index] = row
    return found
