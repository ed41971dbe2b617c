"""Encoders over many texts or images: in batches, and for each whatever the others are."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

import torch
from torch.nn import functional

from tformer_cli.model.operations import OneDnnProducts
from tformer_cli.runtime import autocast
from tformer_cli.search.source_batches import (
    LARGEST_LOGITS,
    image_batch,
    plan_source_batches,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.model.config import Precision
    from tformer_cli.model.encoder_only import Classifier, EncoderOnly, MaskedLanguageModel
    from tformer_cli.model.methods import Pooling

TOKENS_PER_BATCH = 4096
_MOST_TEXTS = 1024
Found = TypeVar("Found")
Candidates = list[tuple[int, float]]
"""Ids of tokens with their probabilities, the most probable first."""


def for_each_text(
    model: EncoderOnly,
    texts: Sequence[Sequence[int]],
    compute: Callable[[Sequence[int], Tensor, Tensor], Sequence[Found]],
    *,
    precision: Precision = "float32",
    batch_tokens: int = TOKENS_PER_BATCH,
    before_batch: Callable[[], None] | None = None,
) -> list[Found]:
    """Computes something for every text or image, in batches of texts of like length.

    `compute` makes B results of the numbers of texts, their (B, S) ids and their mask. Texts are
    ids without `</s>`; in float32 one gets the same bits in any batch on a CPU.
    """
    device = next(model.parameters()).device
    config = model.config
    results: dict[int, Found] = {}
    lengths = [len(ids) // config.ids_per_token + 1 for ids in texts]
    products = OneDnnProducts() if device.type == "cpu" else nullcontext()
    with torch.inference_mode(), autocast(device, precision), products:
        for indices in plan_source_batches(lengths, batch_tokens, _MOST_TEXTS):
            if before_batch is not None:
                before_batch()
            chosen = [texts[i] for i in indices]
            if config.image_size:  # all are equally long
                batch = image_batch(chosen, config.ids_per_token, device)
            else:
                batch = source_batch(chosen, model.max_positions, device, eos=model.source_eos)
            results.update(zip(indices, compute(indices, *batch), strict=True))
    return [results[index] for index in range(len(texts))]


def text_vectors(
    model: EncoderOnly,
    texts: Sequence[Sequence[int]],
    pooling: Pooling,
    *,
    unit_length: bool,
    precision: Precision = "float32",
) -> list[NDArray[np.float32]]:
    """Computes a vector (D) for every text or image; see `for_each_text`."""

    def compute(_: Sequence[int], source: Tensor, mask: Tensor) -> list[NDArray[np.float32]]:
        pooled = model.pool(model.encode(source, mask), mask, pooling).float()
        vectors = functional.normalize(pooled, dim=1) if unit_length else pooled
        return list(vectors.cpu().numpy())

    return for_each_text(model, texts, compute, precision=precision)


def label_probabilities(
    model: Classifier,
    texts: Sequence[Sequence[int]],
    precision: Precision = "float32",
    batch_tokens: int = TOKENS_PER_BATCH,
    before_batch: Callable[[], None] | None = None,
) -> list[list[float]]:
    """Computes the probabilities (N, L) of every label for every text or image."""

    def compute(_: Sequence[int], source: Tensor, mask: Tensor) -> list[list[float]]:
        rows: list[list[float]] = torch.softmax(model(source, mask).double(), dim=1).tolist()
        return rows

    return for_each_text(
        model,
        texts,
        compute,
        precision=precision,
        batch_tokens=batch_tokens,
        before_batch=before_batch,
    )


def gap_candidates(
    model: MaskedLanguageModel,
    texts: Sequence[Sequence[int]],
    mask_id: int,
    top: int,
    never: Sequence[int] = (),
    *,
    precision: Precision = "float32",
) -> list[list[Candidates]]:
    """Finds the most probable tokens of every gap; see `for_each_text`.

    Each gap is filled as if the others stayed open. Probabilities are over the whole vocabulary.
    """
    most = max(0, min(top, model.vocab_size - len(set(never))))

    def compute(_: Sequence[int], source: Tensor, mask: Tensor) -> list[list[Candidates]]:
        is_gap = (source == mask_id) & mask
        # (B, S, D) -> (M, D): only gaps are compared with the vocabulary
        hidden = model.transform_hidden(model.encode(source, mask)[is_gap])
        parts = torch.split(hidden, max(1, LARGEST_LOGITS // model.vocab_size))
        gaps = iter([gap for rows in parts for gap in best(model.project(rows))])
        return [[next(gaps) for _ in range(n)] for n in is_gap.sum(dim=1).tolist()]

    def best(logits: Tensor) -> list[Candidates]:
        probabilities = torch.softmax(logits.double(), dim=1)
        excluded = torch.tensor(never, dtype=torch.int64).to(logits.device)
        probabilities.index_fill_(1, excluded, -1.0)
        shares, ids = (part.cpu().tolist() for part in probabilities.topk(most, dim=1))
        return [list(zip(*pair, strict=True)) for pair in zip(ids, shares, strict=True)]

    return for_each_text(model, texts, compute, precision=precision)


def gap_log_probabilities(
    model: MaskedLanguageModel,
    texts: Sequence[Sequence[int]],
    gaps: Sequence[tuple[int, int]],
    *,
    precision: Precision = "float32",
) -> list[float]:
    """Computes ln p of a token at a gap of every text; see `for_each_text`."""

    def compute(indices: Sequence[int], source: Tensor, mask: Tensor) -> list[float]:
        places, ids = torch.tensor([gaps[n] for n in indices], device=source.device).unbind(1)
        states = model.encode(source, mask)[torch.arange(len(places)), places]
        most = max(1, LARGEST_LOGITS // model.vocab_size)
        parts = (torch.split(part, most) for part in (model.transform_hidden(states), ids))
        return [value for pair in zip(*parts, strict=True) for value in score_tokens(*pair)]

    def score_tokens(hidden: Tensor, wanted: Tensor) -> list[float]:
        steps = model.project(hidden).double().log_softmax(dim=1)
        values: list[float] = steps.gather(1, wanted.unsqueeze(1)).squeeze(1).tolist()
        return values

    return for_each_text(model, texts, compute, precision=precision)
